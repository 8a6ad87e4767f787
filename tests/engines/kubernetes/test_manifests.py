"""What is applied to a cluster: enough for the engine, and no more. The real one is asked by `make kubernetes-test`."""

from __future__ import annotations

import json

import yaml

from belljar.engines.kubernetes.manifests import RIGHTS, Wanted, as_text, manifests
from belljar.surfaces.cli.main import main

WANTED = Wanted(namespace="agents", images="r.example.com/", runtime_class="nonet")


def test_all_but_the_namespace_is_in_the_namespace() -> None:
    first, *others = manifests(WANTED)
    assert (
        first["metadata"]["labels"]["pod-security.kubernetes.io/enforce"]
        == "restricted"
    )
    assert {each["metadata"]["namespace"] for each in others} == {"agents"}
    assert not any(each["kind"].startswith("Cluster") for each in others)


def test_no_right_reaches_secrets_nodes_or_everything() -> None:
    [role] = [each for each in manifests(WANTED) if each["kind"] == "Role"]
    asked = json.dumps(role["rules"])
    for word in (
        '"*"',
        "secrets",
        "nodes",
        "serviceaccounts",
        "impersonate",
        "escalate",
    ):
        assert word not in asked
    assert {(rule["apiGroups"][0], rule["resources"][0]) for rule in role["rules"]} == {
        row[:2] for row in RIGHTS
    }


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
