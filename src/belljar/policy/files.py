"""Reading, writing and deleting files: from a word to an effect with a path class."""

import re

from belljar.patterns import lazy_pattern

from . import expressions
from .interpreter import Interpreter
from .marks import (
    ATOM,
    DISGUISED,
    ENDLESS,
    FILE,
    HOLES,
    NETWORK,
    OPAQUE,
    SECRET,
    SENSITIVE,
    UNKNOWN,
    UNSET,
)

from .marks import drop_unset, plain_text  # isort: skip
from .paths import HOME, classify, resolve
from .shellstate import ShellState

_NONE: frozenset[str] = frozenset()
_HOST = lazy_pattern(
    r"(?i)(?:[a-z][a-z0-9+.-]*://)?(?:[^/@]*@)?(\[[0-9a-f:]+\]|[^/:?#]+)"
)
CONTENTS = {
    "/dev/null": "",
    **dict.fromkeys(("/dev/zero", "/dev/urandom", "/dev/random"), ENDLESS),
    "/etc/passwd": f"root:x:0:0:root:/root:/bin/bash\nsandbox:x:1000:1000:me:{HOME}:/bin/bash\n{SENSITIVE}",
    "/etc/group": f"root:x:0:\nsandbox:x:1000:\n{SENSITIVE}",
    **dict.fromkeys(
        ("/proc/mounts", "/proc/self/mounts", "/etc/mtab", "/etc/fstab"),
        f"{ATOM} / {ATOM}\n",
    ),
}


def locate(
    path: str, state: ShellState, last: bool = True
) -> tuple[str, str, frozenset[str]]:
    """Full path, class and flags of a path. `last`: follow a link in its last component."""
    if UNSET in path:
        if not (bare := drop_unset(path)):
            return UNSET, "unknown", frozenset({"unset"})
        full, kind, flags = locate(bare, state, last)
        return full, kind, flags | {"unset"}
    if path and path[0] in OPAQUE:
        flags = frozenset(
            {"unknown", "disguised"} if path[0] == DISGUISED else {"unknown"}
        )
        return path, _class_by_suffix(path), flags
    full = resolve(path, state.cwd, state.links, state.home(), last)
    if full[:1] != "/":
        return full, "unknown", frozenset({"unknown"})
    kind, flags = classify(full)
    return full, kind, flags | ({"slash"} if path.endswith("/") else _NONE)


def _class_by_suffix(path: str) -> str:
    """The class of a path with an unknown beginning: a key is a secret, and a hook a hook, in any directory."""
    tail = path.lstrip(HOLES)
    places = (
        (f"{HOME}{tail}", f"{HOME}/site-packages{tail}")
        if tail[:1] == "/" and ".." not in tail
        else ()
    )
    kinds = [classify(resolve(place, "/"))[0] for place in places]
    return next((kind for kind in kinds if kind in ("secret", "exec_hook")), "unknown")


def read_path(machine: Interpreter, path: str, state: ShellState) -> str:
    """Emit the read. Returns what this command wrote there, or a mark."""
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


def write_path(
    machine: Interpreter, path: str, state: ShellState, flags: frozenset[str] = _NONE
) -> None:
    full, kind, found = locate(path, state)
    if kind == "device" and "socket" in found:
        socket_path(machine, full)
        return
    if full in machine.sinks:
        return
    machine.emit("write", full, kind, flags | found)


def socket_path(machine: Interpreter, full: str) -> None:
    host = (full.split("/") + [""] * 5)[3]
    local = is_loopback(host) or re.fullmatch("[a-z][a-z0-9_-]*", host)
    machine.emit("net.socket", full, flags=frozenset({"local"}) if local else _NONE)


def delete_path(
    machine: Interpreter, path: str, state: ShellState, flags: frozenset[str]
) -> None:
    """A tilde that bash has not expanded is part of a name. Of a link, only the link is deleted."""
    for part in _each_line(path):
        part = f"./{part}" if part.startswith("~") else part
        full, kind, found = locate(part, state, last=part.endswith("/"))
        machine.emit("delete", full, kind, flags | found)
        state.files.pop(full, None)


def change_path(
    machine: Interpreter, path: str, state: ShellState, flags: frozenset[str]
) -> None:
    for part in _each_line(path):
        full, kind, found = locate(part, state)
        machine.emit("chmod", full, kind, flags | found)


def _each_line(path: str) -> list[str]:
    """A path of several lines is what a program printed that would print one of them."""
    return path.split("\n") if "\n" in path.strip("\n") else [path]


def host_of(url: str) -> str:
    found = _HOST.match(plain_text(url))
    return found[1] if found else ""


def is_loopback(host: str) -> bool:
    return (
        expressions.is_a("loopback", plain_text(host).strip("[]").lower()) is not None
    )
