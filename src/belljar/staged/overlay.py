"""The overlay that a staged sandbox sees as its workspace."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from belljar import syscalls
from belljar.syscalls import MS_NODEV, MS_NOSUID

# No redirects, metadata-only copies or index: layers.py reads the layers without the overlay.
_PLAIN = "metacopy=off,index=off,xino=off"


def mount(
    lowers: Sequence[str | Path],
    upper: Path,
    work: Path,
    target: Path,
    *,
    user_marks: bool = False,
) -> None:
    """Mount an overlay. `lowers`: from the top down. The kernel gets descriptors: names may have commas and colons.

    `user_marks`: keep the overlay's marks in user attributes, as a user namespace requires.
    """
    with ExitStack() as opened:

        def handle(path: str | Path) -> str:
            descriptor = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            opened.callback(os.close, descriptor)
            return f"/proc/self/fd/{descriptor}"

        below = ":".join(handle(each) for each in lowers)
        options = (
            f"lowerdir={below},upperdir={handle(upper)},workdir={handle(work)},{_PLAIN}"
        )
        # With user attributes there are no redirects, and the kernel accepts only this option for that.
        options += (
            ",redirect_dir=nofollow,userxattr" if user_marks else ",redirect_dir=off"
        )
        syscalls.mount("overlay", target, "overlay", MS_NOSUID | MS_NODEV, options)
