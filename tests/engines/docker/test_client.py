"""Plain HTTP to an engine: every way in which an answer can be wrong is one clear error."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from belljar import engines
from belljar.engines import docker
from belljar.engines.docker import hosts
from belljar.engines.docker.client import Answered, Client
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.docker.hosts import Endpoint
from belljar.errors import EngineError, EngineRefused, EngineUnavailable, UsageError


def said(status: int, body: object) -> bytes:
    return f"HTTP/1.0 {status} X\r\n\r\n{json.dumps(body)}".encode()


@pytest.fixture
def odd_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[bytes]]]:
    """A socket that answers with the first of a list, and then hangs up."""
    monkeypatch.setenv("BELLJAR_PATIENCE", "0.05")
    answers: list[bytes] = []
    path = tmp_path / "odd.sock"
    over = threading.Event()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        listener.settimeout(0.1)

        def serve() -> None:
            while not over.is_set():
                try:
                    caller, _ = listener.accept()
                except TimeoutError:
                    continue
                with caller:
                    caller.recv(65536)
                    caller.sendall(answers[0])

        server = threading.Thread(target=serve)
        server.start()
        yield f"unix://{path}", answers
        over.set()
        server.join(5)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/1.0 500 no\r\n\r\n",
        b"HTTP/1.0 200 OK\r\nContent-Length: 99\r\n\r\n{}",
        b"HTTP/1.0 200 OK\r\n\r\nnot json",
        said(200, {}),
        said(200, []),
        said(200, {"ApiVersion": 1.41, "Os": "linux", "Arch": "amd64"}),
        said(200, {"ApiVersion": "1.24", "Os": "linux", "Arch": "amd64"}),
        said(200, {"ApiVersion": "1.41", "Os": "windows", "Arch": "amd64"}),
    ],
)
def test_what_is_no_usable_engine_is_one_clear_error(odd_engine: tuple[str, list[bytes]], answer: bytes) -> None:
    host, answers = odd_engine
    answers.append(answer)
    with pytest.raises(EngineError) as failed:
        DockerEngine(Endpoint(host))
    assert "\n" not in str(failed.value)


def test_the_engine_s_own_words_are_kept_but_not_the_profile_it_quotes(odd_engine: tuple[str, list[bytes]]) -> None:
    host, answers = odd_engine
    profile = json.dumps({"defaultAction": "x" * 5000})
    answers.append(said(500, {"message": f"opening seccomp={profile} failed:\n exec: permission denied"}))
    with pytest.raises(Answered, match=r"starting: opening seccomp=… failed: exec: permission denied") as failed:
        Client(Endpoint(host)).ask("starting", "POST", "/x")
    assert failed.value.status == 500


def test_a_socket_one_may_not_use_says_how_to_get_leave(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Client, "_connect", refuse)
    with pytest.raises(EngineUnavailable, match="usermod -aG docker"):
        DockerEngine(Endpoint("unix:///var/run/docker.sock"))


def test_an_engine_that_is_there_but_not_for_us_is_all_that_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(client: Client, *_: object) -> None:
        if client.endpoint.host == hosts.DEFAULT:
            raise PermissionError(13, "Permission denied")
        raise FileNotFoundError(2, "No such file or directory")

    def absent() -> None:
        raise EngineUnavailable("a page about control groups")

    for name in (engines.VARIABLE, "DOCKER_HOST", "DOCKER_CONTEXT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Client, "_connect", refuse)
    monkeypatch.setattr("belljar.engines.oci.find", absent)
    with pytest.raises(EngineRefused, match="Docker is there, but you may not use") as told:
        engines.connect()
    assert "control groups" not in str(told.value)
    assert "No such file" not in str(told.value)


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(EngineError, match="not the address"):
        DockerEngine(Endpoint("ssh://somebody@far"))


def test_the_engine_of_this_machine_is_found_without_docker_py(base_image: str) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from belljar import engines; e = engines.connect('docker'); e.list(); print(e.shares_files, "
        "'docker' in sys.modules, 'ssl' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["True", "False", "False"]


@pytest.mark.docker
def test_the_name_decides_which_engine_is_meant(monkeypatch: pytest.MonkeyPatch) -> None:
    assert docker.find().name == engines.connect().name == "docker"
    monkeypatch.setenv("DOCKER_HOST", "unix:///var/run/docker.sock")
    with pytest.raises(EngineUnavailable, match="is docker"):
        engines.connect("podman")
    with pytest.raises(UsageError, match="there is no engine"):
        engines.connect("dokcer")
