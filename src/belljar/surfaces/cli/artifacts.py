"""`--artifacts DIR`: what a command leaves in $BELLJAR_ARTIFACTS is copied out when it has ended, however it ended.

Only files and directories are: whatever reads DIR later, such as the upload of a CI job, would follow a link.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from belljar.errors import BelljarError, FileFailed, UsageError
from belljar.session.archive import Unpacker
from belljar.session.host_paths import HostPath
from belljar.session.session import Session
from belljar.surfaces.cli import console

if TYPE_CHECKING:
    from argparse import Namespace

VARIABLE, PLACE = "BELLJAR_ARTIFACTS", "/tmp/belljar-artifacts"
DEEPEST = 64
_COPIED = ("file", "directory")


async def prepare(box: Session, args: Namespace) -> None:
    """Before the command: an empty directory, and its name in the environment."""
    if args.artifacts is None:
        return
    if not await to_thread.run_sync(_is_free, Path(args.artifacts)):
        raise UsageError(
            f"--artifacts {args.artifacts}: name a new directory, or an empty one"
        )
    if await box.files.exists(PLACE):
        await box.files.remove(PLACE)
    await box.files.mkdir(PLACE)
    args.env = [*args.env, (VARIABLE, PLACE)]


def _is_free(target: Path) -> bool:
    return not target.is_symlink() and (
        not target.exists() or (target.is_dir() and not any(target.iterdir()))
    )


async def copy_out(box: Session, args: Namespace) -> bool:
    """False if they could not be copied, which was told: how the command ended is worth more."""
    if args.artifacts is None:
        return True
    try:
        await _copied(box, args)
    except (BelljarError, OSError) as error:
        console.note(f"--artifacts {args.artifacts}: {error}")
        return False
    return True


async def _copied(box: Session, args: Namespace) -> None:
    if (await box.files.stat(PLACE, follow=False)).kind != "directory":
        raise FileFailed("the command put something else in the directory's place")
    found = await box.files.list(PLACE, depth=DEEPEST)
    workspace = (
        box.sandbox.workspace.descriptor if isinstance(box, Session) else None
    )  # a service has its own
    with HostPath(args.artifacts, workspace).folder(make=True) as folder:
        unpacker = Unpacker(folder, links=False)
        try:
            await box.files.pack(PLACE, unpacker.feed)
        finally:
            unpacker.close()
    if left := [each.path for each in found if each.kind not in _COPIED]:
        shown = ", ".join(left[:5]) + (
            f" and {len(left) - 5} more" if len(left) > 5 else ""
        )
        console.note(f"--artifacts: left out, being no files or directories: {shown}")
