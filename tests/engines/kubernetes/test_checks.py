"""What the doctor asks a cluster."""

from __future__ import annotations

import pytest
from tests.engines.kubernetes.api_server import FakeServer

from belljar.engines.kubernetes.checks import findings
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.kubernetes.settings import Settings


def test_a_missing_right_is_named_with_its_remedy(
    server: FakeServer, engine: KubernetesEngine
) -> None:
    server.allowed = {
        "pods": {"get", "list", "watch", "create"},
        "pods/exec": {"get", "create"},
        "leases": set(),
    }
    [rights] = [
        each for each in findings(engine.api, engine.settings) if each.name == "rights"
    ]
    assert not rights.ok
    assert "delete pods" in rights.detail
    assert "update leases" in rights.detail
    assert "create pods," not in rights.detail
    assert "kubectl apply" in rights.fix


def test_with_all_rights_the_engine_describes_itself(engine: KubernetesEngine) -> None:
    about = engine.describe()
    assert about.version == "v1.30.0"
    assert {each.name for each in about.findings} == {
        "rights",
        "network",
        "seccomp profile",
        "images",
    }
    assert all(each.ok for each in about.findings)


def test_credentials_that_are_refused_are_one_finding(
    server: FakeServer, engine: KubernetesEngine
) -> None:
    server.failures.append(("POST", "selfsubjectaccessreviews", 401, "Unauthorized"))
    [rights] = [
        each for each in findings(engine.api, engine.settings) if each.name == "rights"
    ]
    assert not rights.ok
    assert "credentials" in rights.fix


@pytest.mark.parametrize(
    "settings", [Settings(), Settings(images="r/", runtime_class="n", seccomp="s.json")]
)
def test_what_could_be_better_has_a_remedy_and_is_no_failure(
    engine: KubernetesEngine, settings: Settings
) -> None:
    found = [each for each in findings(engine.api, settings) if each.name != "rights"]
    assert all(each.ok for each in found)
    assert all(bool(each.fix) == (settings == Settings()) for each in found)
