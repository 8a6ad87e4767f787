"""The user's terminal, used by a program in the sandbox.

While the program runs the terminal is in raw mode: every key, also Ctrl+C and Ctrl+Z, is sent to the program. However
Belljar ends, the terminal's settings are restored. Keys that nobody has read are discarded: they were typed for the
sandbox and must not become a command of the host's shell.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Iterator

TERMS = frozenset(
    (
        "ansi",
        "linux",
        "rxvt",
        "screen",
        "screen-256color",
        "tmux",
        "tmux-256color",
        "vt100",
        "vt220",
        "xterm",
        "xterm-256color",
    )
)
"""Terminals that every image with ncurses knows. For any other, programs get the most common one."""


class HostTerminal:
    """The terminal on stdin, while this process is in its foreground."""

    fd = 0

    def __init__(self) -> None:
        self._settings = termios.tcgetattr(self.fd)
        self._raw = False
        atexit.register(self.restore)
        # If these stopped or ended us, the user would be at the host's prompt while typing for the sandbox.
        for key in (signal.SIGTSTP, signal.SIGQUIT):
            signal.signal(key, signal.SIG_IGN)

    @classmethod
    def here(cls) -> HostTerminal | None:
        """None if stdin is not a terminal, or if another process is in its foreground: reading would stop us."""
        try:
            return cls() if os.isatty(0) and _is_ours(0) else None
        except (OSError, termios.error):
            return None

    @property
    def size(self) -> tuple[int, int]:
        """Rows and columns."""
        try:
            columns, rows = os.get_terminal_size(self.fd)
        except OSError:
            return 24, 80
        return rows or 24, columns or 80

    @contextlib.contextmanager
    def raw(self) -> Iterator[None]:
        """Every key is read as bytes, and none has a meaning for the kernel."""
        self._enter()
        before = signal.signal(
            signal.SIGCONT, lambda *_: self._enter()
        )  # a shell that stopped us changed the mode
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)
            self.restore()

    @contextlib.contextmanager
    def keys(self) -> Iterator[None]:
        """Keys are read one by one and not shown; Ctrl+C interrupts us as usual."""
        tty.setcbreak(self.fd, termios.TCSANOW)
        try:
            yield
        finally:
            termios.tcsetattr(self.fd, termios.TCSANOW, self._settings)

    @contextlib.contextmanager
    def cooked(self) -> Iterator[None]:
        """Normal mode for a question of ours, also while a program runs."""
        was_raw = self._raw
        self.restore()
        try:
            yield
        finally:
            if was_raw:
                self._enter()

    def _enter(self) -> None:
        if not _is_ours(self.fd):
            return
        self._raw = True
        with contextlib.suppress(termios.error):  # the terminal is gone
            tty.setraw(self.fd, termios.TCSANOW)

    def restore(self) -> None:
        """Restore the settings and discard unread keys; also called at exit."""
        if not _is_ours(self.fd):
            return
        was_raw, self._raw = self._raw, False
        with contextlib.suppress(termios.error):  # the terminal is gone
            if was_raw:
                termios.tcsetattr(self.fd, termios.TCSANOW, self._settings)
            termios.tcflush(self.fd, termios.TCIFLUSH)


lender: int | None = None
"""The process whose terminal we use, if it is not our own: it lent it to us (surfaces/local)."""


def _is_ours(fd: int) -> bool:
    """Whether we are in the terminal's foreground. From the background, changing it would stop us."""
    try:
        return (
            _lender_is_in_front(lender)
            if lender is not None
            else os.tcgetpgrp(fd) == os.getpgrp()
        )
    except OSError:
        return False


def _lender_is_in_front(pid: int) -> bool:
    with open(f"/proc/{pid}/stat") as file:
        _, _, group, _, _, foreground, *_ = file.read().rpartition(")")[2].split()
    return group == foreground


def environment() -> dict[str, str]:
    """The variables that describe the terminal to a program in the sandbox."""
    term, colours = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    known = {"TERM": term if term in TERMS else "xterm-256color"}
    return (
        known | {"COLORTERM": colours} if colours in ("truecolor", "24bit") else known
    )
