"""`make aarch64-test`: the init's own tests on the other architecture, its programs emulated by qemu (needs root, Linux 6.7).

qemu's emulator and a Debian tree of arm64 are fetched as Debian packages and unpacked below `build/aarch64`; nothing is
installed. The init is the one that a wheel for aarch64 holds. The kernel below is this machine's: what it enforces is
proved by the tests of x86_64. Not run: engines, and Belljar's own Python, which has no part for one architecture.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.init.emulated import QEMU, TREE

ROOT = Path(__file__).resolve().parent.parent
PLACE = ROOT / "build" / "aarch64"
PACKAGES = (
    "bash,coreutils,dash,grep,sed,findutils,procps,libc-bin,base-files,ncurses-base"
)
FILES = ("commands", "retention")
"""Of `tests/init`. Not `trees`, `links`, `isolation` and `testimony`: some ask an engine, and under qemu-user (7.2) the tests
of `trees` fail for causes that were not told apart from the emulator's own."""
_COMMANDS = "tests/init/test_commands.py::"
NOT_EMULATED = (
    # qemu keeps two real-time signals for itself
    f"{_COMMANDS}test_every_signal_arrives",
    # its vfork is a fork, so whoever waits does not see why the child could not start
    f"{_COMMANDS}test_a_command_that_cannot_start_is_refused_with_its_reason",
    # it turns the order of variables round
    f"{_COMMANDS}test_the_environment_is_exactly_what_was_given",
    # runs the binary outside of the namespace
    f"{_COMMANDS}test_the_init_prints_its_version_and_runs_only_as_pid_1",
)


def main() -> int:
    began = time.monotonic()
    PLACE.mkdir(parents=True, exist_ok=True)
    qemu, tree = _emulator(), _tree()
    _put_init(tree)
    print(f"aarch64: {PLACE} is ready after {time.monotonic() - began:.0f} s")
    skipped = [f"--deselect={each}" for each in NOT_EMULATED]
    files = [f"tests/init/test_{name}.py" for name in FILES]
    variables = {
        **os.environ,
        QEMU: str(qemu),
        TREE: str(tree),
        "BELLJAR_INIT": "aarch64",
    }
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-n",
            "2",
            "--dist",
            "loadfile",
            *skipped,
            *files,
        ],
        cwd=ROOT,
        env=variables,
    )
    print(
        f"aarch64: {(time.monotonic() - began) / 60:.0f} min altogether; not run, because of qemu: {', '.join(NOT_EMULATED)}"
    )
    return ran.returncode


def _emulator() -> Path:
    """Unpacked, not installed: its package would change what starts foreign programs on this machine."""
    _unpacked("qemu-user-static", "arch-test")
    helper = PLACE / "usr/bin/arch-test"
    helper.write_text(
        helper.read_text().replace("HELPERS=/usr", f"HELPERS={PLACE}/usr")
    )
    return PLACE / "usr/bin/qemu-aarch64-static"


def _unpacked(*packages: str) -> None:
    if (PLACE / "usr/bin/arch-test").exists():
        return
    subprocess.run(["apt-get", "download", "-qq", *packages], cwd=PLACE, check=True)
    for package in PLACE.glob("*.deb"):
        subprocess.run(["dpkg-deb", "--extract", package, PLACE], check=True)
        package.unlink()


def _tree() -> Path:
    tree = PLACE / "tree"
    if not (tree / "workspace").exists():
        shutil.rmtree(tree, ignore_errors=True)
        subprocess.run(
            ["mmdebstrap", "-q", "--arch=arm64", "--variant=extract", "--mode=root", f"--include={PACKAGES}", "bookworm", tree],
            env={**os.environ, "PATH": f"{PLACE}/usr/bin:{os.environ['PATH']}"}, check=True,
        )  # fmt: skip
        for name in (".belljar/link", "home/sandbox", "workspace"):
            (tree / name).mkdir(parents=True, exist_ok=True)
    return tree


def _put_init(tree: Path) -> None:
    build = [sys.executable, ROOT / "sandbox-images/init/build.py", "aarch64"]
    told = subprocess.run(build, check=True, capture_output=True, text=True).stdout
    shutil.copy(told.split(":")[0], tree / ".belljar/init")


if __name__ == "__main__":
    sys.exit(main())
