"""Runtimes other than runc: from PATH, or unpacked from Debian packages by `python -m tests.runtimes`.

Nothing is installed into the system. crun is of this machine's release; gVisor's runsc is of the first release that
has it. Both come by this machine's apt settings.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from belljar import resources

RUNSC_RELEASE = "trixie"
FETCH = "`python -m tests.runtimes` fetches it"


def find(name: str) -> str | None:
    fetched = _directory() / "bin" / name
    return shutil.which(name) or (str(fetched) if fetched.exists() else None)


def _directory() -> Path:
    return resources.cache_dir() / "runtimes"


def fetch() -> None:
    (_directory() / "bin").mkdir(parents=True, exist_ok=True)
    _fetch("crun", [], "crun", "libyajl2")
    _fetch("runsc", _apt_options(RUNSC_RELEASE), "runsc")


def _fetch(name: str, settings: list[str], *packages: str) -> None:
    """Unpack the packages, and write a script that starts the program with its own libraries."""
    tree = _directory() / name
    tree.mkdir(exist_ok=True)
    if settings:
        subprocess.run(["apt-get", "-q", *settings, "update"], check=True)
    subprocess.run(["apt-get", "-q", *settings, "-o", "APT::Sandbox::User=root", "download", *packages],
                   check=True, cwd=tree)  # fmt: skip
    for package in tree.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
        package.unlink()
    libraries = ":".join(
        str(path) for path in sorted((tree / "usr/lib").glob("*-linux-gnu"))
    )
    script = _directory() / "bin" / name
    script.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {tree}/usr/bin/{name} "$@"\n'
    )
    script.chmod(0o755)


def _apt_options(release: str) -> list[str]:
    place = _directory() / release
    for name in ("lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    (place / "sources").write_text(f"deb {listed[0]} {release} main\n")
    options = {
        "Dir::Etc::sourcelist": place / "sources", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "lists", "Dir::Cache": place / "cache",
    }  # fmt: skip
    return [
        word for name, value in options.items() for word in ("-o", f"{name}={value}")
    ]


if __name__ == "__main__":
    fetch()
