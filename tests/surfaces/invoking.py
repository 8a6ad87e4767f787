"""Runs the command line as a separate process, as a user would."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

PROGRAM = [sys.executable, "-m", "belljar"]
CLIENT = [str(Path(sys.executable).with_name("belljar"))]
"""The program that looks for a local server."""
LONGEST = 180  # seconds, enough for a busy machine


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
        """The single line of an error message."""
        (line,) = self.stderr.splitlines()
        assert line.startswith("belljar: ")
        assert "Traceback" not in self.stderr
        return line


def environment(**changes: str) -> dict[str, str]:
    quiet = ("GITHUB_ACTIONS", "BELLJAR_LOG", "BELLJAR_DEBUG")
    return {
        name: value for name, value in os.environ.items() if name not in quiet
    } | changes


def belljar(
    *args: str | Path,
    stdin: bytes | None = None,
    cwd: Path | None = None,
    env: dict[str, str] | None = None,
    program: list[str] = PROGRAM,
) -> Answer:
    done = subprocess.run(
        [*program, *map(str, args)],
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        cwd=cwd,
        env=environment(**(env or {})),
        timeout=LONGEST,
        check=False,
    )
    return Answer(
        done.returncode,
        done.stdout.decode("utf-8", "replace"),
        done.stderr.decode("utf-8", "replace"),
    )


class Started(subprocess.Popen[bytes]):
    """Kills the process if its `with` block raises: else leaving the block would wait for it."""

    def __exit__(self, kind: type[BaseException] | None, *rest: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, *rest)


def start(
    *args: str | Path, env: dict[str, str] | None = None, **options: Any
) -> Started:
    streams = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
    }
    return Started(
        [*PROGRAM, *map(str, args)],
        env=environment(**(env or {})),
        **{**streams, **options},
    )
