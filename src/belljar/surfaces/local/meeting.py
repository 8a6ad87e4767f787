"""Where client and server meet, and what they say.

    client → server    request: (protocol, which streams are terminals, belljar-python), argv, variables
    worker → client    taken PID: a worker is there; nothing has run yet
    client → worker    go, and with it stdin, stdout and stderr: a server that hangs never holds them
    worker → client    status N
    server → client    refused REASON: the client runs the command line itself, by becoming belljar-python

The socket is in a directory that only its user may enter, and each side asks the kernel who the other is. The server
looks for itself how the client is confined (`standing`): a free process must not run the commands of a confined one.
And belljar-python must be what the server is: the same Python with the same Belljar (`is_ours`).
"""

from __future__ import annotations

import os
import re
import socket
import stat
import sys
from collections.abc import Mapping

from belljar import environment

PROTOCOL = b"belljar 1"

RELAYED = frozenset(("run", "check", "call", "start", "logs", "ps"))
MOST_BYTES = (
    8 << 20
)  # of a request; the kernel allows less than 6 MiB for arguments and variables
CREDENTIALS = 12
_INTERPRETER = (b"PYTHON", b"LD_", b"GLIBC_TUNABLES", b"MALLOC_")
_HARMLESS = frozenset(
    (b"PYTHONDONTWRITEBYTECODE", b"PYTHONHASHSEED", b"PYTHONUNBUFFERED")
)
_PYTHON_NAMED = re.compile(rb"\A#!(?:/bin/sh\n'''exec' )?\"?(/[^\s\"]+)")
NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "user", "uts")
_STANDING = (
    "Uid",
    "Gid",
    "Groups",
    "NoNewPrivs",
    "Seccomp",
    "CapInh",
    "CapPrm",
    "CapEff",
    "CapBnd",
    "CapAmb",
)


class Unmet(Exception):
    """No server that could be trusted to carry it out; the message says why."""


def is_ours(launcher: bytes) -> bool:
    """Whether this program would be run by the Python that runs us."""
    try:
        file = os.open(launcher, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError):
        return False
    try:
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        named = _PYTHON_NAMED.match(os.read(file, 4096)) if regular else None
    finally:
        os.close(file)
    return named is not None and _same(os.fsdecode(named[1]), sys.executable)


def _same(one: str, other: str) -> bool:
    """`bin/python` and `bin/python3` are; that of another environment is not."""
    return os.path.dirname(one) == os.path.dirname(other) and os.path.realpath(
        one
    ) == os.path.realpath(other)


def interpreter(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The variables that choose what a Python loads, and how it works."""
    return {
        name: value
        for name, value in variables.items()
        if name.startswith(_INTERPRETER) and name not in _HARMLESS
    }


def directory() -> str:
    return os.path.join(environment.run_place(), "local")


def enter(path: str) -> int:
    """A descriptor of the meeting place, if nobody else can put a socket there."""
    place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    status = os.fstat(place)
    if status.st_uid != os.geteuid() or status.st_mode & 0o077:
        os.close(place)
        raise Unmet(f"{path} is not a directory that only you can enter")
    return place


def peer(connection: socket.socket) -> int:
    """The process at the other end; Unmet unless it is of the same user."""
    raw = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS)
    pid, uid = (
        int.from_bytes(raw[:4], sys.byteorder),
        int.from_bytes(raw[4:8], sys.byteorder),
    )
    if uid != os.geteuid() or pid <= 0:
        raise Unmet("it is of another user, or of another world of processes")
    return pid


def standing(pid: int | str = "self") -> dict[str, str]:
    """What a process may do and sees, as the kernel says. A worker cannot take these over, so they must be equal."""
    status = facts(pid)
    found = {name: status.get(name, "") for name in _STANDING}
    found |= {name: os.readlink(f"/proc/{pid}/ns/{name}") for name in NAMESPACES}
    root = os.stat(f"/proc/{pid}/root")
    return {
        **found,
        "root": f"{root.st_dev}:{root.st_ino}",
        "limits": _read(f"/proc/{pid}/limits"),
        "label": _label(pid),
    }


def facts(pid: int | str) -> dict[str, str]:
    """The kernel's status of a process: `Umask`, `SigIgn`, `Uid` …"""
    return dict(
        line.partition(":\t")[::2] for line in _read(f"/proc/{pid}/status").splitlines()
    )


def _label(pid: int | str) -> str:
    try:
        return _read(f"/proc/{pid}/attr/current")
    except OSError:  # no security module
        return ""


def _read(path: str) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 1 << 16).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def packed(*parts: list[bytes]) -> bytes:
    """Lists of texts without NUL."""
    body = b"".join(
        b"%d\0" % len(part) + b"".join(text + b"\0" for text in part) for part in parts
    )
    return b"%08x" % len(body) + body


def unpacked(body: bytes) -> list[list[bytes]]:
    """ValueError if this is not what `packed` makes."""
    texts = body.split(b"\0")
    parts, at = [], 0
    while at < len(texts) - 1:
        count = int(texts[at])
        if count < 0 or at + 1 + count >= len(texts):
            raise ValueError("shorter than it says")
        parts.append(texts[at + 1 : at + 1 + count])
        at += 1 + count
    return parts
