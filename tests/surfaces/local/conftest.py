"""A local server of its own for a test, and the command line with and without it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.surfaces.invoking import CLIENT, Answer, belljar, environment

LONGEST = 120.0


class Local:
    """A meeting place, at which a server may run."""

    def __init__(self, root: Path) -> None:
        self.env = {"BELLJAR_RUN": str(root), "BELLJAR_CONFIG": os.devnull}
        self.root, self.place = root, root / "local"
        self.server: subprocess.Popen[bytes] | None = None

    def start(self, setup: str = "pass", **env: str) -> None:
        """Run the server. `setup`: what is done in its process first, where `server` and `worker` are its modules."""
        program = (
            f"import sys; from belljar.surfaces.local import server, worker; {setup}; "
            "from belljar.surfaces.cli.main import main; sys.exit(main(sys.argv[1:]))"
        )
        self.server = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--local"], env=environment(**self.env, **env), cwd="/",
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.server.stderr is not None
        assert b"answers" in self.server.stderr.readline()

    def run(
        self, *args: str | Path, env: dict[str, str] | None = None, **more: object
    ) -> Answer:
        return belljar(*args, program=CLIENT, env={**self.env, **(env or {})}, **more)  # type: ignore[arg-type]

    def popen(self, *args: str | Path, **options: object) -> subprocess.Popen[bytes]:
        streams = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        }
        argv = [*CLIENT, *map(str, args)]
        return subprocess.Popen(
            argv, env=environment(**self.env), **{**streams, **options}
        )  # type: ignore[call-overload, no-any-return]

    def waiting(self) -> list[Path]:
        """The directories of sandboxes that wait."""
        return [
            path
            for path in self.root.glob("bj-*/session.json")
            if '"waits": true' in path.read_text()
        ]

    def ending(self) -> list[Path]:
        """The directories of sandboxes whose clients have gone."""
        return list(self.root.glob("bj-*/ending"))

    def warm(self, workspace: Path, *options: str) -> None:
        """Run a command until two sandboxes of its kind wait; on a busy machine the server may be too slow at first."""
        before = len(self.waiting())
        self.until(
            lambda: (
                self.run("run", *options, "true", cwd=workspace).status == 0
                and self._soon(lambda: len(self.waiting()) >= before + 2)
            )
        )
        self.until(lambda: len(self.waiting()) == before + 2)

    @staticmethod
    def _soon(so: Callable[[], bool]) -> bool:
        for _ in range(100):
            if so():
                return True
            time.sleep(0.05)
        return False

    def until(self, so: Callable[[], object]) -> None:
        end = time.monotonic() + LONGEST
        while not so():
            assert time.monotonic() < end
            time.sleep(0.02)

    def stop(self) -> None:
        if self.server is not None:
            self.server.terminate()
            self.server.wait(LONGEST)
            assert self.server.stderr is not None
            self.server.stderr.close()


@pytest.fixture
def local() -> Iterator[Local]:
    """Without a server; a short path, since sockets have one."""
    below = "/run" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(
        prefix="bj-local-", dir=below, ignore_cleanup_errors=True
    ) as root:
        at = Local(Path(root))
        yield at
        at.stop()


@pytest.fixture
def served(local: Local) -> Local:
    local.start()
    return local
