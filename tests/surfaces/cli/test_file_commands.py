"""Copying files into a session and out of it."""

from __future__ import annotations

import signal
import socket
import time
import urllib.request
from pathlib import Path

import pytest
from tests.surfaces.cli.test_session_commands import session as session
from tests.surfaces.invoking import belljar, start
from tests.surfaces.real_terminal import Terminal


def test_files_go_into_a_session_and_out_of_it(workspace: Path, tmp_path: Path) -> None:
    session = belljar("session", "start", "--workspace", str(workspace)).stdout.strip()
    try:
        (tmp_path / "tree" / "deep").mkdir(parents=True)
        (tmp_path / "tree" / "deep" / "f").write_text("carried")
        assert belljar("cp", str(tmp_path / "tree"), f"{session}:/tmp/tree").status == 0
        assert belljar("cp", f"{session}:/tmp/tree/deep/f", "-").stdout == "carried"
        assert belljar("cp", f"{session}:/tmp/tree", str(tmp_path / "back")).status == 0
        assert (tmp_path / "back" / "deep" / "f").read_text() == "carried"
        assert belljar("cp", "a", "b").status == 2
        assert belljar("cp", f"{session}:/etc/passwd", str(tmp_path / "x")).status == 0
        assert "/home/sandbox" in (tmp_path / "x").read_text(), "the sandbox's own"
    finally:
        belljar("session", "stop", session)


def test_a_printed_file_holds_no_terminal_controls(session: str) -> None:
    assert (
        belljar(
            "run",
            "--session",
            session,
            r"printf 'a\033]52;c;aGk=\007\033[2Jb' > /tmp/odd",
        ).status
        == 0
    )
    assert (
        belljar("cp", f"{session}:/tmp/odd", "-").stdout
        == "a\x1b]52;c;aGk=\x07\x1b[2Jb"
    )
    assert (
        "a^[]52;c;aGk=^G^[[2Jb"
        in Terminal.belljar("cp", f"{session}:/tmp/odd", "-").rest()
    )


def test_a_forward_ends_with_its_session_and_says_if_no_server_listens_yet(
    workspace: Path,
) -> None:
    session = belljar("session", "start", "--workspace", str(workspace)).stdout.strip()
    with start("forward", session, "8000") as forward:
        assert forward.stdout is not None
        assert forward.stderr is not None
        port = int(forward.stdout.readline().decode().rpartition(":")[2])
        assert belljar("session", "stop", session).status == 0
        assert forward.wait() == 125
        said = forward.stderr.read().decode()
        assert f"nothing listens on port 8000 in {session} yet" in said
        assert f"session {session} ended" in said
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


SERVER = "import http.server as h; h.HTTPServer(('127.0.0.1', 8000), h.SimpleHTTPRequestHandler).serve_forever()"


@pytest.mark.parametrize(
    "ways",
    [["ID", "HERE:8000"], ["--session", "ID", "8000"], ["--at", "HERE", "ID", "8000"]],
)
def test_a_port_is_forwarded_in_every_notation(session: str, ways: list[str]) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        here = free.getsockname()[1]
    words = [word.replace("ID", session).replace("HERE", str(here)) for word in ways]
    server = belljar(
        "start", "--session", session, "--", "python3", "-c", SERVER
    ).stdout.strip()
    with start("forward", *words) as forward:
        assert forward.stdout is not None
        url = forward.stdout.readline().decode().strip()
        assert url.endswith(f":{here}") or "8000" in words
        assert _answer(url).startswith("<!DOCTYPE")
        forward.send_signal(signal.SIGINT)
        assert forward.wait() == 0
    belljar("kill", server)


def _answer(url: str) -> str:
    """The answer of the server inside, once it listens."""
    while True:
        try:
            with urllib.request.urlopen(url, timeout=30) as answer:
                return str(answer.read().decode())
        except OSError:
            time.sleep(0.05)


@pytest.mark.parametrize(
    "words",
    [[], ["ID"], ["ID", "http"], ["0.0.0.0:1:2"], ["ID", ":80"], ["A", "B", "80"]],
)
def test_an_invalid_port_is_answered_with_the_right_notation(words: list[str]) -> None:
    refused = belljar("forward", *words)
    assert refused.status == 2
    assert "write `belljar forward ID PORT`, or HERE:PORT" in refused.complaint
