"""Ends the command line cleanly on SIGTERM and SIGHUP.

A signal raises SystemExit, so that every `finally` runs and what was started is ended too. But a handler that raises
anywhere may leave a lock held that the cleanup needs. So `SignalGate` has two states:

    CLOSED   a signal is noted and `on_signal` is called; the next wait raises
    OPEN     inside `with gate:`, around a single wait that holds no lock (a read, a write): a signal raises at once

Ctrl+C (with `interrupts`) is never noted, only passed to `on_signal`.

Python runs handlers between bytecodes, so a signal just before a wait would be handled after it. A timer breaks every
wait into short ones.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LONGEST_WAIT = 0.5


class SignalGate:
    def __init__(
        self,
        on_signal: Callable[[int], None] = lambda number: None,
        *,
        interrupts: bool = False,
    ) -> None:
        self.number: int | None = None
        """The number of the signal that asked us to end."""
        self._on_signal, self._open = on_signal, False
        for number in (
            signal.SIGTERM,
            signal.SIGHUP,
            *([signal.SIGINT] if interrupts else []),
        ):
            signal.signal(number, self._signalled)
        signal.signal(signal.SIGALRM, lambda *_: None)

    def __enter__(self) -> None:
        self._open = True
        self.check()
        signal.setitimer(signal.ITIMER_REAL, LONGEST_WAIT, LONGEST_WAIT)

    def __exit__(self, *_: object) -> None:
        self._open = False
        signal.setitimer(signal.ITIMER_REAL, 0)

    def check(self) -> None:
        """End if a signal has asked for it."""
        if self.number is not None:
            self._open = False
            raise SystemExit(128 + self.number)

    def _signalled(self, number: int, _: object) -> None:
        if number != signal.SIGINT:
            self.number = self.number or number
        if self._open:
            self.check()
        self._on_signal(number)


@contextmanager
def interrupts_delayed() -> Iterator[None]:
    """Around imports beside a thread: Ctrl+C raises KeyboardInterrupt at the end. In the middle of an import it could
    leave a lock held that the thread waits for."""
    pressed: list[int] = []
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if pressed:
        raise KeyboardInterrupt


@contextmanager
def answering() -> Iterator[None]:
    """While a person is asked when the sandbox is gone: Ctrl+C is an answer, every other signal ends us at once."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: leave,
        signal.SIGHUP: leave,
    }
    before = {
        number: signal.signal(number, handler) for number, handler in handlers.items()
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
