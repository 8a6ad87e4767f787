"""Renews lock/*.txt, beside this, from pyproject.toml: the newest versions that have wheels, with all their hashes.

The resolver, `uv`, comes from the index that pip is configured for. The lock is written only if every package has a
wheel for every supported Python and machine.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = Path(__file__).parent / "lock"
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
MACHINES = ["x86_64", "aarch64"]

# The adapters' extras are not among them: no environment holds all frameworks. `make adapters-test` makes one for each.
EXTRAS = ["kubernetes", "mcp", "remote", "serve", "shell", "tls"]
# Set → what it holds. Each is resolved within the ones before it, so that they agree.
SETS = {
    "run": ["pyproject.toml", "--extra", "shell", "--group", "install"],
    "compiler": ["--group", "compiler"],
    "test": ["pyproject.toml", *(f"--extra={extra}" for extra in EXTRAS),
             *(f"--group={group}" for group in ("install", "compiler", "test", "lint"))],
}  # fmt: skip


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="belljar-lock-") as name:
        place = Path(name)
        venv.create(place / "venv", with_pip=True)
        pip = [
            str(place / "venv/bin/python"),
            "-m",
            "pip",
            "--disable-pip-version-check",
        ]
        subprocess.run(
            [*pip, "install", "-q", "--only-binary", ":all:", "--upgrade", "pip", "uv"],
            check=True,
        )
        for kind in SETS:
            _resolve(place, kind)
            _prove(place, kind)
        LOCK.mkdir(exist_ok=True)
        for kind in SETS:
            shutil.copyfile(place / f"{kind}.txt", LOCK / f"{kind}.txt")


def _resolve(place: Path, kind: str) -> None:
    earlier = [
        argument
        for each in SETS
        if (place / f"{each}.txt").exists()
        for argument in ("-c", f"{place}/{each}.txt")
    ]
    subprocess.run(
        [place / "venv/bin/uv", "pip", "compile", "--quiet", "--universal", "--python-version", PYTHONS[0], "--upgrade",
         "--generate-hashes", "--only-binary", ":all:", "--no-header", "--no-annotate", *SETS[kind], *earlier,
         "-o", place / f"{kind}.txt"],
        cwd=ROOT, check=True,
    )  # fmt: skip


def _prove(place: Path, kind: str) -> None:
    for python in PYTHONS:
        for machine in MACHINES:
            print(f"{kind}: wheels for Python {python} on {machine}", file=sys.stderr)
            subprocess.run(
                [place / "venv/bin/uv", "pip", "install", "--quiet", "--dry-run", "--no-deps", "--require-hashes",
                 "--only-binary", ":all:", "--target", place / "nowhere", "--python-version", python,
                 "--python-platform", f"{machine}-manylinux_2_28", "-r", place / f"{kind}.txt"],
                check=True,
            )  # fmt: skip


if __name__ == "__main__":
    main()
