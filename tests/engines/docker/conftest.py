"""A socket that answers what a test wants, and a spec in Docker's format."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belljar.engines.docker.create_body import create_body
from belljar.engines.spec import SandboxSpec


@pytest.fixture
def config(spec: SandboxSpec) -> dict[str, Any]:
    found: dict[str, Any] = create_body(spec)["HostConfig"]
    return found


def said(status: int, body: object) -> bytes:
    return f"HTTP/1.0 {status} X\r\n\r\n{json.dumps(body)}".encode()


@pytest.fixture
def odd_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, list[bytes]]]:
    """A socket that answers each request with the first of a list, and hangs up."""
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
