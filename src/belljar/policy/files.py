"""Reading, writing and deleting paths: from a word to an effect with a path class."""

import re
from typing import TYPE_CHECKING

from . import expressions
from .expressions import named
from .marks import ATOM, DISGUISED, FILE, HOLES, NETWORK, OPAQUE, SECRET, SELF, SENSITIVE, UNKNOWN, UNSET, solid, unglob
from .paths import HOME, classify, resolve
from .shellstate import ShellState

if TYPE_CHECKING:
    from .machine import Machine

_NONE: frozenset[str] = frozenset()
CONTENTS = {
    "/dev/null": "", **dict.fromkeys(("/dev/zero", "/dev/urandom", "/dev/random"), SELF),
    "/etc/passwd": f"root:x:0:0:root:/root:/bin/bash\nsandbox:x:1000:1000:me:{HOME}:/bin/bash\n{SENSITIVE}",
    "/etc/group": f"root:x:0:\nsandbox:x:1000:\n{SENSITIVE}",
    **dict.fromkeys(("/proc/mounts", "/proc/self/mounts", "/etc/mtab", "/etc/fstab"), f"{ATOM} / {ATOM}\n"),
}  # fmt: skip


def locate(path: str, state: ShellState, last: bool = True) -> tuple[str, str, frozenset[str]]:
    """Full path, class and flags of a word used as a path."""
    if UNSET in path:
        if not (bare := solid(path)):
            return UNSET, "unknown", frozenset({"unset"})
        full, kind, flags = locate(bare, state, last)
        return full, kind, flags | {"unset"}
    if path and path[0] in OPAQUE:
        return path, _by_tail(path), frozenset({"unknown", "disguised"} if path[0] == DISGUISED else {"unknown"})
    full = resolve(path, state.cwd, state.links, state.home(), last)
    if full[:1] != "/":
        return full, "unknown", frozenset({"unknown"})
    kind, flags = classify(full)
    return full, kind, flags | ({"slash"} if path.endswith("/") else _NONE)


def _by_tail(path: str) -> str:
    """Wherever it may be: a key is a key, and a file that runs by itself does so, in any home and any library."""
    tail = path.lstrip(HOLES)
    places = (f"{HOME}{tail}", f"{HOME}/site-packages{tail}") if tail[:1] == "/" and ".." not in tail else ()
    kinds = [classify(resolve(place, "/"))[0] for place in places]
    return next((kind for kind in kinds if kind in ("secret", "exec_hook")), "unknown")


def read_path(machine: "Machine", path: str, state: ShellState) -> str:
    """Emit the read and give the contents: what this command wrote there, or a mark for what it is."""
    full, kind, flags = locate(path, state)
    if (made := machine.read_file(path, state)) is not None:
        return made
    if kind == "device" and "socket" in flags:
        socket_path(machine, full)
        return NETWORK
    machine.emit("read", full, kind, flags)
    if kind == "secret" or "secret" in flags:
        return SECRET
    if "sensitive" in flags or "/environ" in full:
        return SENSITIVE
    if full in CONTENTS:
        return CONTENTS[full]
    return FILE if kind != "unknown" else UNKNOWN


def write_path(machine: "Machine", path: str, state: ShellState, flags: frozenset[str] = _NONE) -> None:
    full, kind, found = locate(path, state)
    if kind == "device" and "socket" in found:
        socket_path(machine, full)
        return
    if full in machine.sinks:
        return
    machine.emit("write", full, kind, flags | found)


def socket_path(machine: "Machine", full: str) -> None:
    host = (full.split("/") + [""] * 5)[3]
    local = is_loopback(host) or re.fullmatch("[a-z][a-z0-9_-]*", host)
    machine.emit("net.socket", full, flags=frozenset({"local"}) if local else _NONE)


def delete_path(machine: "Machine", path: str, state: ShellState, flags: frozenset[str]) -> None:
    """bash has expanded the tilde by now; one that is left is a name. A link is deleted, not what it points to."""
    for part in _lines(path):
        part = f"./{part}" if part.startswith("~") else part
        full, kind, found = locate(part, state, last=part.endswith("/"))
        machine.emit("delete", full, kind, flags | found)
        state.files.pop(full, None)


def change_path(machine: "Machine", path: str, state: ShellState, flags: frozenset[str]) -> None:
    for part in _lines(path):
        full, kind, found = locate(part, state)
        machine.emit("chmod", full, kind, flags | found)


def _lines(path: str) -> list[str]:
    """A path of several lines is the output of a program that would have picked one of them."""
    return path.split("\n") if "\n" in path.strip("\n") else [path]


def is_loopback(host: str) -> bool:
    return expressions.fullmatch(named("loopback"), unglob(solid(host)).strip("[]").lower()) is not None
