"""Finds code of Belljar that blocks the event loop.

Calls that may wait without a bound are wrapped: sleep, sockets in blocking mode, waiting for a process or a thread.
They raise if Belljar's own code makes them on a running loop. Local files and short locks are not wrapped: reading a
directory or writing a line costs less than the switch to a thread.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
import queue
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import belljar

PACKAGE = str(Path(belljar.__file__).parent)
LOOP = asyncio.base_events.__file__


class BlockingCall(AssertionError):
    pass


def _always(*_: Any, **__: Any) -> bool:
    return True


def _blocking_mode(sock: socket.socket, *_: Any, **__: Any) -> bool:
    return sock.gettimeout() != 0


def _unfinished(waited: Any, *_: Any, **__: Any) -> bool:
    return not waited.done()


def _alive(waited: Any, *_: Any, **__: Any) -> bool:
    return bool(waited.is_alive())


def _may_wait(_: Any, block: bool = True, *__: Any, **___: Any) -> bool:
    return block


def _still_runs(waited: Any, *_: Any, **__: Any) -> bool:
    return waited.poll() is None


# Owner, name, and whether a call with these arguments can wait.
CALLS: list[tuple[Any, str, Callable[..., bool]]] = [
    (time, "sleep", _always),
    *[
        (socket.socket, name, _blocking_mode)
        for name in (
            "accept",
            "connect",
            "recv",
            "recv_into",
            "recvfrom",
            "recvmsg",
            "send",
            "sendall",
            "sendmsg",
        )
    ],
    *[
        (ssl.SSLSocket, name, _blocking_mode)
        for name in ("connect", "read", "recv", "send", "sendall", "write")
    ],
    (socket, "create_connection", _always),
    (socket, "getaddrinfo", _always),
    (subprocess.Popen, "wait", _still_runs),
    (subprocess.Popen, "communicate", _still_runs),
    (concurrent.futures.Future, "result", _unfinished),
    (threading.Thread, "join", _alive),
    (queue.Queue, "get", _may_wait),
]


@contextmanager
def refused() -> Iterator[None]:
    originals = [
        (owner, name, owner.__dict__.get(name), getattr(owner, name))
        for owner, name, _ in CALLS
    ]
    for (owner, name, waits), (_, _, _, original) in zip(CALLS, originals, strict=True):
        setattr(owner, name, _guarded(original, name, waits))
    try:
        yield
    finally:
        for owner, name, own, _ in originals:
            if own is None:  # it was inherited
                delattr(owner, name)
            else:
                setattr(owner, name, own)


def _guarded(
    original: Callable[..., Any], name: str, waits: Callable[..., bool]
) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if (
            asyncio._get_running_loop() is not None
            and waits(*args, **kwargs)
            and (place := _belljar_line())
        ):
            raise BlockingCall(f"{name} on the event loop, from {place}")
        return original(*args, **kwargs)

    return call


def _belljar_line() -> str | None:
    """The line of Belljar's code that runs in this turn of the loop, or None."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != LOOP:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None
