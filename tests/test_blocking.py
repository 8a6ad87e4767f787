"""Tests of the detector of blocking calls. What it misses here would be noticed nowhere."""

from __future__ import annotations

import asyncio
import queue
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from tests import blocking

pytestmark = pytest.mark.anyio


def in_belljar(call: Callable[[], Any]) -> Callable[[], Any]:
    """Make the call from code that seems to be in one of Belljar's files."""
    code = compile(
        "def made(call):\n    return call()\n", f"{blocking.PACKAGE}/made_up.py", "exec"
    )
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    return lambda: namespace["made"](call)


def _receive() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.recv(1)


@pytest.mark.parametrize(
    "call",
    [lambda: time.sleep(0.001), _receive, lambda: queue.Queue().get(timeout=0.001)],
    ids=["sleep", "recv", "get"],
)
async def test_a_blocking_call_is_refused_on_the_event_loop(
    call: Callable[[], Any],
) -> None:
    with pytest.raises(blocking.BlockingCall, match=r"made_up\.py:2"):
        in_belljar(call)()


async def test_a_blocking_call_is_allowed_in_a_thread() -> None:
    await asyncio.to_thread(in_belljar(lambda: time.sleep(0.001)))


async def test_a_non_blocking_socket_is_allowed() -> None:
    def receive() -> None:
        left, right = socket.socketpair()
        with left, right:
            left.setblocking(False)
            with pytest.raises(BlockingIOError):
                left.recv(1)

    in_belljar(receive)()


async def test_a_blocking_call_outside_belljar_is_allowed() -> None:
    time.sleep(0.001)  # noqa: ASYNC251


def test_the_guard_restores_every_call() -> None:
    assert "recv" not in socket.socket.__dict__
    assert time.sleep.__module__ == "time"
