"""Which engine the environment and the Docker contexts select."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from belljar.engines.docker import hosts
from belljar.engines.docker.hosts import Endpoint, candidates
from belljar.errors import EngineError

USUAL = ("unix:///var/run/docker.sock",)


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (
        "DOCKER_HOST",
        "DOCKER_CONTEXT",
        "DOCKER_TLS_VERIFY",
        "DOCKER_CERT_PATH",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return tmp_path


def context(config: Path, name: str, host: str) -> Path:
    id = hashlib.sha256(name.encode()).hexdigest()
    meta = config / "contexts/meta" / id
    meta.mkdir(parents=True)
    (meta / "meta.json").write_text(
        json.dumps({"Name": name, "Endpoints": {"docker": {"Host": host}}})
    )
    return config / "contexts/tls" / id / "docker"


def test_where_docker_host_is_set_no_other_place_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2375")
    assert candidates(USUAL) == [Endpoint("tcp://127.0.0.1:2375", "", "DOCKER_HOST")]
    assert candidates(USUAL)[0].path is None


def test_certificates_are_found_by_docker_s_own_variables(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:2376")
    monkeypatch.setenv("DOCKER_TLS_VERIFY", "1")
    monkeypatch.setenv("DOCKER_CERT_PATH", "/certs")
    assert candidates(USUAL)[0].certificates == "/certs"


@pytest.mark.parametrize("settings", ["{}", '{"currentContext": "default"}', "{", "[]"])
def test_without_a_context_the_usual_places_are_tried(
    config: Path, settings: str
) -> None:
    (config / "config.json").write_text(settings)
    assert candidates(USUAL) == [Endpoint(USUAL[0])]
    assert candidates(USUAL)[0].path == "/var/run/docker.sock"


def test_docker_s_own_context_is_respected(config: Path) -> None:
    (config / "config.json").write_text('{"currentContext": "far"}')
    context(config, "far", "tcp://far.example:2376").mkdir(parents=True)
    [found] = candidates(USUAL)
    assert (found.host, found.named_by) == ("tcp://far.example:2376", "context far")
    assert found.certificates.endswith("/docker")


def test_a_context_that_is_missing_is_an_error_and_no_other_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DOCKER_CONTEXT", "gone")
    with pytest.raises(EngineError, match="context 'gone'"):
        candidates(USUAL)


@pytest.mark.root
def test_another_user_s_context_leads_root_to_no_engine(config: Path) -> None:
    """`sudo` may keep the caller's HOME."""
    (config / "config.json").write_text('{"currentContext": "near"}')
    context(config, "near", "unix:///home/other/engine.sock")
    os.chown(config / "contexts", 4711, 4711)
    with pytest.raises(EngineError, match=f"others own {config}/contexts"):
        candidates(USUAL)


@pytest.mark.root
def test_root_tries_no_socket_in_another_user_s_directory(tmp_path: Path) -> None:
    os.chown(tmp_path, 4711, 4711)
    assert candidates((*USUAL, f"unix://{tmp_path}/docker.sock")) == [
        Endpoint(USUAL[0])
    ]


def test_the_command_that_starts_podman_fits_the_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for systemd, uid, command in (
        (True, 0, "systemctl start podman.socket"),
        (True, 1000, "systemctl --user start podman.socket"),
        (False, 0, "podman system service --time=0 &"),
    ):
        monkeypatch.setattr(hosts.os.path, "isdir", lambda _, answer=systemd: answer)
        monkeypatch.setattr(hosts.os, "geteuid", lambda answer=uid: answer)
        assert hosts.podman_start() == command
