"""The Debian package in a bare Debian: `make deb-test` builds it twice, installs, uses and removes it.

mmdebstrap makes a tree of the Debian that runs here, with python3 and man-db. It is entered in mount and process
namespaces of its own (tests/debian_tree.py). Needs root, mmdebstrap and dpkg-deb.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.debian_tree import PATH, ROOT, Entry, bootstrap

USE = """
belljar --version
belljar check 'rm -rf /' | head -n 1 || true
man -w belljar
test -s /usr/share/bash-completion/completions/belljar
printf '%s\\n' 'echo hi' | belljar --help | head -n 1
"""
GONE = "test ! -e /usr/bin/belljar; test ! -e /usr/lib/belljar; test ! -e /usr/share/doc/belljar; echo gone"


def build(out: Path) -> Path:
    subprocess.run(
        [sys.executable, ROOT / "sandbox-images/package/deb.py", "--out", out],
        check=True,
    )
    (package,) = out.glob("*.deb")
    return package


def suite() -> str:
    release = dict(
        line.split("=", 1)
        for line in Path("/etc/os-release").read_text().splitlines()
        if "=" in line
    )
    return release["VERSION_CODENAME"].strip('"')


def inside(entry: Entry, command: str) -> str:
    done = subprocess.run(
        entry.argv(command),
        env={"PATH": PATH, "HOME": "/root"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        sys.exit(f"deb: {command!r} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    if os.geteuid() or not shutil.which("mmdebstrap"):
        sys.exit("this needs root and mmdebstrap")
    with tempfile.TemporaryDirectory(prefix="bj-deb-", dir="/var/tmp") as name:
        place = Path(name)
        first, second = build(place / "first"), build(place / "second")
        digests = {
            hashlib.sha256(package.read_bytes()).hexdigest()
            for package in (first, second)
        }
        print(
            f"deb: {first.name}, {first.stat().st_size >> 10} KiB, built twice: {len(digests)} content",
            flush=True,
        )
        if len(digests) != 1:
            sys.exit("deb: two builds of one commit differ")
        tree = place / "tree"
        bootstrap(tree, suite(), ["python3", "man-db"], "--variant=minbase")
        shutil.copy(first, tree / "belljar.deb")
        entry = Entry(tree)
        inside(entry, "dpkg -i /belljar.deb")
        print(inside(entry, USE), end="")
        print(
            f"deb: removed: {inside(entry, f'dpkg -P belljar >/dev/null; {GONE}')}",
            end="",
        )


if __name__ == "__main__":
    main()
