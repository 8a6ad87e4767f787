"""The usual mistakes with an asynchronous API are noticed, by us or by Python."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

import belljar
from belljar.errors import UsageError
from belljar.session.files import Files


@pytest.mark.parametrize(
    "function",
    [
        belljar.run,
        belljar.Session.run,
        belljar.Session.attach,
        belljar.Shell.read,
        belljar.Pool.ready,
        Files.read,
    ],
    ids=lambda function: function.__qualname__,
)
def test_what_is_async_looks_async(function: Callable[..., object]) -> None:
    """Frameworks such as Starlette call a function in a thread unless it is a coroutine function."""
    assert inspect.iscoroutinefunction(function)


def test_a_call_that_is_never_awaited_warns(workspace: Path) -> None:
    with pytest.warns(
        RuntimeWarning, match=r"coroutine 'Session\.run' was never awaited"
    ):
        _forget(belljar.Session(workspace))


def _forget(box: belljar.Session) -> None:
    box.run("ls")  # type: ignore[unused-coroutine]
    gc.collect()


def test_a_stream_or_pool_session_is_opened_with_async_with(workspace: Path) -> None:
    for opening in (
        belljar.Session(workspace).stream("ls"),
        belljar.Pool(workspace).session(),
    ):
        assert isinstance(opening, AbstractAsyncContextManager)
        assert not isinstance(opening, AbstractContextManager)


async def test_iterating_events_without_async_says_what_to_write(
    workspace: Path,
) -> None:
    async with belljar.Session(workspace) as box, box.stream("echo hi") as events:
        with pytest.raises(UsageError, match="write `async for`"):
            list(events)  # type: ignore[call-overload]
        assert [type(event).__name__ async for event in events] == [
            "Started",
            "Output",
            "Ended",
        ]


async def test_a_public_call_can_be_awaited_gathered_and_made_a_task(
    workspace: Path,
) -> None:
    async with belljar.Session(workspace) as box:
        task = asyncio.create_task(box.run("echo a"))
        results = await asyncio.gather(
            task, box.run("echo b"), asyncio.wait_for(box.run("echo c"), 60)
        )
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
async def test_a_session_that_is_not_open_says_how_to_open_it(
    workspace: Path, call: str
) -> None:
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
    assert {
        name for name, words in said.items() if "another event loop" in words
    } == CALLS.keys() - AT_THE_HOST, said
