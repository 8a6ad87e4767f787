"""The doctor's checks of an engine, and the remedy for each failure."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from belljar.doctor import Check, engine_items
from belljar.doctor.engine_items import judge, remedy, unavailable
from belljar.engines.base import Description
from belljar.engines.capabilities import Capabilities
from belljar.engines.spec import OWN_NAMESPACES
from belljar.errors import EngineError, EngineRefused, EngineUnavailable

FINE = Description(
    version="20.10",
    cgroup_version="2",
    cgroup_driver="systemd",
    can_limit={"memory": True, "pids": True, "cpus": True, "swap": True},
    seccomp=True,
    access_control="apparmor",
    storage="overlay2",
)


def failing(checks: list[Check]) -> set[str]:
    return {check.name for check in checks if not check.ok}


def without(limit: str) -> dict[str, Any]:
    return {"can_limit": {**FINE.can_limit, limit: False}}


def test_a_capable_engine_passes_without_a_warning() -> None:
    checks = judge(FINE, host_has_swap=True, can=Capabilities())
    assert failing(checks) == set()
    assert not any(check.fix for check in checks)
    assert "apparmor" in next(
        check.detail for check in checks if check.name == "apparmor or selinux"
    )


@pytest.mark.parametrize(
    ("shares", "root", "how"),
    [
        (True, True, "overlay that Belljar mounts"),
        (True, False, "engine mounts"),
        (False, True, "copied"),
    ],
)
def test_the_way_workspaces_are_staged_is_reported(
    shares: bool, root: bool, how: str
) -> None:
    engine: Any = SimpleNamespace(capabilities=Capabilities(overlays=shares))
    assert how in engine_items._staged(engine, root=root).detail


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (without("memory"), "memory limit"),
        (without("pids"), "process limit"),
        (without("cpus"), "cpu limit"),
        (without("swap"), "swap limit"),
        ({"cgroup_driver": "none"}, "cgroups"),
        ({"seccomp": False}, "seccomp"),
        ({"user_remapping": True}, "users"),
        ({"storage": "vfs"}, "storage"),
    ],
)
def test_a_capability_that_the_engine_lacks_is_named_with_its_remedy(
    change: dict[str, Any], named: str
) -> None:
    checks = judge(replace(FINE, **change), host_has_swap=True, can=Capabilities())
    assert failing(checks) == {named}
    assert all(check.fix for check in checks if not check.ok)


def test_swap_that_cannot_be_limited_matters_only_where_there_is_swap() -> None:
    assert (
        failing(
            judge(
                replace(FINE, **without("swap")),
                host_has_swap=False,
                can=Capabilities(),
            )
        )
        == set()
    )


@pytest.mark.parametrize(("version", "told"), [("2", "Delegate="), ("1", "cgroup v2")])
def test_a_rootless_engine_without_limits_gets_a_remedy(
    version: str, told: str
) -> None:
    checks = judge(
        replace(FINE, rootless=True, cgroup_version=version, **without("cpus")),
        host_has_swap=True,
        can=Capabilities(),
    )
    assert told in next(check.fix for check in checks if check.name == "cpu limit")


def test_a_rootless_engine_passes() -> None:
    assert (
        failing(
            judge(replace(FINE, rootless=True), host_has_swap=True, can=Capabilities())
        )
        == set()
    )


def test_selinux_is_mentioned_with_its_setting() -> None:
    checks = judge(
        replace(FINE, access_control="selinux"), host_has_swap=True, can=Capabilities()
    )
    assert "BELLJAR_SELINUX" in next(
        check.fix for check in checks if check.name == "apparmor or selinux"
    )


def test_a_sandbox_without_apparmor_is_mentioned_though_the_engine_has_it() -> None:
    check = next(
        each
        for each in judge(
            replace(FINE, access_control_gap="crun"), True, Capabilities()
        )
        if "apparmor" in each.name
    )
    assert check.ok
    assert "unconfined: crun" in check.detail
    assert "Docker" in check.fix


def test_a_namespace_that_an_engine_shares_is_mentioned() -> None:
    engine: Any = SimpleNamespace(
        name="podman",
        capabilities=Capabilities(own_namespaces=OWN_NAMESPACES - {"cgroup"}),
    )
    check = engine_items._namespaces(engine)
    assert check.ok
    assert "cgroup" in check.detail
    assert check.fix


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (
            "connecting to unix:///x: you may not use unix:///x; add yourself …",
            "usermod -aG docker",
        ),
        ("unix:///x speaks API 1.40; Belljar needs 1.41", "update the engine"),
        (
            "connecting: the engine at unix:///x did not answer in time",
            "BELLJAR_PATIENCE",
        ),
        ("Docker's context 'gone' cannot be read", "docker context use default"),
        ("the certificates in /c cannot be used", "DOCKER_CERT_PATH"),
        ("starting the sandbox: write: no space left on device", "make room"),
        ('starting: exec: "/.belljar-1/init": permission denied', "BELLJAR_RUN"),
        ("not in force: swap", "which limits"),
        (
            "starting: crun: cgroups in hybrid mode not supported, drop all controllers from cgroupv2",
            'runtime="runc"',
        ),
        ("creating the sandbox: Unknown runtime specified crun", "daemon.json"),
        (
            "workspace: something else than /w was mounted; the path was changed meanwhile",
            "PrivateMounts",
        ),
        (
            "creating: Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs available",
            "no more than that",
        ),
        ("something new", "fix what the message names"),
    ],
)
def test_each_failure_has_its_remedy(said: str, told: str) -> None:
    assert told in remedy(EngineError(said))


def test_a_missing_engine_is_to_be_installed_and_a_forbidden_one_gets_a_group() -> None:
    gone = EngineUnavailable(
        "connecting to unix:///x: the engine at unix:///x cannot be reached (no such file); …"
    )
    assert "install" in unavailable(gone)[0].fix
    assert "Podman" in unavailable(gone)[0].fix
    assert "Docker 20" not in unavailable(gone, "podman")[0].fix
    forbidden = EngineUnavailable(
        "connecting to unix:///x: you may not use unix:///x; add yourself to its group"
    )
    assert "usermod" in unavailable(forbidden)[0].fix


def test_a_refused_engine_is_listed_with_the_other_engines() -> None:
    refused = EngineRefused(
        "Docker is there, but you may not use it; `belljar doctor` shows what else there is"
    )
    refused.others = (
        "the engine oci needs runc, which is not installed: apt-get install runc",
    )
    found = unavailable(refused)
    assert found[0].detail == "Docker is there, but you may not use it"
    assert "the engine oci needs runc" in found[1].detail


def test_the_setting_that_chose_the_engine_stays_in_the_message() -> None:
    gone = EngineUnavailable(
        "the engine at x cannot be reached; is it running? `belljar doctor` finds out (DOCKER_HOST names it)"
    )
    assert (
        unavailable(gone)[0].detail
        == "the engine at x cannot be reached (DOCKER_HOST names it)"
    )
