"""Notices code of Belljar that makes the event loop wait.

Calls that may take as long as somebody else likes are wrapped: sleeping, sockets in blocking mode, waiting for another
process or thread. Made on a running loop from Belljar's own code they raise. Local files and short locks are not among
them: a look at a directory or a line for the audit trail costs less than the hop to a thread.
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


# Where, what, and when a call of it can wait.
CALLS: list[tuple[Any, str, Callable[..., bool]]] = [
    (time, "sleep", _always),
    *[
        (socket.socket, name, _blocking_mode)
        for name in ("accept", "connect", "recv", "recv_into", "recvfrom", "recvmsg", "send", "sendall", "sendmsg")
    ],
    *[(ssl.SSLSocket, name, _blocking_mode) for name in ("connect", "read", "recv", "send", "sendall", "write")],
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
    originals = [(owner, name, owner.__dict__.get(name), getattr(owner, name)) for owner, name, _ in CALLS]
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


def _guarded(original: Callable[..., Any], name: str, waits: Callable[..., bool]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        if asyncio._get_running_loop() is not None and waits(*args, **kwargs) and (place := _belljar_line()):
            raise BlockingCall(f"{name} on the event loop, from {place}")
        return original(*args, **kwargs)

    return call


def _belljar_line() -> str | None:
    """Where Belljar's code is in this turn of the loop, if it is at all."""
    frame = sys._getframe(2)
    while frame is not None and frame.f_code.co_filename != LOOP:
        if frame.f_code.co_filename.startswith(PACKAGE):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return None
