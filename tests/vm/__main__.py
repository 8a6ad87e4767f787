"""`make vm-test`, or `python -m tests.vm [SUITE] [PLATFORM…]`: a part of the suite on control groups version 2.

A disk is made once, which takes minutes. Then the machine boots, and each platform runs `belljar doctor`, the smoke
test (smoke.py) and the tests that PLATFORMS names. The minutes of each step are printed. Needs root, mmdebstrap, QEMU
and a Docker with the base image; `make` sees to the image. VM=/some/dir says where disks are kept (4 GB each).
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.vm.disk import CHECKOUT, Disk
from tests.vm.machine import Machine, has_kvm

from belljar.images import catalog

SUITES = ("trixie", "forky", "sid")
PROGRAMS = {
    "qemu-system-x86_64": "qemu-system-x86 seabios", "mmdebstrap": "mmdebstrap", "mkfs.ext4": "e2fsprogs",
    "ssh-keygen": "openssh-client",
}  # fmt: skip
CONTRACT = "tests/engines/test_contract.py"
SESSION = "export XDG_RUNTIME_DIR=/run/user/$(id -u) DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/$(id -u)/bus"


@dataclass(frozen=True)
class Platform:
    user: str
    engine: str
    before: str = "true"
    tests: str = ""


PLATFORMS = {
    "docker": Platform("root", "docker", "systemctl start docker", CONTRACT),
    "docker-user": Platform(
        "tester-docker", "docker", "docker version -f '{{.Server.Version}}'"
    ),
    "podman": Platform("root", "podman", "systemctl start podman.socket", CONTRACT),
    "podman-rootless": Platform(
        "tester-alone", "podman", "systemctl --user start podman.socket"
    ),
    "oci": Platform("root", "oci", tests=f"{CONTRACT} tests/engines/oci"),
    "oci-rootless": Platform("tester-alone", "oci", tests=CONTRACT),
}


def main(words: list[str]) -> int:
    suite = words.pop(0) if words and words[0] in SUITES else SUITES[0]
    if unknown := set(words) - set(PLATFORMS):
        sys.exit(
            f"vm: no platform is called {', '.join(unknown)}; there are {', '.join(PLATFORMS)}"
        )
    _install_programs()
    disk = Disk(
        Path(os.environ.get("VM") or "/var/tmp/belljar-vm"),
        suite,
        catalog.reference("base"),
    )
    if not disk.is_there:
        with _timed(f"disk with {suite}"):
            disk.make()
    with _timed("boot, with KVM" if has_kvm() else "boot, emulated"):
        machine = Machine(disk).__enter__()
    with machine:
        with _timed("sources"):
            machine.bring_sources()
        machine.run(
            "root",
            "uname -r; stat -fc 'control groups: %T' /sys/fs/cgroup; runc --version | head -1",
        )
        results = _failed_steps(machine, words or list(PLATFORMS))
    for name, failed in results.items():
        print(
            f"vm: {suite}: {name}: {'FAILED: ' + ', '.join(failed) if failed else 'ok'}",
            flush=True,
        )
    return any(results.values())


def _install_programs() -> None:
    missing = [
        package for program, package in PROGRAMS.items() if not shutil.which(program)
    ]
    if os.geteuid() != 0:
        sys.exit("vm: this needs root")
    if missing:
        print(f"vm: installing {' '.join(missing)}", flush=True)
        install = f"apt-get -qq update && apt-get -qq -y install --no-install-recommends {' '.join(missing)} >&2"
        subprocess.run(["sh", "-c", install], check=True, stdin=subprocess.DEVNULL)


def _failed_steps(machine: Machine, names: list[str]) -> dict[str, list[str]]:
    """The steps that failed on each platform. The longest step comes last, for all platforms."""
    failed: dict[str, list[str]] = {name: [] for name in names}
    for step in ("engine", "doctor", "smoke", "tests"):
        for name in names:
            command = _command(step, PLATFORMS[name])
            if (
                command
                and "engine" not in failed[name]
                and not _passes(machine, name, step, command)
            ):
                failed[name].append(step)
    return failed


def _command(step: str, platform: Platform) -> str:
    return {
        "engine": platform.before,
        "doctor": ".venv/bin/belljar doctor",
        "smoke": _pytest("tests/vm/smoke.py"),
        "tests": platform.tests and _pytest(platform.tests),
    }[step]


def _passes(machine: Machine, name: str, step: str, command: str) -> bool:
    platform = PLATFORMS[name]
    with _timed(f"{name}: {step}") as outcome:
        outcome["failed"] = (
            machine.run(
                platform.user, f"{_settings(platform)}; cd {CHECKOUT}; {command}"
            )
            != 0
        )
    return not outcome["failed"]


def _settings(platform: Platform) -> str:
    slow = "export BELLJAR_PATIENCE=" + ("1" if has_kvm() else "30")
    engine = f"export BELLJAR_ENGINE={platform.engine} BELLJAR_TEST_ENGINES={platform.engine}"
    # Debian 13's /tmp is in memory and too small for these tests.
    return (
        f"{SESSION}; {slow}; {engine}; export PYTHONDONTWRITEBYTECODE=1 TMPDIR=/var/tmp"
    )


def _pytest(tests: str) -> str:
    return f".venv/bin/python -m pytest -q -n 0 -p no:cacheprovider -o faulthandler_timeout=3600 --durations=5 {tests}"


@contextmanager
def _timed(what: str) -> Iterator[dict[str, bool]]:
    print(f"vm: {what} …", flush=True)
    began, outcome = time.monotonic(), {"failed": False}
    yield outcome
    verdict = "FAILED" if outcome["failed"] else "ok"
    print(
        f"vm: {what}: {verdict} ({(time.monotonic() - began) / 60:.1f} minutes)",
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
