"""A Docker daemon for one test, which may kill it without harm to others."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from pathlib import Path


class PrivateEngine:
    """A daemon with its own directories and no images. Needs root, dockerd and unshare (the mark `dockerd`)."""

    def __init__(self, place: Path, *options: str) -> None:
        self.place, self._options = place, options
        self.host = f"unix://{place}/docker.sock"
        self._log = (place / "log").open("wb")
        self._daemon: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        # Without these files a new daemon does not wait for the old containerd, which may still be there as a zombie.
        for name in ("pid", "exec/containerd/containerd.pid"):
            (self.place / name).unlink(missing_ok=True)
        options = ["--data-root", f"{self.place}/data", "--exec-root", f"{self.place}/exec", "-H", self.host,
                   "--pidfile", f"{self.place}/pid", "--bridge=none", "--iptables=false", *self._options]  # fmt: skip
        # In its own network namespace: a daemon without a bridge deletes any interface docker0 that it finds.
        command = ["unshare", "--net", "dockerd", *options]
        self._daemon = subprocess.Popen(command, stdout=self._log, stderr=self._log)
        deadline = time.monotonic() + 120
        while self.docker("version", check=False).returncode:
            assert self._daemon.poll() is None, (self.place / "log").read_text()[-2000:]
            assert time.monotonic() < deadline, "the private engine does not start"
            time.sleep(0.1)

    def kill(self) -> None:
        assert self._daemon is not None
        self._daemon.kill()
        self._daemon.wait()

    def docker(
        self, *arguments: str, check: bool = True
    ) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(
            ["docker", "-H", self.host, *arguments],
            check=check,
            capture_output=True,
            timeout=60,
        )

    def close(self) -> None:
        if self._daemon is not None and self._daemon.poll() is None:
            for container in (
                self.docker("ps", "-aq", check=False).stdout.decode().split()
            ):
                self.docker("rm", "-f", container, check=False)
            self._daemon.terminate()
            self._daemon.wait(30)
        self._log.close()
        for (
            process
        ) in self._leftover_processes():  # shims of containers whose daemon was killed
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        mounts = [
            line.split()[1] for line in Path("/proc/mounts").read_text().splitlines()
        ]
        for mount in [each for each in mounts if each.startswith(str(self.place))]:
            subprocess.run(["umount", "-l", mount], check=False)
        shutil.rmtree(self.place, ignore_errors=True)

    def _leftover_processes(self) -> list[int]:
        commands = {
            int(path.parent.name): _command(path)
            for path in Path("/proc").glob("[0-9]*/cmdline")
        }
        return [
            pid
            for pid, command in commands.items()
            if f"{self.place}/exec".encode() in command
        ]


def _command(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
