"""The usual mistakes with an asynchronous API give an error that shows the right code."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.sync.test_facade import INNER, KINDS, names

import belljar
from belljar.errors import UsageError
from belljar.session.files import Files

WRITE = r"nothing has run yet: write `await box\.run\(\.\.\.\)`, or use belljar\.sync"
USES: dict[str, Callable[[Any], object]] = {
    "an attribute": lambda call: call.stdout,
    "a test": bool,
    "a loop": list,
    "an item": lambda call: call[0],
    "a with": lambda call: call.__enter__(),
}


@pytest.mark.parametrize("use", USES)
def test_a_result_used_without_await_says_what_to_write(workspace: Path, use: str) -> None:
    with pytest.raises(UsageError, match=WRITE):
        USES[use](belljar.Session(workspace).run("ls"))


def _forget(box: belljar.Session) -> None:
    box.run("ls")  # type: ignore[unused-coroutine]
    gc.collect()


def test_a_call_that_is_never_awaited_warns(workspace: Path) -> None:
    with pytest.warns(RuntimeWarning, match=WRITE) as told:
        _forget(belljar.Session(workspace))
    assert len(told) == 1, "once, and not by Python again"


def test_the_repr_of_an_unawaited_run_says_what_to_write(workspace: Path) -> None:
    call = belljar.run("ls", workspace)
    assert "write `await belljar.run(...)`" in repr(call)
    call.close()


@pytest.mark.parametrize("use", ["__enter__", "__iter__", "__aiter__", "__await__"])
def test_a_stream_or_pool_session_opened_wrongly_says_how(workspace: Path, use: str) -> None:
    for opening in (belljar.Session(workspace).stream("ls"), belljar.Pool(workspace).session()):
        with pytest.raises(UsageError, match=r"write `async with (box\.stream|pool\.session)\(\.\.\.\) as …:`"):
            getattr(opening, use)()


async def test_iterating_events_without_async_says_what_to_write(workspace: Path) -> None:
    async with belljar.Session(workspace) as box, box.stream("echo hi") as events:
        with pytest.raises(UsageError, match="write `async for`"):
            list(events)  # type: ignore[call-overload]
        assert [type(event).__name__ async for event in events] == ["Started", "Output", "Ended"]


@pytest.mark.parametrize("kind", [*KINDS, Files])
def test_every_public_coroutine_warns_when_it_is_not_awaited(kind: type) -> None:
    for name in names(kind) - INNER.get(kind.__name__, set()):
        method = getattr(kind, name)
        plain = inspect.unwrap(method) if callable(method) else method
        assert not inspect.iscoroutinefunction(plain) or hasattr(method, "__wrapped__"), f"{kind.__name__}.{name}"


async def test_a_public_call_can_be_awaited_gathered_and_made_a_task(workspace: Path) -> None:
    async with belljar.Session(workspace) as box:
        task = asyncio.create_task(box.run("echo a"))
        results = await asyncio.gather(task, box.run("echo b"), asyncio.wait_for(box.run("echo c"), 60))
        async with asyncio.TaskGroup() as tasks:
            made = tasks.create_task(box.files.exists("nosuch"))
    assert [result.stdout for result in results] == ["a\n", "b\n", "c\n"]
    assert made.result() is False
    assert "Session.run" in repr(task)


CALLS: dict[str, Callable[[belljar.Session], Any]] = {
    "run": lambda box: box.run("ls"),
    "start": lambda box: box.start("ls"),
    "admit": lambda box: box.admit("ls"),
    "persistent": lambda box: box.persistent.run("ls"),
    "files": lambda box: box.files.read("x"),
    "upload": lambda box: box.files.upload(__file__, "x"),
    "changes": lambda box: box.changes(),
    "diff": lambda box: box.diff(),
    "apply": lambda box: box.apply(),
    "discard": lambda box: box.discard(),
    "checkpoint": lambda box: box.checkpoint(),
    "forward": lambda box: box.forward(8000),
    "listening": lambda box: box.listening(),
    "refresh": lambda box: box.refresh(),
    "allow_host": lambda box: box.allow_host("a.example"),
    "stream": lambda box: box.stream("ls").__aenter__(),
}


AT_THE_HOST = {"admit", "changes", "diff", "apply", "discard", "checkpoint"}
"""These work on the host's files alone, so any event loop may call them."""


@pytest.mark.parametrize("call", CALLS)
async def test_a_session_that_is_not_open_says_how_to_open_it(workspace: Path, call: str) -> None:
    with pytest.raises(UsageError, match=r"inside `async with belljar\.Session"):
        await CALLS[call](belljar.Session(workspace, changes="staged"))


async def test_a_session_of_another_event_loop_says_so(workspace: Path) -> None:
    async with belljar.Session(workspace, changes="staged") as box:
        said: dict[str, str] = {}

        async def use(name: str) -> None:
            try:
                await asyncio.wait_for(CALLS[name](box), 20)
            except Exception as error:
                said[name] = f"{type(error).__name__}: {error}"

        def elsewhere() -> None:
            for name in CALLS.keys() - AT_THE_HOST:
                asyncio.run(use(name))

        thread = threading.Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert (await box.run("echo on")).stdout == "on\n"
    assert {name for name, words in said.items() if "another event loop" in words} == CALLS.keys() - AT_THE_HOST, said
