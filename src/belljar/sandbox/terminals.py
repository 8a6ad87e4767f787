"""Limits how many pseudo terminals a sandbox may have open.

The kernel's own limit is for the whole machine (kernel.pty.max), so one sandbox could leave none for the others. The
mount option `max` of a sandbox's /dev/pts is a limit of its own. Engines with a daemon do not offer it, but root can
set it before anything runs, through a descriptor of the mounted file system, without entering the mount namespace.
"""

from __future__ import annotations

import os
from contextlib import suppress

from belljar.engines.kernel_facts import parse_mounts, read
from belljar.engines.spec import TERMINALS
from belljar.syscalls import FSCONFIG, FSPICK, closing, syscall
from belljar.workspace.beneath import Folder

_PLACE, _KIND = "/dev/pts", "devpts"
_FSPICK_CLOEXEC, _FSPICK_EMPTY_PATH = 1, 8
_SET_FLAG, _SET_STRING, _RECONFIGURE = 0, 1, 7


def limit(pid: int) -> bool:
    """Set the limit; whether the sandbox of this PID 1 has one now. The kernel or missing rights may prevent it."""
    options = _options(read(f"/proc/{pid}/mountinfo") or "")
    if options is None:
        return False
    if "max" in options:
        return True
    with suppress(OSError), Folder.at(f"/proc/{pid}/root") as root:
        _reconfigure(root, options | {"max": str(TERMINALS)})
    return "max" in (_options(read(f"/proc/{pid}/mountinfo") or "") or {})


def _options(mountinfo: str) -> dict[str, str] | None:
    """The options of the devpts at /dev/pts; None if something else is mounted there."""
    mount = parse_mounts(mountinfo).get(_PLACE)
    if mount is None or mount.kind != _KIND:
        return None
    pairs = (each.partition("=") for each in mount.options.split(","))
    return {name: value for name, _, value in pairs if name not in ("ro", "rw")}


def _reconfigure(root: Folder, options: dict[str, str]) -> None:
    """Set all options: the others would return to their defaults. Nothing happens if a link leads to the host's."""
    with root.folder(_PLACE.lstrip("/")) as place:
        if os.fstat(place.descriptor).st_dev == os.stat(_PLACE).st_dev:
            return
        picked = syscall(
            FSPICK, place.descriptor, b"", _FSPICK_CLOEXEC | _FSPICK_EMPTY_PATH
        )
    with closing(picked):
        for name, value in options.items():
            how, text = (_SET_STRING, value.encode()) if value else (_SET_FLAG, None)
            syscall(FSCONFIG, picked, how, name.encode(), text, 0)
        syscall(FSCONFIG, picked, _RECONFIGURE, None, None, 0)
