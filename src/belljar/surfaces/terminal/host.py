"""The person's terminal, lent to a program in the sandbox.

While the program runs the terminal is in raw mode: every key, Ctrl+C and Ctrl+Z too, is a byte that goes inside.
Whatever way we leave by, its settings come back, and what was typed for the sandbox and read by nobody is thrown away:
it must not become a command of the shell that we return to.
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
    ("ansi", "linux", "rxvt", "screen", "screen-256color", "tmux", "tmux-256color", "vt100", "vt220", "xterm",
     "xterm-256color")
)  # fmt: skip
"""What every image with ncurses describes; any other terminal is told to be the most common one."""


class HostTerminal:
    """Ours: we read from it, and are in its foreground."""

    fd = 0

    def __init__(self) -> None:
        self._settings = termios.tcgetattr(self.fd)
        self._raw = False
        atexit.register(self.restore)
        # Stopped or gone, we would leave the person at the host's prompt while they type for the sandbox.
        for key in (signal.SIGTSTP, signal.SIGQUIT):
            signal.signal(key, signal.SIG_IGN)

    @classmethod
    def here(cls) -> HostTerminal | None:
        """None where stdin is no terminal, or one that somebody else uses: reading would stop us."""
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
        """Keys come as bytes, one by one, and none of them means anything to this machine."""
        self._enter()
        before = signal.signal(signal.SIGCONT, lambda *_: self._enter())  # a shell that stopped us set its own
        try:
            yield
        finally:
            signal.signal(signal.SIGCONT, before)
            self.restore()

    @contextlib.contextmanager
    def cooked(self) -> Iterator[None]:
        """For a question of ours, also in the middle of a program's time."""
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
        """Also at exit, for what was typed meanwhile."""
        if not _is_ours(self.fd):
            return
        was_raw, self._raw = self._raw, False
        with contextlib.suppress(termios.error):  # the terminal is gone
            if was_raw:
                termios.tcsetattr(self.fd, termios.TCSANOW, self._settings)
            termios.tcflush(self.fd, termios.TCIFLUSH)


def _is_ours(fd: int) -> bool:
    """Whether we are in its foreground; from the background, touching it would stop us."""
    try:
        return os.tcgetpgrp(fd) == os.getpgrp()
    except OSError:
        return False


def environment() -> dict[str, str]:
    """What a program inside should know of the terminal."""
    term, colours = os.environ.get("TERM", ""), os.environ.get("COLORTERM", "")
    known = {"TERM": term if term in TERMS else "xterm-256color"}
    return known | {"COLORTERM": colours} if colours in ("truecolor", "24bit") else known
