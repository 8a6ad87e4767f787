"""What is applied to a cluster: enough for the engine, and no more. The real one is asked by `make kubernetes-test`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.engines.kubernetes.api_server import FakeServer

from belljar.engines.kubernetes import agent_sandbox
from belljar.engines.kubernetes.manifests import (
    RIGHTS,
    Wanted,
    as_text,
    manifests,
    notes,
)
from belljar.engines.kubernetes.pod import CONFINED
from belljar.surfaces.cli.main import main

WANTED = Wanted(namespace="agents", images="r.example.com/", runtime_class="nonet")


def test_all_but_the_namespace_is_in_the_namespace() -> None:
    first, *others = manifests(WANTED)
    assert (
        first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        == "restricted"
    )
    [priority] = [each for each in others if each["kind"] == "PriorityClass"]
    others.remove(priority)
    assert {each["metadata"]["namespace"] for each in others} == {"agents"}
    assert not any(each["kind"].startswith("Cluster") for each in others)


def test_no_right_reaches_secrets_nodes_or_everything() -> None:
    everything = replace(WANTED, agent_sandbox=True, pulled=("base",))
    asked = json.dumps(rules_of(everything))
    for word in (
        '"*"',
        "secrets",
        "nodes",
        "serviceaccounts",
        "impersonate",
        "escalate",
    ):
        assert word not in asked
    assert resources(WANTED) == {row[:2] for row in RIGHTS}


def rules_of(wanted: Wanted) -> list[Any]:
    [role] = [each for each in manifests(wanted) if each["kind"] == "Role"]
    return list(role["rules"])


def resources(wanted: Wanted) -> set[tuple[str, str]]:
    return {(each["apiGroups"][0], each["resources"][0]) for each in rules_of(wanted)}


def test_claims_may_be_made_only_with_agent_sandbox() -> None:
    more = resources(replace(WANTED, agent_sandbox=True)) - resources(WANTED)
    assert more == {row[:2] for row in agent_sandbox.RIGHTS}


def test_sandboxes_push_nobody_out_and_still_have_a_node_made_for_them() -> None:
    [made] = [each for each in manifests(WANTED) if each["kind"] == "PriorityClass"]
    assert made["preemptionPolicy"] == "Never"
    assert made["value"] == -10
    [serving] = [each for each in manifests(WANTED) if each["kind"] == "Deployment"]
    [container] = serving["spec"]["template"]["spec"]["containers"]
    env = {each["name"]: each.get("value") for each in container["env"]}
    assert env["BELLJAR_KUBERNETES_PRIORITY_CLASS"] == made["metadata"]["name"]


def test_images_are_pulled_by_pods_that_may_do_nothing() -> None:
    assert "DaemonSet" not in {each["kind"] for each in manifests(WANTED)}
    wanted = replace(WANTED, pulled=("python", "r.example.com/own:1"))
    [made] = [each for each in manifests(wanted) if each["kind"] == "DaemonSet"]
    spec = made["spec"]["template"]["spec"]
    assert spec["automountServiceAccountToken"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    containers = [*spec["initContainers"], *spec["containers"]]
    for each in containers:
        assert each["securityContext"] == CONFINED
        assert set(each["resources"]["limits"]) == {"cpu", "memory"}, "for the quota"
    images = [each["image"] for each in containers]
    assert images[0].startswith("r.example.com/belljar/init:")
    assert images[1].startswith("r.example.com/belljar/python:")
    assert images[2] == "r.example.com/own:1"


def test_the_text_says_what_must_be_there_already() -> None:
    assert "RuntimeClass nonet" in notes(WANTED)
    assert "No RuntimeClass" in notes(replace(WANTED, runtime_class=""))
    objects = manifests(WANTED)
    text = notes(WANTED) + as_text(objects)
    assert list(yaml.safe_load_all(text)) == objects
    assert "*id0" not in text


def test_the_text_is_yaml_that_holds_the_same_objects() -> None:
    objects = manifests(WANTED)
    assert list(yaml.safe_load_all(as_text(objects))) == objects


def test_the_service_has_two_replicas_one_of_which_always_stays() -> None:
    kinds = {each["kind"]: each for each in manifests(WANTED)}
    assert kinds["Deployment"]["spec"]["replicas"] == 2
    assert kinds["PodDisruptionBudget"]["spec"]["minAvailable"] == 1
    assert "PodDisruptionBudget" not in {
        each["kind"] for each in manifests(WANTED, service=False)
    }
    password = json.dumps(kinds["Deployment"])
    assert "secretKeyRef" in password
    assert "postgresql://" not in password


def test_the_command_line_prints_them(capsys: object) -> None:
    assert (
        main(
            [
                "kubernetes",
                "manifests",
                "--namespace",
                "agents",
                "--no-service",
                "--json",
            ]
        )
        == 0
    )
    printed = json.loads(capsys.readouterr().out)  # type: ignore[attr-defined]
    assert printed == manifests(Wanted(namespace="agents"), service=False)


def test_the_command_line_prints_a_pool(
    capsys: pytest.CaptureFixture[str],
    server: FakeServer,
    workspace: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("BELLJAR_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("BELLJAR_RUN", str(tmp_path / "run"))
    words = ["kubernetes", "pool", "agents", "3", "--engine", "kubernetes", "--workspace", str(workspace)]  # fmt: skip
    assert main([*words, "--memory", "64m"]) == 0
    template, pool = yaml.safe_load_all(capsys.readouterr().out)
    assert pool["spec"] == {"replicas": 3, "sandboxTemplateRef": {"name": "agents"}}
    [container] = template["spec"]["podTemplate"]["spec"]["containers"]
    assert container["resources"]["limits"]["memory"] == str(64 << 20)
    lease = container["command"][container["command"].index("--lease") + 1]
    assert int(lease) == agent_sandbox.LEASE * 1000
    assert server.count("POST") == 0, "nothing was made"
    assert not [*tmp_path.glob("run/bj-*"), *tmp_path.glob("state/staged/*/bj-*")]
    assert main(["kubernetes", "pool", "No Good", "3", "--engine", "kubernetes"]) != 0
    assert "not a name" in capsys.readouterr().err
