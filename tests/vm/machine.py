"""The virtual machine: it boots, runs commands over ssh and ends. Without KVM the processor is emulated and slow."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

from tests.debian_tree import ROOT
from tests.vm.disk import CHECKOUT, Disk

BOOT_SECONDS = 900
# Without cmpxchg16b: with newer processor models Linux 6.12 panicked under QEMU 7.2's emulation.
EMULATED = ["-accel", "tcg,thread=multi", "-cpu", "Nehalem,-cx16"]
# no_timer_check: on a busy machine the emulated timer can fail the kernel's check at boot, and the kernel panics.
KERNEL = "root=/dev/vda rw console=ttyS0 panic=-1 no_timer_check"
NATIVE = ["-accel", "kvm", "-cpu", "host"]


class Machine:
    def __init__(self, disk: Disk, *, memory: str = "4G", processors: int = 2) -> None:
        self.disk = disk
        self.console = disk.place / "console"
        self._port = _free_port()
        # -snapshot: what it writes is thrown away, so each run starts from the same disk.
        self._process = subprocess.Popen(
            ["qemu-system-x86_64", *(NATIVE if has_kvm() else EMULATED), "-machine", "q35", "-snapshot",
             "-smp", str(processors), "-m", memory, "-display", "none", "-no-reboot", "-monitor", "none",
             "-serial", f"file:{self.console}", "-device", "virtio-rng-pci",
             "-kernel", disk.kernel, "-initrd", disk.initrd, "-append", KERNEL,
             "-drive", f"file={disk.file},format=raw,if=virtio,cache=unsafe",
             "-nic", f"user,restrict=on,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:{self._port}-:22"],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def __enter__(self) -> Machine:
        deadline = time.monotonic() + BOOT_SECONDS
        while self.run("root", "true", quiet=True):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                end = self.console.read_text(errors="replace").splitlines()[-5:]
                raise RuntimeError("the machine did not boot: " + " / ".join(end))
            time.sleep(2)
        return self

    def __exit__(self, *_: object) -> None:
        self.run("root", "poweroff", quiet=True)
        try:
            self._process.wait(120)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def run(
        self,
        user: str,
        command: str,
        *,
        stdin: bytes | None = None,
        quiet: bool = False,
    ) -> int:
        silent = subprocess.DEVNULL if quiet else None
        done = subprocess.run(
            [*self._ssh(), f"{user}@127.0.0.1", command],
            input=stdin or b"",
            stdout=silent,
            stderr=silent,
        )
        return done.returncode

    def _ssh(self) -> list[str]:
        """One connection per user is kept open: a new one takes seconds on an emulated processor."""
        settings = {
            "StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "BatchMode": "yes",
            "ConnectTimeout": "30", "ControlMaster": "auto", "ControlPersist": "60",
            "ControlPath": f"{self.disk.place}/ssh-{os.getpid()}-%r", "ServerAliveInterval": "30",
        }  # fmt: skip
        options = [
            word
            for name, value in settings.items()
            for word in ("-o", f"{name}={value}")
        ]
        return ["ssh", "-q", "-i", str(self.disk.key), "-p", str(self._port), *options]

    def bring_sources(self) -> None:
        """Copy the files that git tracks and the compiled init over those on the disk."""
        listed = subprocess.run(
            ["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        names = [name for name in listed.splitlines() if (ROOT / name).exists()]
        init = [
            f"share/belljar/{path.name}"
            for path in Path(sys.prefix, "share/belljar").glob("belljar-init-*")
        ]
        pack = [
            "tar",
            "-c",
            "--owner=0",
            "--group=0",
            *names,
            "--transform=s,^share/,.venv/share/,",
            "-C",
            sys.prefix,
            *init,
        ]
        packed = subprocess.run(pack, cwd=ROOT, check=True, capture_output=True).stdout
        # Compile once: else every process compiles each module again, which takes seconds.
        compiled = (
            f"cd {CHECKOUT} && tar -x && .venv/bin/python -m compileall -q src tests"
        )
        if self.run("root", compiled, stdin=packed):
            raise RuntimeError("the sources did not get into the machine")


def has_kvm() -> bool:
    """Check the processor too: a kernel may offer /dev/kvm only for special guests."""
    flags = Path("/proc/cpuinfo").read_text().split()
    return os.access("/dev/kvm", os.W_OK) and bool({"vmx", "svm"} & set(flags))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
