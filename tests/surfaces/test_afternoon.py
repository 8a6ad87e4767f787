"""A user's afternoon: clone, edit, test, serve, look in, copy out, apply. By hand, and by an agent over MCP."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.surfaces.invoking import Answer, belljar, start
from tests.surfaces.mcp_client import client, text

SUMS = "def add(a, b):\n    return a - b\n"
TESTS = """\
import unittest, sums
class Adding(unittest.TestCase):
    def test_it(self):
        self.assertEqual(sums.add(1, 2), 3)
"""
RUN_TESTS = "python3 -B -m unittest discover -q -s app"  # -B: else Python's cache hides a quick edit of equal length


@pytest.fixture
def origin(tmp_path: Path) -> Path:
    """A repository with a bug."""
    path = tmp_path / "origin"
    path.mkdir()
    (path / "sums.py").write_text(SUMS)
    (path / "test_sums.py").write_text(TESTS)
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    for words in (
        ("init", "-q", "-b", "main"),
        ("add", "."),
        (*identity, "commit", "-qm", "begin"),
    ):
        subprocess.run(["git", *words], cwd=path, check=True)
    return path


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def session(workspace: Path, origin: Path, base_image: str) -> Iterator[str]:
    options = (
        "--workspace",
        workspace,
        "--staged",
        "--mount",
        f"{origin}:/origin",
        "--lease",
        "300",
    )
    id = _good(belljar("session", "start", *options)).stdout.strip()
    yield id
    belljar("session", "stop", id)


def _good(answer: Answer) -> Answer:
    assert answer.status == 0, answer
    return answer


def _call(session: str, tool: str, **params: str) -> str:
    return _good(belljar("call", "--session", session, tool, json.dumps(params))).stdout


def test_an_afternoon_of_work_succeeds_on_the_command_line(
    session: str, workspace: Path, tmp_path: Path
) -> None:
    _good(belljar("run", "--session", session, "git clone -q /origin app"))
    assert belljar("run", "--session", session, RUN_TESTS).status == 1

    assert "a - b" in _call(session, "read_file", path="app/sums.py")
    _call(session, "edit_file", path="app/sums.py", old="a - b", new="a + b")
    _good(belljar("run", "--session", session, RUN_TESTS))

    serve = "cd app && python3 -u -m http.server 8000"
    shell = _good(belljar("start", "--session", session, serve)).stdout.strip()
    found = belljar(
        "run",
        "--session",
        session,
        "until : < /dev/tcp/127.0.0.1/8000; do sleep 0.1; done 2>/dev/null",
    )
    _good(found)
    with start("forward", "--json", session, "8000") as forward:
        assert forward.stdout is not None
        url = json.loads(forward.stdout.readline())["url"]
        with urlopen(f"{url}/sums.py", timeout=30) as page:
            assert page.read().decode() == SUMS.replace("-", "+")
        forward.send_signal(signal.SIGINT)
    assert (
        "GET /sums.py" in belljar("logs", shell).stderr + belljar("logs", shell).stdout
    )
    _good(belljar("kill", shell))

    _good(belljar("cp", f"{session}:app/sums.py", tmp_path / "sums.py"))
    assert (tmp_path / "sums.py").read_text() == SUMS.replace("-", "+")

    assert not (workspace / "app").exists(), (
        "nothing reaches the host before it is applied"
    )
    _good(belljar("apply", "--session", session, "app/sums.py"))
    assert (workspace / "app/sums.py").read_text() == SUMS.replace("-", "+")


async def test_an_afternoon_of_work_succeeds_over_mcp(
    workspace: Path, origin: Path, base_image: str
) -> None:
    async with client(
        workspace, "--tools", "bash,files", "--mount", f"{origin}:/origin"
    ) as mcp:

        async def bash(command: str) -> tuple[bool, str]:
            answer = await mcp.call_tool("Bash", {"command": command})
            return not answer.is_error, text(answer)

        assert (await bash("git clone -q /origin app"))[0]
        assert "FAILED" in (await bash(RUN_TESTS))[1]
        edit = {"path": "app/sums.py", "old": "a - b", "new": "a + b"}
        assert not (await mcp.call_tool("edit_file", edit)).is_error
        passed, said = await bash(RUN_TESTS)
        assert passed, said
        found = await mcp.call_tool(
            "search_files", {"pattern": "a \\+ b", "path": "app"}
        )
        assert "sums.py" in text(found)
    assert (workspace / "app/sums.py").read_text() == SUMS.replace("-", "+")
