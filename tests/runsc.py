"""gVisor's runsc: the one on PATH, or Debian's, which `python -m tests.runsc` unpacks beside the system.

It comes from the release that has it, by this machine's own apt settings.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from belljar import resources

RELEASE = "trixie"


def found() -> str | None:
    fetched = _place() / "usr/bin/runsc"
    return shutil.which("runsc") or (str(fetched) if fetched.exists() else None)


def _place() -> Path:
    return resources.cache_dir() / "runsc"


def fetch() -> None:
    place = _place()
    for name in ("lists/partial", "cache/archives/partial"):
        (place / name).mkdir(parents=True, exist_ok=True)
    listed = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
        check=True, capture_output=True, text=True,
    ).stdout.split()  # fmt: skip
    (place / "sources").write_text(f"deb {listed[0]} {RELEASE} main\n")
    options = {
        "Dir::Etc::sourcelist": place / "sources", "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State::lists": place / "lists", "Dir::Cache": place / "cache", "APT::Sandbox::User": "root",
    }  # fmt: skip
    apt = ["apt-get", "-q", *(word for name, value in options.items() for word in ("-o", f"{name}={value}"))]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "download", "runsc"], check=True, cwd=place)
    [package] = place.glob("runsc_*.deb")
    subprocess.run(["dpkg-deb", "-x", package, place], check=True)


if __name__ == "__main__":
    fetch()
