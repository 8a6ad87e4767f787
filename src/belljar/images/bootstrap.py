"""A root filesystem from Debian packages, for where no image registry can be reached.

mmdebstrap runs on the host with the host's own package mirrors, so where `apt-get install` works this works.
It writes a tar file, imported only once it is whole: a bootstrap that fails half-way leaves no image behind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections import deque
from collections.abc import Callable
from pathlib import Path

from belljar.errors import ImageMissing

RELEASE = "bookworm"
Progress = Callable[[float | None, str], None]

# mmdebstrap's stages as it names them, and about how far along each begins.
_STAGES = {
    "running apt-get update": 0.02,
    "downloading packages": 0.1,
    "extracting archives": 0.3,
    "installing essential": 0.4,
    "installing remaining": 0.5,
    "running --customize-hook": 0.85,
    "creating tarball": 0.9,
}


def bootstrap(packages: list[str], scripts: list[Path], tar: Path, progress: Progress) -> None:
    """Write a root filesystem with `packages` to `tar`, with `scripts` run inside it, one after the other."""
    program = _mmdebstrap()
    command = [
        program, "--variant=minbase", "--format=tar", f"--include={','.join(packages)}",
        *(f'--customize-hook=chroot "$1" sh -s < {shlex.quote(str(script))}' for script in scripts),
        RELEASE, str(tar), *_host_sources(),
    ]  # fmt: skip
    environment = {**os.environ, "LC_ALL": "C"}
    last: deque[str] = deque(maxlen=5)
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, errors="replace",
    ) as process:  # fmt: skip
        assert process.stderr is not None
        for line in process.stderr:
            last.append(line.strip())
            _report(line.strip(), progress)
    if process.returncode:
        raise ImageMissing(f"mmdebstrap could not build the image: {' / '.join(last)}")


def _report(line: str, progress: Progress) -> None:
    for stage, fraction in _STAGES.items():
        if stage in line:
            progress(fraction, stage)


def _mmdebstrap() -> str:
    """Installing it on the host is for the host's owner to decide: `make images` does, we only say so."""
    found = shutil.which("mmdebstrap")
    if not found:
        raise ImageMissing(
            "no image registry can be reached, and mmdebstrap, which needs none, is not installed: "
            "`sudo apt-get install mmdebstrap`, or `make images` in a checkout"
        )
    return found


def _host_sources() -> list[str]:
    """The mirrors this host uses for our release; none on another release, for mmdebstrap to use its own."""
    if not shutil.which("apt-get"):
        return []
    wanted = ["Identifier: Packages", "Component: main", "Origin: Debian"]
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", *wanted],
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    ).stdout  # fmt: skip
    pairs = [tuple(line.split()) for line in dict.fromkeys(listing.splitlines())]
    ours = [pair for pair in pairs if len(pair) == 2 and pair[1].startswith(RELEASE)]
    complete = any(release == RELEASE for _, release in ours)
    return [f"deb {uri} {release} main" for uri, release in ours] if complete else []
