"""The command line as a user meets it: a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "belljar"]
LONGEST = 180  # seconds: more than a busy machine needs


@dataclass(frozen=True)
class Answer:
    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        return json.loads(self.stdout)

    @property
    def complaint(self) -> str:
        """The one line that an error is."""
        (line,) = self.stderr.splitlines()
        assert line.startswith("belljar: ")
        assert "Traceback" not in self.stderr
        return line


def environment(**changes: str) -> dict[str, str]:
    quiet = ("GITHUB_ACTIONS", "BELLJAR_LOG", "BELLJAR_DEBUG")
    return {name: value for name, value in os.environ.items() if name not in quiet} | changes


def belljar(
    *args: str | Path, stdin: bytes | None = None, cwd: Path | None = None, env: dict[str, str] | None = None
) -> Answer:
    done = subprocess.run(
        [*PROGRAM, *map(str, args)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        cwd=cwd,
        env=environment(**(env or {})),
        timeout=LONGEST,
        check=False,
    )
    return Answer(done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace"))


class Started(subprocess.Popen[bytes]):
    """Left with an exception it is killed, or leaving would wait for what the test gave up on."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


def start(*args: str | Path, env: dict[str, str] | None = None, **options: Any) -> Started:
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return Started([*PROGRAM, *map(str, args)], env=environment(**(env or {})), **{**streams, **options})
