"""A cluster on this machine: control plane and two nodes in namespaces of their own, which leave nothing behind.

    with Cluster(build) as cluster:
        cluster.kubeconfig          for clients, which must be in its network: `cluster.enter(command)`
        cluster.do("kill", "n2")    faults: kill, start, cut, heal

Needs root. Nothing of the machine's is changed: the one trace outside the namespaces is a control group of its own in
each hierarchy, removed at the end with everything in it. Whoever made the cluster may be killed: then the kernel ends
the cluster, and the next one removes what is left of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

from tests.kubernetes import pki
from tests.kubernetes.build import Build
from tests.kubernetes.inside import GROUPS
from tests.kubernetes.layout import PAUSE, REGISTRY, Layout

ROOT = Path(__file__).resolve().parents[2]
PAUSE_SOURCE = """
#include <signal.h>
#include <unistd.h>
#include <sys/wait.h>
static void down(int signal) { (void)signal; _exit(0); }
static void reap(int signal) { (void)signal; while (waitpid(-1, 0, WNOHANG) > 0); }
int main(void) { signal(SIGINT, down); signal(SIGTERM, down); signal(SIGCHLD, reap); for (;;) pause(); }
"""
START_SECONDS, END_SECONDS = 180, 60
PREFIX, LOCK = "bjk-", "maker.lock"


class Cluster:
    def __init__(self, build: Build, images: Sequence[str] = ()) -> None:
        """`images`: of this machine's Docker, which the nodes shall have."""
        place = Path(os.environ.get("BELLJAR_KUBERNETES_DIR") or "/var/tmp")
        remove_dead(place)
        directory = Path(tempfile.mkdtemp(prefix=PREFIX, dir=place))
        self._lock = _locked(directory)
        assert self._lock is not None
        self.layout, self.build = Layout(directory, build.directory), build
        self._images = images
        self._supervisor: subprocess.Popen[bytes] | None = None

    @property
    def kubeconfig(self) -> Path:
        return self.layout.kubeconfig()

    def __enter__(self) -> Self:
        try:
            pki.make(self.layout)
            self.layout.log.mkdir()
            self._make_images()
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        _from_now_on_uninterrupted()
        if self._supervisor is not None:
            self._supervisor.kill()  # `unshare --kill-child`: the kernel ends all that is in its PID namespace
            self._supervisor.wait()
        _remove_groups(self.layout)
        if os.environ.get("BELLJAR_KUBERNETES_KEEP") is None:
            _remove(self.layout.root)

    def do(self, verb: str, what: str) -> Any:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(START_SECONDS)
            asking.connect(str(self.layout.control))
            with asking.makefile("rw") as lines:
                lines.write(json.dumps({"do": verb, "what": what}) + "\n")
                lines.flush()
                answer = json.loads(lines.readline())
        if "error" in answer:
            raise RuntimeError(f"{verb} {what}: {answer['error']}")
        return answer["ok"]

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command in the cluster's network; all else is this machine's."""
        return ["nsenter", f"--net=/proc/{self.pid}/ns/net", *command]

    @property
    def pid(self) -> int:
        """Of its first process, as this machine sees it."""
        assert self._supervisor is not None
        outer = self._supervisor.pid
        return int(Path(f"/proc/{outer}/task/{outer}/children").read_text().split()[0])

    def _start(self) -> None:
        separate = [
            "unshare",
            "--net",
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
        ]
        # A killed maker ends `unshare`, and that ends its child, PID 1 of all the others.
        separate = ["setpriv", "--pdeathsig", "KILL", *separate]
        inside = [
            sys.executable,
            "-m",
            "tests.kubernetes.inside",
            str(self.layout.root),
            str(self.layout.programs),
        ]
        with (self.layout.log / "supervisor.log").open("ab") as log:
            self._supervisor = subprocess.Popen(
                [*separate, *inside],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + START_SECONDS
        while not self.layout.control.exists():
            if self._supervisor.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(
                    f"the cluster did not start:\n{(self.layout.log / 'supervisor.log').read_text()}"
                )
            time.sleep(0.1)

    def _make_images(self) -> None:
        self.layout.images.mkdir()
        source, program = self.layout.images / "pause.c", self.layout.images / "pause"
        source.write_text(PAUSE_SOURCE)
        subprocess.run([sys.executable, "-m", "ziglang", "cc", "-static", "-Os", "-target", "x86_64-linux-musl",
                        "-o", program, source], check=True, capture_output=True)  # fmt: skip
        archive(
            self.layout.images / "pause.tar",
            PAUSE,
            {"pause": program.read_bytes()},
            ["/pause"],
        )
        from belljar.engines.kubernetes.init_image import reference, write

        write(self.layout.images / "init.tar", reference(REGISTRY))
        for number, image in enumerate(self._images):
            name = REGISTRY + image
            subprocess.run(["docker", "tag", image, name], check=True)
            try:
                saved = self.layout.images / f"image-{number}.tar"
                subprocess.run(["docker", "save", "-o", saved, name], check=True)
            finally:
                subprocess.run(["docker", "rmi", name], check=True, capture_output=True)


def remove_dead(place: Path) -> None:
    """What is left of clusters whose makers were killed."""
    for directory in place.glob(f"{PREFIX}*/"):
        if (directory / LOCK).exists() and (lock := _locked(directory)) is not None:
            _remove_groups(Layout(directory, directory))
            _remove(directory)
            lock.close()


def _locked(directory: Path) -> IO[str] | None:
    """Held while the maker lives. None: it lives."""
    lock = (directory / LOCK).open("a")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _from_now_on_uninterrupted() -> None:
    """A second Ctrl+C must not stop the cleaning up."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)


def _remove_groups(layout: Layout) -> None:
    for hierarchy in (*GROUPS, "unified"):  # runc makes one there too
        top = Path("/sys/fs/cgroup", hierarchy, layout.group)
        deadline = time.monotonic() + END_SECONDS
        while top.exists() and time.monotonic() < deadline:
            for directory in sorted(top.rglob("*/"), key=lambda path: -len(path.parts)):
                with contextlib.suppress(OSError):
                    directory.rmdir()
            with contextlib.suppress(OSError):
                top.rmdir()
            if top.exists():
                time.sleep(0.1)


def _remove(directory: Path) -> None:
    """Nothing is mounted there any more: the mounts went with their namespaces."""
    shutil.rmtree(directory, ignore_errors=True)


def archive(
    target: Path, reference: str, files: dict[str, bytes], entrypoint: list[str]
) -> None:
    from belljar.engines.kubernetes.init_image import docker_archive

    target.write_bytes(docker_archive(reference, files, entrypoint, "65535:65535"))
