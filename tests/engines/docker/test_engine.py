"""Docker as an engine: found, understood, or refused in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.docker.conftest import said

from belljar.engines.docker.client import Client
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.docker.hosts import Endpoint
from belljar.errors import EngineError, EngineUnavailable


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
def test_an_unusable_answer_of_an_engine_is_one_clear_error(
    odd_engine: tuple[str, list[bytes]], answer: bytes
) -> None:
    host, answers = odd_engine
    answers.append(answer)
    with pytest.raises(EngineError) as failed:
        DockerEngine(Endpoint(host))
    assert "\n" not in str(failed.value)


def test_a_forbidden_socket_says_which_group_to_join(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Client, "_connect", refuse)
    with pytest.raises(EngineUnavailable, match="usermod -aG docker"):
        DockerEngine(Endpoint("unix:///var/run/docker.sock"))


def test_an_address_of_another_kind_is_refused() -> None:
    with pytest.raises(EngineError, match="not the address"):
        DockerEngine(Endpoint("ssh://somebody@far"))


@pytest.mark.docker
def test_the_engine_of_this_machine_is_found_without_docker_py(base_image: str) -> None:
    import subprocess
    import sys

    program = (
        "import sys; from belljar import engines; e = engines.connect('docker'); e.list(); print(e.capabilities.link, "
        "'docker' in sys.modules, 'ssl' in sys.modules)"
    )
    found = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert found.stdout.split() == ["socket", "False", "False"]
