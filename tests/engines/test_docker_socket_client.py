"""The fast lane to a local engine, and that it gives way to the full client."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import engines
from belljar.engines.docker.full_client import DockerEngine
from belljar.engines.docker.socket_client import LocalDocker, socket_path
from belljar.errors import EngineError


@pytest.fixture(scope="module")
def local() -> LocalDocker:
    found = LocalDocker.find()
    assert found is not None
    return found


def test_both_lanes_say_the_same(local: LocalDocker, engine: DockerEngine, base_image: str) -> None:
    assert local.image_facts(base_image) == engine.image_facts(base_image)
    assert local.machine == engine.machine
    assert local.shares_files == engine.shares_files


def test_what_is_missing_is_asked_of_the_full_client(local: LocalDocker) -> None:
    assert local.image_facts("nobody/has:this") is None
    assert local.state("nobody") is None
    local.destroy("nobody")
    with pytest.raises(EngineError):
        local.start("nobody")
    assert local.info()["Driver"]


def test_it_is_what_connect_gives_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engines, "_engine", None)
    assert isinstance(engines.connect(), LocalDocker)


@pytest.mark.parametrize(
    "elsewhere",
    [{"DOCKER_HOST": "tcp://127.0.0.1:2375"}, {"DOCKER_CONTEXT": "remote"}, {"BELLJAR_LINK": "bridge"}],
)
def test_an_engine_elsewhere_is_not_for_the_fast_lane(
    elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in elsewhere.items():
        monkeypatch.setenv(name, value)
    assert socket_path() is None
    assert LocalDocker.find() is None


@pytest.mark.parametrize(
    ("settings", "usable"),
    [("{}", True), ('{"currentContext": "default"}', True), ('{"currentContext": "remote"}', False), ("{", False)],
)
def test_docker_s_own_context_is_respected(
    settings: str, usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    (tmp_path / "config.json").write_text(settings)
    assert (socket_path() is not None) is usable


@pytest.fixture
def odd_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """A socket that answers with whatever is in the list."""
    answers: list[bytes] = []
    path = tmp_path / "odd.sock"
    monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            while answers:
                caller, _ = listener.accept()
                with caller:
                    caller.recv(65536)
                    caller.sendall(answers.pop(0))

        server = threading.Thread(target=serve)
        answers.append(b"")
        server.start()
        yield answers
        server.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.0 500 no\r\n\r\n",
        b"HTTP/1.0 200 OK\r\n\r\nnot json",
        b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"ApiVersion": "1.24", "Os": "linux", "Arch": "amd64"}).encode(),
        b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"ApiVersion": "1.41", "Os": "windows", "Arch": "amd64"}).encode(),
        b"HTTP/1.0 200 OK\r\n\r\n{}",
    ],
)
def test_an_odd_answer_is_left_to_the_full_client(odd_engine: list[bytes], answer: bytes) -> None:
    odd_engine[:] = [answer]
    assert LocalDocker.find() is None
