"""`make vm-test`, or `python -m tests.vm [SUITE] [PLATFORM…]`: a part of the suite on control groups version 2.

A disk is made once (minutes), the machine boots, and on each platform `belljar doctor`, the smoke test (smoke.py) and
the tests that the table names are run. The minutes of each are printed. Needs root, mmdebstrap, QEMU and a Docker that
has the base image, which `make` takes care of. VM=/some/dir: where disks are kept (4 GB each).
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
    prepare: str = ""
    """By root. To unpack an image takes an emulated machine a quarter of an hour: only if asked for."""


PLATFORMS = {
    "docker": Platform("root", "docker", "systemctl start docker", CONTRACT),
    "oci": Platform("root", "oci", tests=f"{CONTRACT} tests/engines/oci"),
    "oci-rootless": Platform(
        "tester-alone",
        "oci",
        ".venv/bin/belljar images import --name $IMAGE /srv/root.tar",
        CONTRACT,
        "tar -C /root/.local/state/belljar/images/layers/*/root -cf /srv/root.tar .",
    ),
    "docker-user": Platform("tester-docker", "docker", "docker version -f '{{.Server.Version}}'"),
    "podman": Platform("root", "podman", "systemctl start podman.socket"),
    "podman-rootless": Platform("tester-alone", "podman", "systemctl --user start podman.socket"),
}


def main(words: list[str]) -> int:
    suite = words.pop(0) if words and words[0] in SUITES else SUITES[0]
    if unknown := set(words) - set(PLATFORMS):
        sys.exit(f"vm: no platform is called {', '.join(unknown)}; there are {', '.join(PLATFORMS)}")
    _install_programs()
    disk = Disk(Path(os.environ.get("VM") or "/var/tmp/belljar-vm"), suite, catalog.reference("base"))
    if not disk.is_there:
        with _timed(f"disk with {suite}"):
            disk.make()
    with _timed("boot, with KVM" if has_kvm() else "boot, emulated"):
        machine = Machine(disk).__enter__()
    with machine:
        with _timed("sources"):
            machine.bring_sources()
        machine.run("root", "uname -r; stat -fc 'control groups: %T' /sys/fs/cgroup; runc --version | head -1")
        usual = [name for name, each in PLATFORMS.items() if not each.prepare]
        results = {name: _tried(machine, name, PLATFORMS[name]) for name in words or usual}
    for name, failed in results.items():
        print(f"vm: {suite}: {name}: {'FAILED: ' + ', '.join(failed) if failed else 'ok'}", flush=True)
    return any(results.values())


def _install_programs() -> None:
    missing = [package for program, package in PROGRAMS.items() if not shutil.which(program)]
    if os.geteuid() != 0:
        sys.exit("vm: this needs root")
    if missing:
        print(f"vm: installing {' '.join(missing)}", flush=True)
        install = f"apt-get -qq update && apt-get -qq -y install --no-install-recommends {' '.join(missing)} >&2"
        subprocess.run(["sh", "-c", install], check=True, stdin=subprocess.DEVNULL)


def _tried(machine: Machine, name: str, platform: Platform) -> list[str]:
    """The names of what failed."""
    steps = {
        "engine": platform.before,
        "doctor": ".venv/bin/belljar doctor",
        "smoke": _pytest("tests/vm/smoke.py"),
        **({"tests": _pytest(platform.tests)} if platform.tests else {}),
    }
    if platform.prepare and machine.run("root", platform.prepare):
        return ["prepare"]
    failed = []
    for step, command in steps.items():
        with _timed(f"{name}: {step}") as outcome:
            outcome["failed"] = machine.run(platform.user, f"{_settings(platform)}; cd {CHECKOUT}; {command}") != 0
        if outcome["failed"]:
            failed.append(step)
        if failed == ["engine"]:
            break
    return failed


def _settings(platform: Platform) -> str:
    slow = "export BELLJAR_PATIENCE=" + ("1" if has_kvm() else "30")
    engine = f"export BELLJAR_ENGINE={platform.engine} BELLJAR_TEST_ENGINES={platform.engine}"
    return f"{SESSION}; {slow}; {engine}; export PYTHONDONTWRITEBYTECODE=1 IMAGE={catalog.reference('base')}"


def _pytest(tests: str) -> str:
    return f".venv/bin/python -m pytest -q -n 0 -p no:cacheprovider -o faulthandler_timeout=3600 --durations=5 {tests}"


@contextmanager
def _timed(what: str) -> Iterator[dict[str, bool]]:
    print(f"vm: {what} …", flush=True)
    began, outcome = time.monotonic(), {"failed": False}
    yield outcome
    verdict = "FAILED" if outcome["failed"] else "ok"
    print(f"vm: {what}: {verdict} ({(time.monotonic() - began) / 60:.1f} minutes)", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
