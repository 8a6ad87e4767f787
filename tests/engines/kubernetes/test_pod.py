"""A sandbox's spec as a Pod, and a Pod read back: every protection asked for, every change of it noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.engines.kubernetes.conftest import SETTINGS

from belljar.engines.kubernetes import init_image
from belljar.engines.kubernetes.pod import FACTS, claims, facts, pod, quantity
from belljar.engines.kubernetes.settings import Settings
from belljar.engines.spec import LABEL, SandboxSpec
from belljar.errors import ProtectionMissing
from belljar.link.frames import Testimony as Report
from belljar.sandbox import verification

Change = Callable[[dict[str, Any]], None]


@pytest.fixture
def made(spec: SandboxSpec) -> dict[str, Any]:
    return pod(spec, "belljar-bj-0123456789ab", SETTINGS, "instance-1")


def test_a_pod_is_confined_without_a_token_and_never_restarted(
    made: dict[str, Any],
) -> None:
    spec = made["spec"]
    assert spec["automountServiceAccountToken"] is spec["enableServiceLinks"] is False
    assert spec["restartPolicy"] == "Never"
    assert spec["runtimeClassName"] == "nonet"
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["securityContext"]["runAsNonRoot"]
    assert spec["dnsConfig"] == {"nameservers": ["127.0.0.1"]}
    for container in (*spec["containers"], *spec["initContainers"]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False, "privileged": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        } | {key: value for key, value in container["securityContext"].items() if key.startswith("runAs")}  # fmt: skip


def test_no_volume_is_of_the_node(made: dict[str, Any]) -> None:
    assert all(set(each) == {"name", "emptyDir"} for each in made["spec"]["volumes"])
    assert "hostPath" not in json.dumps(made)


def test_limits_and_their_part_that_the_scheduler_sets_aside(
    made: dict[str, Any],
) -> None:
    resources = made["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {
        "memory": str(64 << 20),
        "cpu": "500m",
        "ephemeral-storage": str(1 << 30),
    }
    assert resources["requests"] == {"memory": str(32 << 20), "cpu": "250m"}


def test_the_init_sets_the_limits_that_a_pod_cannot(
    made: dict[str, Any], spec: SandboxSpec
) -> None:
    command = made["spec"]["containers"][0]["command"]
    assert command[0] == f"{spec.private}/init"
    assert "--same-user" in command
    for bound in ("nofile=100", "nproc=32", "core=0"):
        assert bound in command


def test_another_user_installs_the_init_where_the_sandbox_only_reads(
    made: dict[str, Any], spec: SandboxSpec
) -> None:
    [installer], [container] = (
        made["spec"]["initContainers"],
        made["spec"]["containers"],
    )
    uid = installer["securityContext"]["runAsUser"]
    assert str(uid) == init_image.USER.partition(":")[0] != str(spec.user.uid)
    assert installer["command"] == ["/init", "--install", f"{spec.private}/init"]
    [seen] = [
        each for each in container["volumeMounts"] if each["mountPath"] == spec.private
    ]
    assert seen["readOnly"]


def test_labels_are_short_and_belljar_s_own_are_whole(
    made: dict[str, Any], spec: SandboxSpec
) -> None:
    assert all(len(value) <= 63 for value in made["metadata"]["labels"].values())
    assert facts(made) == spec.all_labels
    assert facts(made)[LABEL + "owner"] == "1:2:a:b"


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", '"x"'])
def test_an_annotation_of_somebody_else_s_is_no_fact(
    made: dict[str, Any], text: str
) -> None:
    made["metadata"]["annotations"][FACTS] = text
    assert facts(made) == {}


def test_variables_are_not_expanded_by_the_cluster(
    spec: SandboxSpec, made: dict[str, Any]
) -> None:
    from dataclasses import replace

    other = pod(replace(spec, env={"PS1": "$(HOME)$"}), "n", SETTINGS, "i")
    assert {"name": "PS1", "value": "$$(HOME)$$"} in other["spec"]["containers"][0][
        "env"
    ]
    assert {"name": "BELLJAR_TOKEN", "value": "0" * 64} in made["spec"]["containers"][
        0
    ]["env"]


def test_placement_is_the_settings(spec: SandboxSpec) -> None:
    settings = Settings(
        node_selector={"pool": "agents"}, tolerations=({"key": "agents", "operator": "Exists"},), seccomp="b.json",
        pull_secret="pull", machine="aarch64",
    )  # fmt: skip
    made = pod(spec, "n", settings, "i")["spec"]
    assert made["nodeSelector"] == {"kubernetes.io/arch": "arm64", "pool": "agents"}
    assert made["tolerations"] == [{"key": "agents", "operator": "Exists"}]
    assert made["imagePullSecrets"] == [{"name": "pull"}]
    assert made["securityContext"]["seccompProfile"] == {
        "type": "Localhost",
        "localhostProfile": "b.json",
    }
    assert "runtimeClassName" not in made


# Read back


def test_what_was_asked_for_is_claimed_but_for_what_a_pod_cannot_say(
    spec: SandboxSpec, made: dict[str, Any]
) -> None:
    found, wanted = claims(made, SETTINGS), spec.protections
    unsaid = {"swap", "pids", "ulimits", "masked_paths", "readonly_paths"}
    assert {name for name in vars(wanted) if getattr(found, name) is None} == unsaid
    assert all(
        getattr(found, name) == getattr(wanted, name)
        for name in vars(wanted)
        if name not in unsaid
    )


def container(made: dict[str, Any]) -> dict[str, Any]:
    first: dict[str, Any] = made["spec"]["containers"][0]
    return first


CHANGES: dict[str, Change] = {
    "capabilities": lambda made: container(made)["securityContext"].update(
        capabilities={"add": ["NET_ADMIN"]}
    ),
    "no_new_privileges": lambda made: container(made)["securityContext"].update(
        allowPrivilegeEscalation=True
    ),
    "read_only_root": lambda made: container(made)["securityContext"].update(
        readOnlyRootFilesystem=False
    ),
    "memory": lambda made: container(made)["resources"]["limits"].update(memory="8Gi"),
    "cpus": lambda made: container(made)["resources"]["limits"].pop("cpu"),
    "user": lambda made: made["spec"]["securityContext"].update(runAsUser=0),
    "seccomp": lambda made: made["spec"]["securityContext"].update(
        seccompProfile={"type": "Unconfined"}
    ),
    "own_namespaces": lambda made: made["spec"].update(hostPID=True),
    "removes_itself": lambda made: made["spec"].update(restartPolicy="Always"),
}
EXTRAS: dict[str, Change] = {
    "the container mesh": lambda made: made["spec"]["containers"].append(
        {"name": "mesh"}
    ),
    "the container pull": lambda made: made["spec"]["initContainers"].append(
        {"name": "pull"}
    ),
    "the volume token": lambda made: made["spec"]["volumes"].append(
        {"name": "token", "projected": {}}
    ),
    "the volume node": lambda made: made["spec"]["volumes"].append(
        {"name": "node", "hostPath": {"path": "/"}}
    ),
    "a service account's token": lambda made: made["spec"].update(
        automountServiceAccountToken=True
    ),
    "hostNetwork": lambda made: made["spec"].update(hostNetwork=True),
    "shareProcessNamespace": lambda made: made["spec"].update(
        shareProcessNamespace=True
    ),
    "ephemeralContainers": lambda made: made["spec"].update(
        ephemeralContainers=[{"name": "debug"}]
    ),
    "another runtime class": lambda made: made["spec"].update(runtimeClassName="other"),
    "privileged mode": lambda made: container(made)["securityContext"].update(
        procMount="Unmasked"
    ),
    "nvidia.com/gpu": lambda made: container(made)["resources"]["limits"].update(
        {"nvidia.com/gpu": "1"}
    ),
    "a variable from elsewhere": lambda made: container(made)["env"].append(
        {"name": "x", "valueFrom": {}}
    ),
    "envFrom": lambda made: container(made).update(
        envFrom=[{"secretRef": {"name": "x"}}]
    ),
    "lifecycle": lambda made: container(made).update(lifecycle={"postStart": {}}),
}


@pytest.mark.parametrize("item", CHANGES)
def test_a_protection_that_the_cluster_took_away_is_not_claimed(
    spec: SandboxSpec, made: dict[str, Any], item: str
) -> None:
    CHANGES[item](made)
    assert getattr(claims(made, SETTINGS), item) != getattr(spec.protections, item)


@pytest.mark.parametrize("named", EXTRAS)
def test_what_a_webhook_added_is_named(made: dict[str, Any], named: str) -> None:
    EXTRAS[named](made)
    assert any(named in each for each in claims(made, SETTINGS).extras or ())


def test_a_pod_that_was_changed_is_refused_although_its_init_finds_nothing(
    spec: SandboxSpec, made: dict[str, Any]
) -> None:
    """The claims of the API alone stop the run, whatever the testimony says."""
    EXTRAS["the volume token"](made)
    empty = Report({}, (True,) * len(verification.asked_inside(spec)))
    with pytest.raises(ProtectionMissing, match="the volume token"):
        verification.verify_inside(spec, claims(made, SETTINGS), empty)


def test_a_pod_without_the_sandbox_s_container_claims_nothing(
    made: dict[str, Any],
) -> None:
    other = copy.deepcopy(made)
    other["spec"]["containers"] = []
    assert claims(other, SETTINGS).extras
    assert claims(other, SETTINGS).user is None


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("64Mi", 64 << 20),
        ("1G", 10**9),
        ("67108864", 64 << 20),
        ("1Gi", 1 << 30),
        ("", None),
        ("x", None),
        (None, None),
    ],
)
def test_a_quantity_is_read(text: str | None, bytes: int | None) -> None:
    assert quantity(text) == bytes
