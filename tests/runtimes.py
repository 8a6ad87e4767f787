"""Runtimes other than runc, and `docker compose`, with which `make bench` compares: this machine's, or unpacked from
Debian packages by `python -m tests.runtimes`.

Nothing is installed into the system. crun is of this machine's release; gVisor's runsc and compose are of the first
release that has them. All come by this machine's apt settings.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
from pathlib import Path

from belljar import resources

NEWER_RELEASE = "trixie"
COMPOSE = "docker-compose"
COMPOSE_PLUGIN = f"usr/libexec/docker/cli-plugins/{COMPOSE}"
FETCH = "`python -m tests.runtimes` fetches it"


def find(name: str) -> str | None:
    fetched = _directory() / "bin" / name
    return shutil.which(name) or (str(fetched) if fetched.exists() else None)


def _directory() -> Path:
    return resources.cache_dir() / "runtimes"


def fetch() -> None:
    (_directory() / "bin").mkdir(parents=True, exist_ok=True)
    _fetch("crun", [], "crun", "libyajl2")
    newer = _apt_options(NEWER_RELEASE)
    subprocess.run(["apt-get", "-q", *newer, "update"], check=True)
    _fetch("runsc", newer, "runsc")
    _unpack(COMPOSE, newer, COMPOSE)
    plugin = _docker_config() / "cli-plugins" / COMPOSE
    plugin.parent.mkdir(parents=True, exist_ok=True)
    plugin.unlink(missing_ok=True)
    plugin.symlink_to(_directory() / COMPOSE / COMPOSE_PLUGIN)


def _docker_config() -> Path:
    return _directory() / "docker-config"


def with_compose() -> dict[str, str] | None:
    """Variables with which `docker compose` works; None if there is none."""
    fetched: dict[str, str] = {"DOCKER_CONFIG": str(_docker_config())}
    for variables in ({}, fetched):
        asked = ["docker", "compose", "version"]
        with contextlib.suppress(FileNotFoundError):
            if subprocess.run(asked, capture_output=True, env={**os.environ, **variables}).returncode == 0:  # fmt: skip
                return variables
    return None


def _fetch(name: str, settings: list[str], *packages: str) -> None:
    """Unpack the packages, and write a script that starts the program with its own libraries."""
    tree = _unpack(name, settings, *packages)
    libraries = ":".join(
        str(path) for path in sorted((tree / "usr/lib").glob("*-linux-gnu"))
    )
    script = _directory() / "bin" / name
    script.write_text(
        f'#!/bin/sh\nLD_LIBRARY_PATH={libraries} exec {tree}/usr/bin/{name} "$@"\n'
    )
    script.chmod(0o755)


def _unpack(name: str, settings: list[str], *packages: str) -> Path:
    tree = _directory() / name
    tree.mkdir(exist_ok=True)
    subprocess.run(["apt-get", "-q", *settings, "-o", "APT::Sandbox::User=root", "download", *packages],
                   check=True, cwd=tree)  # fmt: skip
    for package in tree.glob("*.deb"):
        subprocess.run(["dpkg-deb", "-x", package, tree], check=True)
        package.unlink()
    return tree


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
