"""How many pseudo terminals a sandbox may have open.

The kernel counts them for the whole machine (kernel.pty.max, of which all containers together get three quarters), so
one sandbox could leave none for the others. A bound of its own (`max`) is an option of its /dev/pts. Engines with a
daemon do not let a caller choose that, but root may change it before anything runs: without the mount namespace being
entered, by a descriptor of what is mounted there.
"""

from __future__ import annotations

import os
from contextlib import suppress

from belljar.engines.kernel_facts import read
from belljar.engines.spec import TERMINALS
from belljar.syscalls import FSCONFIG, FSPICK, syscall
from belljar.workspace.beneath import Folder

_PLACE, _KIND = "/dev/pts", "devpts"
_FSPICK_CLOEXEC, _FSPICK_EMPTY_PATH = 1, 8
_SET_FLAG, _SET_STRING, _RECONFIGURE = 0, 1, 7


def limit(pid: int) -> bool:
    """Whether the sandbox whose PID 1 this is has a bound now; not where the kernel or our rights do not allow it."""
    options = _options(read(f"/proc/{pid}/mountinfo") or "")
    if options is None:
        return False
    if "max" in options:
        return True
    with suppress(OSError), Folder.at(f"/proc/{pid}/root") as root:
        _reconfigure(root, options | {"max": str(TERMINALS)})
    return "max" in (_options(read(f"/proc/{pid}/mountinfo") or "") or {})


def _options(mountinfo: str) -> dict[str, str] | None:
    """Of the file system at /dev/pts, if it is what belongs there."""
    found = None
    for line in mountinfo.splitlines():
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        if left.split(" ")[4] == _PLACE:
            pairs = (each.partition("=") for each in options.split(","))
            found = {name: value for name, _, value in pairs if name not in ("ro", "rw")} if kind == _KIND else None
    return found


def _reconfigure(root: Folder, options: dict[str, str]) -> None:
    """All options: those that are not given go back to what they are by default. No link of an image leads to ours."""
    with root.folder(_PLACE.lstrip("/")) as place:
        if os.fstat(place.descriptor).st_dev == os.stat(_PLACE).st_dev:
            return
        picked = syscall(FSPICK, place.descriptor, b"", _FSPICK_CLOEXEC | _FSPICK_EMPTY_PATH)
    try:
        for name, value in options.items():
            how, text = (_SET_STRING, value.encode()) if value else (_SET_FLAG, None)
            syscall(FSCONFIG, picked, how, name.encode(), text, 0)
        syscall(FSCONFIG, picked, _RECONFIGURE, None, None, 0)
    finally:
        os.close(picked)
