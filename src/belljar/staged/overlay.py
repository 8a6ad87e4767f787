"""The overlay that a staged sandbox sees as its workspace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from belljar import syscalls
from belljar.syscalls import MS_NODEV, MS_NOSUID

# So that a layer can be read without knowing the overlay: no redirects, no metadata-only copies, no index.
_PLAIN = "metacopy=off,index=off,xino=off"


def mount(lowers: Sequence[str | Path], upper: Path, work: Path, target: Path, *, user_marks: bool = False) -> None:
    """`lowers` from the top down. Paths are given as descriptors: a name may hold commas and colons.

    `user_marks`: keep the overlay's marks in user attributes, as a mount in a user namespace must.
    """
    with ExitStack() as opened:

        def handle(path: str | Path) -> str:
            descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            return f"/proc/self/fd/{descriptor}"

        below = ":".join(handle(each) for each in lowers)
        options = f"lowerdir={below},upperdir={handle(upper)},workdir={handle(work)},{_PLAIN}"
        # With user attributes no redirect is ever made, and the kernel takes no other word for that than this one.
        options += ",redirect_dir=nofollow,userxattr" if user_marks else ",redirect_dir=off"
        syscalls.mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options)
