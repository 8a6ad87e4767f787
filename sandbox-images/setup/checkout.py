"""The checkout, its virtual environment, and the commands that are run for them.

VENV/.belljar holds a lock against a second `make`, the log, and a mark for each step that is done. A mark holds a
digest of everything the step depends on; it is removed before the step begins and written after it succeeded.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from board import Board, SetupError
from reasons import explain

ROOT = Path(__file__).resolve().parents[2]
ENDING_SECONDS = 10
NOT_FOUND = 127


class Checkout:
    def __init__(self, venv: Path, board: Board) -> None:
        self.root = ROOT
        self.venv = (Path.cwd() / venv).absolute()
        self.python = self.venv / "bin/python"
        self.own = self.venv / ".belljar"
        self.log = self.own / "setup.log"
        self._board = board
        self._logging = threading.Lock()
        self._starting = threading.Lock()
        self._fresh_log = True
        self._children: set[subprocess.Popen[str]] = set()
        self._uninterrupted: set[subprocess.Popen[str]] = set()

    def __enter__(self) -> Checkout:
        try:
            self._refuse_others()
            self._foreign = (
                self.venv.exists()
                and any(self.venv.iterdir())
                and not self.own.exists()
            )
            self.own.mkdir(parents=True, exist_ok=True)
            self._refuse_others()  # again: somebody else may have made it meanwhile
            self._lock = open(self.own / "lock", "a", opener=_unlinked)
        except OSError as error:
            raise SetupError(
                f"cannot write to {self.venv}: {error.strerror}",
                "choose another place with VENV=/some/directory",
            ) from None
        self._acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._end_children()
        self._lock.close()

    def _acquire(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._board.note("another `make` is setting up here; waiting for it")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def _refuse_others(self) -> None:
        """Raises SetupError if others could change programs in VENV, which we run. Whoever could change the checkout
        itself can do that anyway."""
        untrusted = runpy.run_path(str(ROOT / "src/belljar/ancestry.py"))["untrusted"]
        path = untrusted(self.own)
        if path and path != untrusted(ROOT):
            raise SetupError(
                f"others own {path} or may write to it, and what is in {self.venv} will be run",
                "choose another place with VENV=/some/directory",
            )

    @property
    def foreign(self) -> bool:
        """Whether VENV existed before us: then nothing in it may be removed."""
        mark = self.own / "foreign"
        if self._foreign:
            mark.touch()
        return mark.exists()

    def clear(self) -> None:
        """Remove everything in the environment but the lock and the log."""
        for path in self.venv.iterdir():
            if path != self.own:
                shutil.rmtree(
                    path
                ) if path.is_dir() and not path.is_symlink() else path.unlink()
        for mark in self.own.glob("*.done"):
            mark.unlink()

    # Marks

    def done(self, step: str, *ingredients: object) -> bool:
        with suppress(OSError):
            return (self.own / f"{step}.done").read_text() == digest(*ingredients)
        return False

    def begun(self, step: str) -> bool:
        """Forget that a step was done; returns whether it was begun before and never ended."""
        (self.own / f"{step}.done").unlink(missing_ok=True)
        mark = self.own / f"{step}.begun"
        before = mark.exists()
        mark.touch()
        return before

    def ended(self, step: str, *ingredients: object) -> None:
        content = digest(*ingredients)
        handle, name = tempfile.mkstemp(dir=self.own)
        with open(handle, "w") as file:
            file.write(content)
        os.replace(name, self.own / f"{step}.done")
        (self.own / f"{step}.begun").unlink(missing_ok=True)

    # Commands

    def run(
        self,
        command: Iterable[Any],
        what: str,
        on_line: Callable[[str], None] | None = None,
        *,
        environment: dict[str, str] | None = None,
        uninterrupted: bool = False,
    ) -> None:
        """Run it with its output in the log. A failure raises SetupError, with the reason if it is a known one."""
        status, last = self.attempt(
            command, on_line, environment=environment, uninterrupted=uninterrupted
        )
        if status:
            reason, remedy = explain("\n".join(last))
            raise SetupError(f"{what} failed: {reason}", remedy, str(self.log))

    def attempt(
        self,
        command: Iterable[Any],
        on_line: Callable[[str], None] | None = None,
        *,
        environment: dict[str, str] | None = None,
        uninterrupted: bool = False,
    ) -> tuple[int, list[str]]:
        words = [str(word) for word in command]
        self._write(f"\n[{time.strftime('%H:%M:%S')}] {' '.join(words)}\n")
        last: deque[str] = deque(maxlen=60)
        running = self._uninterrupted if uninterrupted else self._children
        try:
            with self._starting:  # so that `_end_children` knows every child
                process = subprocess.Popen(
                    words, env={**os.environ, **(environment or {})}, cwd=self.root, stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
                    start_new_session=uninterrupted,
                )  # fmt: skip
                running.add(process)
        except OSError as error:
            self._write(f"{error}\n")
            return NOT_FOUND, [str(error)]
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                self._write(line)
                last.append(line.rstrip())
                if on_line:
                    on_line(line.rstrip())
        running.discard(process)
        self._write(f"[{time.strftime('%H:%M:%S')}] status {process.returncode}\n")
        return process.returncode, list(last)

    def _write(self, text: str) -> None:
        with self._logging, open(self.log, "w" if self._fresh_log else "a") as log:
            self._fresh_log = False
            log.write(text)

    def _end_children(self) -> None:
        self._starting.acquire()  # never released: nothing more is started
        for child in list(self._children):
            with suppress(OSError):
                child.send_signal(signal.SIGTERM)
        if self._uninterrupted:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            self._board.note("stopping as soon as apt has finished")
        while self._uninterrupted:
            time.sleep(0.05)
        deadline = time.monotonic() + ENDING_SECONDS
        # Waits for the children only, not for the end of their output: a process they left may hold it open.
        while (
            any(child.poll() is None for child in list(self._children))
            and time.monotonic() < deadline
        ):
            time.sleep(0.05)


def _unlinked(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def digest(*ingredients: object) -> str:
    contents = [
        each.read_text() if isinstance(each, Path) and each.is_file() else str(each)
        for each in ingredients
    ]
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def this_python() -> str:
    return f"{sys.version} {sys.base_prefix}"


def lock_file(name: str) -> Path:
    return Path(__file__).parent / "lock" / f"{name}.txt"


def locked_count(name: str) -> int:
    return len(re.findall(r"(?m)^[a-z0-9._-]+==", lock_file(name).read_text()))
