"""A box whose machine is another one: the init of aarch64 as PID 1, all of its programs under qemu's emulation of a user's
programs. The kernel is this machine's, and so is what it enforces.

Since Linux 6.7 a user namespace has a table of its own that says what starts foreign programs (binfmt_misc), so nothing
changes on the machine. Run as a program this module enters such a namespace and becomes the init:

    python -m tests.init.emulated QEMU TREE LINK WORKSPACE ARGUMENT…
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.init.client import PATIENCE, Box

ROOT = Path(__file__).resolve().parents[2]
TREE, QEMU = "BELLJAR_AARCH64_TREE", "BELLJAR_AARCH64_QEMU"
USER = 1000
MAGIC = (
    r":qemu-aarch64:M::\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00"
    r":\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff:{}:F"
)
_NEW_MOUNTS, _NEW_USERS, _NEW_PIDS, _NEW_IPC, _NEW_NET = (
    0x20000,
    0x10000000,
    0x20000000,
    0x8000000,
    0x40000000,
)
_PRIVATE, _BIND, _AGAIN, _READ_ONLY, _NO_SUID = 0x44000, 0x1000, 0x20, 0x1, 0x2
_NO_NEW_PRIVS = 38
_PROCESSES = 512

libc = ctypes.CDLL(None, use_errno=True)


class EmulatedBox(Box):
    """As `Box`, without what only a container engine gives."""

    def __init__(
        self, image: str, init: Path, directory: Path, *, lease: int = 10_000, bridged: bool = False,
        options: tuple[str, ...] = (), arguments: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        if bridged or options:
            pytest.skip("needs a container engine's options")
        self.link, self.workspace = directory / "link", directory / "workspace"
        for made in (self.link, self.workspace):
            made.mkdir(mode=0o755)
            os.chown(made, USER, USER)
        self._connections = []
        self.name = "emulated"
        program = [
            sys.executable,
            "-m",
            "tests.init.emulated",
            os.environ[QEMU],
            os.environ[TREE],
        ]
        places = [str(self.link), str(self.workspace)]
        self._process = subprocess.Popen(
            [*program, *places, "--dial", "/.belljar/link", "--lease", str(lease), *arguments],
            cwd=ROOT, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def memory(self) -> int:
        pytest.skip("the emulator's memory is not the init's")

    @property
    def pid(self) -> int:
        """PID 1, the grandchild of who entered the namespaces."""
        found = self._process.pid
        for _ in range(2):
            found = int(
                Path(f"/proc/{found}/task/{found}/children").read_text().split()[0]
            )
        return found

    def processes(self) -> list[str]:
        inside, ours = [], os.stat(f"/proc/{self.pid}/ns/pid").st_ino
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdecimal() and os.stat(entry / "ns/pid").st_ino == ours:
                    inside.append(
                        (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    )
            except OSError:
                continue  # it has just ended
        return inside

    def wait(self) -> int:
        return self._process.wait(PATIENCE)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        self._process.kill()
        self._process.wait(PATIENCE)


def enter(qemu: str, tree: str, link: str, workspace: str, *arguments: str) -> int:
    """Start the init in namespaces of its own, and return its exit status. It dies with this process."""
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        _die_with_parent()
        _check(libc.unshare(_NEW_MOUNTS | _NEW_USERS | _NEW_PIDS | _NEW_IPC | _NEW_NET))
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        init = os.fork()
        if init == 0:
            _die_with_parent()
            _become_init(qemu, tree, link, workspace, arguments)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(init, 0)[1]) & 0xFF)
    os.read(ready[0], 1)
    for kind in ("uid", "gid"):
        Path(f"/proc/{child}/{kind}_map").write_text("0 0 1000000")
    os.write(go[1], b"x")
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _become_init(
    qemu: str, tree: str, link: str, workspace: str, arguments: tuple[str, ...]
) -> None:
    _mount("none", "/", flags=_PRIVATE)
    _mount("proc", "/proc", "proc")
    _mount("none", "/proc/sys/fs/binfmt_misc", "binfmt_misc")
    Path("/proc/sys/fs/binfmt_misc/register").write_text(MAGIC.format(qemu))
    _mount(tree, tree, flags=_BIND)
    _mount(tree, tree, flags=_BIND | _AGAIN | _READ_ONLY | _NO_SUID)
    _mount("proc", f"{tree}/proc", "proc")
    for name in ("null", "zero", "urandom"):
        _mount(f"/dev/{name}", f"{tree}/dev/{name}", flags=_BIND)
    _mount(link, f"{tree}/.belljar/link", flags=_BIND)
    _mount(workspace, f"{tree}/workspace", flags=_BIND)
    for name, options in (
        ("tmp", "mode=1777,size=64m"),
        ("home/sandbox", f"uid={USER},gid={USER},size=64m"),
    ):
        _mount("tmpfs", f"{tree}/{name}", "tmpfs", data=options)
    import resource

    resource.setrlimit(resource.RLIMIT_NPROC, (_PROCESSES, _PROCESSES))
    os.chroot(tree)
    os.chdir("/workspace")
    os.setgroups([])
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    _check(libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0))
    _die_with_parent()
    os.execve(
        "/.belljar/init",
        ["/.belljar/init", *arguments],
        {"PATH": "/usr/bin:/bin", "HOME": "/home/sandbox"},
    )


def _mount(
    source: str,
    target: str,
    kind: str | None = None,
    *,
    flags: int = 0,
    data: str | None = None,
) -> None:
    texts = [
        text.encode() if text is not None else None
        for text in (source, target, kind, data)
    ]
    _check(libc.mount(*texts[:3], ctypes.c_ulong(flags), texts[3]))


def _die_with_parent() -> None:
    _check(libc.prctl(1, 9, 0, 0, 0))


def _check(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


if __name__ == "__main__":
    sys.exit(enter(*sys.argv[1:]))
