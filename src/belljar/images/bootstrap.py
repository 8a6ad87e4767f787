"""Builds a root filesystem from Debian packages, for machines that reach no image registry.

mmdebstrap runs on the host with the host's own package mirrors, so it works wherever `apt-get install` works.
It writes a tar file that is imported only when complete: a failed bootstrap leaves no image behind.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections import deque
from contextlib import suppress
from pathlib import Path

from belljar import environment
from belljar.errors import ImageMissing
from belljar.images.progress import Progress

RELEASE = "bookworm"

# mmdebstrap's names of its stages → the fraction of the whole at which each begins, roughly.
_STAGES = {
    "running apt-get update": 0.02,
    "downloading packages": 0.1,
    "extracting archives": 0.3,
    "installing essential": 0.4,
    "installing remaining": 0.5,
    "running --customize-hook": 0.85,
    "creating tarball": 0.9,
}
_STEPS = {"Get:": 4, "Unpacking ": 1, "Setting up ": 2}
"""What apt and dpkg print once for each package → the index of the word that names the package."""


# Copies what a script inside needs to reach a package index as this machine does; finish.sh removes it again.
_COPY_NETWORK_FILES = (
    "for file in resolv.conf hosts ssl/certs/ca-certificates.crt; do "
    'if [ -e "/etc/$file" ] && [ -d "$(dirname "$1/etc/$file")" ]; then cp -L "/etc/$file" "$1/etc/$file"; fi; done'
)


def fetch(images: list[str], into: Path, progress: Progress) -> None:
    """Fetch what Debian does not have, with this machine's own clients and their settings."""
    into.mkdir(exist_ok=True)
    if "python" in images:
        progress(0.0, "fetching uv")
        pip = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--no-deps",
            "--only-binary",
            ":all:",
        ]
        subprocess.run(
            [*pip, "--dest", str(into), "uv"],
            cwd="/",
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    if {"node", "dev"} & set(images):
        progress(0.0, "fetching Node")
        npm = shutil.which("npm")
        machine = {"x86_64": "x64", "aarch64": "arm64"}.get(os.uname().machine, "x64")
        if npm is None:
            raise ImageMissing(
                "Node 22 comes from the npm registry, and npm is not installed here: apt-get install npm"
            )
        pack = [
            npm,
            "pack",
            "--silent",
            "--pack-destination",
            str(into),
            f"node-linux-{machine}@22",
            "npm@10",
        ]
        done = subprocess.run(
            pack,
            cwd="/",
            check=False,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ImageMissing(
                f"npm could not fetch Node: {done.stderr.strip()[-300:]}"
            )


def bootstrap(
    packages: list[str],
    scripts: list[Path],
    tar: Path,
    progress: Progress,
    fetched: Path | None = None,
) -> None:
    """Write a root filesystem with `packages` to `tar`, after running `scripts` inside it one by one. They find what
    `fetch` fetched in /.fetched."""
    program = _mmdebstrap()
    command = [
        program,
        "--verbose",
        "--variant=minbase",
        "--format=tar",
        f"--include={','.join(packages)}",
        f"--customize-hook={_COPY_NETWORK_FILES}",
        *(
            [f'--customize-hook=cp -r {shlex.quote(str(fetched))} "$1/.fetched"']
            if fetched
            else []
        ),
        *(
            f'--customize-hook=chroot "$1" sh -s < {shlex.quote(str(script))}'
            for script in scripts
        ),
        RELEASE,
        str(tar),
        *_host_sources(),
    ]
    variables = environment.for_program(LC_ALL="C")
    last, stages = deque[str](maxlen=40), Stages(progress)
    with subprocess.Popen(
        command,
        env=variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        assert process.stderr is not None
        _running.add(process)
        try:
            for line in process.stderr:
                last.append(line.strip())
                stages.read(line.strip())
        except BaseException:
            stop()
            raise
        finally:
            _running.discard(process)
    if process.returncode:
        errors = [line for line in last if line.startswith(("E:", "dpkg:"))] or [*last]
        raise ImageMissing(
            f"mmdebstrap could not build the image: {' / '.join(errors[-5:])}"
        )


_running: set[subprocess.Popen[str]] = set()


def stop() -> None:
    """Stop the builds of this process, which then fail. Signals each only once: mmdebstrap's children end, and then it
    removes what they made."""
    for process in tuple(_running):
        _running.discard(process)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)


class Stages:
    """Estimates mmdebstrap's progress from what it and apt print: the stage, and the packages done in it."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._stage = ""
        self._from = 0.0
        self._to = 0.0
        self._packages = 0
        self._steps = 0
        self._shown = 0.0

    def read(self, line: str) -> None:
        words = line.split()
        if stage := next(
            (stage for stage in _STAGES if line.startswith(f"I: {stage}")), None
        ):
            self._stage = stage
            self._from = _STAGES[stage]
            self._steps = 0
            self._to = min(
                (begin for begin in _STAGES.values() if begin > self._from),
                default=self._from,
            )
            self._report(self._from, stage)
        elif words[3:5] == ["newly", "installed,"] and words[2].isdecimal():
            self._packages = int(words[2])
        elif self._packages and (
            step := next((step for step in _STEPS if line.startswith(step)), None)
        ):
            self._steps += 1
            share = min(1.0, self._steps / (len(_STEPS) * self._packages))
            if (
                fraction := self._from + share * (self._to - self._from)
            ) - self._shown >= 0.01:
                self._report(
                    fraction, f"{self._stage}: {words[_STEPS[step]].partition(':')[0]}"
                )

    def _report(self, fraction: float, text: str) -> None:
        self._shown = fraction
        self._progress(fraction, text)


def _mmdebstrap() -> str:
    """We never install it ourselves, since that is the machine owner's decision; `make images` does."""
    program = shutil.which("mmdebstrap")
    if not program:
        raise ImageMissing(
            "no image registry can be reached, and mmdebstrap, which needs none, is not installed: "
            "`sudo apt-get install mmdebstrap`, or `make images` in a checkout"
        )
    return program


def _host_sources() -> list[str]:
    """The mirrors that this host uses for our release; empty on another release, where mmdebstrap uses its own."""
    if not shutil.which("apt-get"):
        return []
    filters = ["Identifier: Packages", "Component: main", "Origin: Debian"]
    listing = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", *filters],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    ).stdout
    pairs = [tuple(line.split()) for line in dict.fromkeys(listing.splitlines())]
    ours = [pair for pair in pairs if len(pair) == 2 and pair[1].startswith(RELEASE)]
    complete = any(release == RELEASE for _, release in ours)
    return [f"deb {uri} {release} main" for uri, release in ours] if complete else []
