"""Which engine is chosen, and the error if there is none."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from belljar import engines
from belljar.engines import docker
from belljar.engines.docker import hosts
from belljar.engines.docker.client import Client
from belljar.engines.podman.dialect import PodmanDialect
from belljar.errors import EngineRefused, EngineUnavailable, UsageError
from belljar.host import EngineName


def test_the_error_gives_its_advice_once_for_all_places_tried(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises(EngineUnavailable) as none:
        docker.first_that_answers(
            (f"unix://{tmp_path}/a.sock", f"unix://{tmp_path}/b.sock"), PodmanDialect()
        )
    assert "is it running" not in str(none.value)
    assert "Start one" in str(none.value)


@pytest.mark.parametrize("uid", [0, 1000])
def test_where_an_engine_is_forbidden_the_error_names_two_ways_and_no_reasons(
    uid: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(client: Client, *_: object) -> None:
        if client.endpoint.host == hosts.DEFAULT:
            raise PermissionError(13, "Permission denied")
        raise FileNotFoundError(2, "No such file or directory")

    def absent(runtime: str, state: object = None) -> None:
        raise EngineUnavailable("a page about control groups")

    for name in (engines.VARIABLE, "DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Client, "_connect", refuse)
    monkeypatch.setattr("belljar.engines.oci.find", absent)
    monkeypatch.setattr(engines.os, "geteuid", lambda: uid)
    with pytest.raises(EngineRefused) as told:
        engines.connect()
    assert ("setup-user" in str(told.value)) is bool(uid)
    assert "usermod -aG docker" in str(told.value)
    assert len(str(told.value)) < 350
    assert "control groups" not in str(told.value)
    assert "No such file" not in str(told.value)
    assert any("control groups" in each for each in told.value.others), "for the doctor"
    assert any(hosts.podman_start() in each for each in told.value.others)


def test_every_engine_name_has_its_module() -> None:
    assert get_args(EngineName) == ("auto", *engines.KNOWN)


@pytest.mark.docker
def test_the_name_decides_which_engine_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert docker.find().name == engines.connect().name == "docker"
    monkeypatch.setenv("DOCKER_HOST", "unix:///var/run/docker.sock")
    with pytest.raises(EngineUnavailable, match="is docker"):
        engines.connect("podman")
    with pytest.raises(UsageError, match="there is no engine"):
        engines.connect("dokcer")
