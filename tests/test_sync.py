"""The blocking facade has the same names and results."""

import inspect
import threading
from pathlib import Path
from typing import Any

import pytest

import belljar
from belljar import Result, sync
from belljar.errors import PolicyDenied, UsageError
from belljar.session import persistent_shell, watched_run
from belljar.session.result import Ended, Output, Started

INNER = {
    "Session": {
        "adopt", "aftermath", "alike", "allow", "audit", "before", "before_command", "busy", "close_door", "door",
        "end_persistent", "forget_if_unchanged", "has_persistent", "init_tools", "new_listening", "open_door",
        "remember_metadata", "remember_mount", "reopen_door", "resolve_cwd", "sandbox", "staged_area",
        "staged_upper", "copy_in", "copy_out", "copy_out_at_last",
        "stay", "take_over", "visits_since", "workspace_moved",
    },
    "Pool": {"claim"},
    "Shell": {"from_listed", "learn", "of", "take_over"},
    "PersistentShell": {"export", "resize", "use_terminal", "workspace_moved", "write"},
    "Run": {"follow", "over", "take"},
    "ToolRegistry": set(),
}  # fmt: skip
"""What is for the layers above, which have an event loop."""


def names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


KINDS = (
    belljar.Session, belljar.Pool, belljar.Shell, belljar.ToolRegistry, persistent_shell.PersistentShell,
    watched_run.Run,
)  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_there_with_a_signature_of_its_own(kind: type) -> None:
    facade = getattr(sync, kind.__name__)
    assert names(kind) - INNER[kind.__name__] <= names(facade)
    assert "__getattr__" not in vars(facade), "a name that is passed on is not typed"


def test_every_public_name_says_how_it_is_used() -> None:
    for module, public in ((belljar, belljar.__all__), (sync, sync.__all__)):
        for name in public:
            text = getattr(module, name).__doc__ or ""
            assert len(text) > 20, f"{module.__name__}.{name} has no docstring"


@pytest.mark.parametrize("kind", KINDS)
def test_every_public_method_shows_a_call_of_it(kind: type) -> None:
    for name in names(kind) - INNER[kind.__name__]:
        method = inspect.getattr_static(kind, name)
        if inspect.isfunction(getattr(method, "__func__", method)):
            blocking = getattr(getattr(sync, kind.__name__), name).__doc__ or ""
            for text in (getattr(kind, name).__doc__ or "", blocking):
                assert f"{name}(" in text, f"{kind.__name__}.{name} shows no example"
            assert "await " not in blocking


def test_a_throwaway(workspace: Path) -> None:
    assert sync.run("echo hi", workspace).stdout == "hi\n"


def test_a_session_with_streams_and_shells(workspace: Path) -> None:
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


def test_the_persistent_shell_the_pool_the_tools_and_attach(workspace: Path) -> None:
    with sync.Pool(workspace, size=1) as pool:
        pool.ready()
        with pool.session() as box:
            box.persistent.run("mkdir -p src; cd src; export A=1")
            assert box.persistent.run("echo $A $PWD").stdout == "1 /workspace/src\n"
            tools = sync.ToolRegistry(box)
            assert tools.call("Bash", {"command": "pwd"}).output == "/workspace/src\n"
            assert tools.call("BashOutput", {"bash_id": "nosuch"}).error == "Shell not found: nosuch"
    with sync.Session(workspace, keep=True) as kept:
        kept.start("sleep 600")
        with sync.attach(kept.id) as again:
            assert [shell.command for shell in again.shells()] == ["sleep 600"]
        kept.stop()


def test_callers_in_many_threads(workspace: Path) -> None:
    found: list[str] = []
    with sync.Session(workspace) as box:
        threads = [threading.Thread(target=lambda n=n: found.append(box.run(f"echo {n}").stdout)) for n in range(8)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
    assert sorted(found) == [f"{n}\n" for n in range(8)]


def test_a_callback_that_calls_back_is_told_so(workspace: Path) -> None:
    with sync.Session(workspace) as box:

        def again(_: Any) -> None:
            box.run("true")

        with pytest.raises(UsageError, match="own callbacks"):
            box.run("echo hi", on_output=again)
        assert box.run("echo on").stdout == "on\n"
