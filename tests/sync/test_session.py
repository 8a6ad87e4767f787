"""A blocking session: commands, streams, shells and pools, from any thread."""

import threading
from pathlib import Path

import pytest

from belljar import Result, sync
from belljar.errors import PolicyDenied, UsageError
from belljar.session.result import Ended, Output, Started


def test_a_blocking_run_returns_the_result(workspace: Path) -> None:
    assert sync.run("echo hi", workspace).stdout == "hi\n"


def test_a_blocking_session_has_streams_and_shells(workspace: Path) -> None:
    with sync.Session(workspace) as box:
        assert box.run("cd / && pwd").stdout == "/\n"
        with box.stream("echo one; sleep 0.1; echo two >&2") as events:
            kinds = [type(event) for event in events]
        assert kinds[0] is Started
        assert kinds[-1] is Ended
        assert kinds.count(Output) == 2
        assert events.result is not None
        shell = box.start("echo up; sleep 600")
        assert [each.id for each in box.shells()] == [shell.id]
        while not (chunk := shell.read(wait=1)).stdout:
            pass
        assert chunk.stdout == "up\n"
        shell.kill()
        assert shell.status == "killed"
        assert isinstance(shell.wait(), Result)
        with pytest.raises(PolicyDenied):
            box.run("rm -rf /")


def test_a_blocking_session_can_be_paused(workspace: Path) -> None:
    with sync.Session(workspace) as box:
        box.pause()
        assert box.is_paused
        with pytest.raises(UsageError, match="is paused"):
            box.run("true")
        box.resume()
        assert box.run("echo on").stdout == "on\n"


def test_a_blocking_session_can_be_used_from_many_threads(workspace: Path) -> None:
    found: list[str] = []
    with sync.Session(workspace) as box:
        threads = [
            threading.Thread(
                target=lambda n=n: found.append(box.run(f"echo {n}").stdout)
            )
            for n in range(8)
        ]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(found) == [f"{n}\n" for n in range(8)]
