"""Builds from a Dockerfile without a daemon, with buildah if it is installed, for Belljar's own store. Blocking.

buildah has a store of its own, made for one build: the images that the build begins with go in, the new one comes out
as an archive that is imported like any other. Its steps run as Docker's do: in containers, with the network.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from belljar import environment
from belljar.errors import EngineError, ImageMissing
from belljar.images.exporting import export_image
from belljar.images.image_store import Recipe
from belljar.images.importing import import_shared
from belljar.images.store import Store
from belljar.images.unpack import Allowance, Metered, unpack
from belljar.user_namespace import remove_tree

_LAST_LINES = 12

Report = Callable[[str], None]


def build(store: Store, recipe: Recipe, report: Report) -> None:
    program = shutil.which("buildah")
    if program is None:
        raise ImageMissing(
            "without a daemon buildah builds from a Dockerfile, and it is not installed: `apt-get install buildah`"
        )
    with _directory() as work:
        buildah = _Buildah(program, work, report)
        for parent in recipe.parents:
            _give(store, parent, buildah)
        (work / "context").mkdir()
        stream = Metered(recipe.context, Allowance().bytes, hashed=False)
        unpack(stream, work / "context", Allowance())
        dockerfile = work / "Dockerfile"
        shutil.copyfile(
            work / "context" / recipe.dockerfile, dockerfile, follow_symlinks=False
        )
        buildah.run("build", *_options(recipe, dockerfile), str(work / "context"))
        archive = work / "built.tar"
        buildah.run("push", recipe.reference, f"docker-archive:{archive}")
        report("importing the image")
        import_shared(store, archive, recipe.reference)


def _options(recipe: Recipe, dockerfile: Path) -> Iterator[str]:
    """A copy of the Dockerfile: its own name may tell buildah to let cpp include files of this machine."""
    yield from ("--format", "docker", "--tag", recipe.reference)
    yield from ("--file", str(dockerfile))
    for name, value in recipe.arguments.items():
        yield from ("--build-arg", f"{name}={value}")
    for name, value in recipe.labels.items():
        yield from ("--label", f"{name}={value}")


def _give(store: Store, parent: str, buildah: _Buildah) -> None:
    """Let the build begin with an image of ours. Any other it fetches itself."""
    if (image := store.find(parent)) is not None:
        archive = buildah.work / "parent.tar"
        export_image(
            store, image, archive, [parent if ":" in parent else f"{parent}:latest"]
        )
        buildah.run("pull", f"docker-archive:{archive}")


class _Buildah:
    def __init__(self, program: str, work: Path, report: Report) -> None:
        self.work = work
        self._report = report
        places = ("--root", str(work / "root"), "--runroot", str(work / "run"))
        self._command = [program, *places, "--storage-driver", "vfs"]

    def run(self, *argv: str) -> None:
        last = deque[str](maxlen=_LAST_LINES)
        with subprocess.Popen(
            [*self._command, *argv],
            cwd=self.work / "context" if argv[0] == "build" else "/",
            env=environment.for_program(TMPDIR=str(self.work)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            process_group=0,
        ) as process:
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    last.append(line.strip())
                    self._report(line)
            except BaseException:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGTERM)
                raise
        if process.returncode:
            raise EngineError(
                f"buildah {argv[0]} failed: {' / '.join(list(last)[-4:])}"
            )


@contextmanager
def _directory() -> Iterator[Path]:
    """What is in it may belong to a user's subordinate ids."""
    work = Path(tempfile.mkdtemp(prefix="belljar-buildah-"))
    try:
        yield work
    finally:
        remove_tree(work)
