"""A real pseudo-terminal, used as a person would use it."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.surfaces.invoking import PROGRAM, environment

PATIENCE = 120.0


class Terminal:
    """A pseudo-terminal with a program on it."""

    def __init__(
        self,
        *argv: str | Path,
        rows: int = 24,
        cols: int = 80,
        cwd: Path | None = None,
        **env: str,
    ) -> None:
        self._seen = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            if cwd is not None:
                os.chdir(cwd)
            # This terminal does not answer a cursor position request.
            settings = environment(
                **{"TERM": "xterm", "PROMPT_TOOLKIT_NO_CPR": "1", **env}
            )
            os.execvpe(str(argv[0]), [str(word) for word in argv], settings)
        self.resize(rows, cols)

    @classmethod
    def belljar(
        cls, *args: str | Path, rows: int = 24, cols: int = 80, **env: str
    ) -> Self:
        return cls(*PROGRAM, *args, rows=rows, cols=cols, **env)

    @classmethod
    def host_shell(cls, workspace: Path) -> Self:
        """A bash of the host in which `belljar` is defined."""
        shell = cls(
            "bash", "--norc", "--noediting", cwd=workspace, PS1="host> ", TERM="dumb"
        )
        shell.until("host> ")
        shell.type(f'belljar() {{ {sys.executable} -m belljar "$@"; }}\n')
        shell.until("host> ")
        return shell

    def resize(self, rows: int, cols: int) -> None:
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def line(self, text: str) -> None:
        """Wait for safe mode's prompt, then type the line."""
        self.until("$")
        self.type(text + "\r")

    def until(self, text: str) -> str:
        """Read until `text` appears, and return what came before it."""
        end = time.monotonic() + PATIENCE
        while text.encode() not in self._seen:
            ready, _, _ = select.select(
                [self.fd], [], [], max(0.0, end - time.monotonic())
            )
            assert ready, f"no {text!r} in {self._seen!r}"
            self._seen += os.read(self.fd, 65536)
        before, _, self._seen = self._seen.partition(text.encode())
        return before.decode("utf-8", "replace")

    def insist(self, keys: str, text: str) -> None:
        """Type the keys again until `text` appears: keys typed while one program hands over to another are lost."""
        end = time.monotonic() + PATIENCE
        with suppress(OSError):  # the other end is closed
            while text.encode() not in self._seen and time.monotonic() < end:
                self.type(keys)
                ready, _, _ = select.select([self.fd], [], [], 2.0)
                while ready and text.encode() not in self._seen:
                    self._seen += os.read(self.fd, 65536)
                    ready, _, _ = select.select([self.fd], [], [], 0.5)
        self.until(text)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def settings(self) -> list[object]:
        return termios.tcgetattr(self.fd)

    def rest(self) -> str:
        """Read until the program ends."""
        while True:
            try:
                data = os.read(self.fd, 65536)
            except OSError:  # the other end is closed
                break
            if not data:
                break
            self._seen += data
        return self._seen.decode("utf-8", "replace")

    def status(self) -> int:
        self.rest()
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
