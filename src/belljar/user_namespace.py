"""A user namespace in which an ordinary user is root, and his subordinate ids are the other users.

There he may mount, chown and unpack an image, but only with his own files. The engine `oci` uses this when its caller
is not root. Ids in the namespace are those of an image on disk: 0 is the user, 1 to 65536 are his subordinate ids.

A new namespace needs a process. We clone(2) a child straight into libc's `sleep`: no Python runs in it (this process
has threads), and it ends by itself if we are killed first. It shares our memory, because copying our page tables would
take longer than everything else. The set-uid programs newuidmap and newgidmap write its maps, a descriptor keeps the
namespace alive, and nsenter runs programs in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from belljar.errors import EngineUnavailable
from belljar.patience import stretched
from belljar.records import record
from belljar.syscalls import CLONE_NEWUSER, checked, closing, libc

COUNT = 65536
"""How many subordinate ids are needed: as many as an image may use."""
FILES = ("subuid", "subgid")
FIRST_UNUSED = 100_000
"""Lower ids may be accounts."""
MAP_SECONDS = 10.0
_CLONE_VM = 0x00000100
_WAIT_ALL = 0x40000000  # __WALL: the child raises no SIGCHLD, so no other wait in this process reaps it
_CHILD_SECONDS = 5
_CHILD_STACK = 64 << 10
_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 256  # directory levels that are unlocked; each holds a descriptor


@record
class SubordinateIds:
    """The first id of each range."""

    uid: int
    gid: int


def missing_requirements() -> str | None:
    """Everything that keeps this user from having such a namespace, and what to do about it; None: nothing does."""
    programs = {"newuidmap": "uidmap", "newgidmap": "uidmap", "nsenter": "util-linux"}
    problems = [
        f"{name} is not installed (the package {package})"
        for name, package in programs.items()
        if shutil.which(name) is None
    ]
    if missing := lacking(_user(), os.getuid()):
        start = free_range()
        options = " ".join(
            f"--add-{name}s {start}-{start + COUNT - 1}" for name in missing
        )
        where = " and ".join(f"/etc/{name}" for name in missing)
        problems.append(
            f"you have no {COUNT} ids in {where}: `sudo usermod {options} {_user()}`"
        )
    return "; ".join(problems) or None


def lacking(name: str, uid: int) -> list[str]:
    """In which of the two files this user has no range that is large enough."""
    return [
        each for each in FILES if _first(Path("/etc", each), {name, str(uid)}) is None
    ]


def free_range(
    places: Sequence[Path] = (Path("/etc/subuid"), Path("/etc/subgid")),
) -> int:
    """The first of COUNT ids that nobody has. Two users who share ids could reach each other's sandboxes."""
    start = FIRST_UNUSED
    for first, count in sorted(span for path in places for _, span in _spans(path)):
        if start + COUNT <= first:
            break
        start = max(start, first + count)
    return start


def subordinate_ids() -> SubordinateIds:
    names = {_user(), str(os.getuid())}
    uid, gid = (_first(Path("/etc", each), names) for each in FILES)
    if uid is None or gid is None:
        raise EngineUnavailable(missing_requirements() or "you have no subordinate ids")
    return SubordinateIds(uid, gid)


@contextlib.contextmanager
def child_in_new_namespace() -> Iterator[int]:
    """The pid of a child in a new user namespace that has no maps yet. The child is killed when the block ends."""
    stack = ctypes.create_string_buffer(_CHILD_STACK)
    top = (ctypes.addressof(stack) + _CHILD_STACK) & ~0xF
    seconds, flags = max(1, round(stretched(_CHILD_SECONDS))), CLONE_NEWUSER | _CLONE_VM
    entry = ctypes.cast(libc.sleep, ctypes.c_void_p)
    child = checked(
        libc.clone(
            entry, ctypes.c_void_p(top), ctypes.c_int(flags), ctypes.c_void_p(seconds)
        )
    )
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, _WAIT_ALL)
        del stack


def open_namespace(pid: int) -> int:
    return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def command(argv: Sequence[str]) -> tuple[list[str], tuple[int, ...]]:
    """The command that runs `argv` as root of the caller's namespace, and the descriptors that it must inherit."""
    namespace = _caller_namespace()
    entry = [
        "nsenter",
        f"--user=/proc/self/fd/{namespace}",
        "--setuid",
        "0",
        "--setgid",
        "0",
        "--",
    ]
    return [*entry, *argv], (namespace,)


def remove_tree(path: Path) -> None:
    """Remove a tree if possible, even where files belong to the caller's subordinate ids, modes lock him out, or it is
    nested more deeply than Python can follow. Follows no link, even one that is swapped in meanwhile."""
    _remove(path)
    if path.exists():
        with contextlib.suppress(OSError):
            _unlock(os.open(path, _PATH), 0)
        _remove(path)
    if path.exists():
        argv: list[str] = ["rm", "-rf", "--", str(path)]
        descriptors: tuple[int, ...] = ()
        with contextlib.suppress(
            subprocess.SubprocessError, OSError, EngineUnavailable
        ):
            if os.geteuid() != 0 and not missing_requirements():
                argv, descriptors = command(argv)
            subprocess.run(
                argv,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )


def _remove(path: Path) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)


def _unlock(directory: int, depth: int) -> None:
    """Give the owner access to this directory and those below it; closes the descriptor."""
    with closing(directory):
        os.chmod(f"/proc/self/fd/{directory}", 0o700)
        with os.scandir(f"/proc/self/fd/{directory}") as entries:
            names = [
                entry.name for entry in entries if entry.is_dir(follow_symlinks=False)
            ]
        for name in names if depth < _DEEPEST else ():
            with contextlib.suppress(OSError):
                _unlock(os.open(name, _PATH, dir_fd=directory), depth + 1)


def id_inside(id: int, own: int, first: int) -> int:
    """The id in the caller's namespace for an id of this machine."""
    return 0 if id == own else id - first + 1


@cache
def _caller_namespace() -> int:
    ids = subordinate_ids()
    try:
        with child_in_new_namespace() as child:
            _map("newuidmap", child, os.getuid(), ids.uid)
            _map("newgidmap", child, os.getgid(), ids.gid)
            return open_namespace(child)
    except (OSError, subprocess.SubprocessError) as error:
        reason = getattr(error, "stderr", None) or str(error)
        raise EngineUnavailable(
            f"cannot make a user namespace with subordinate ids: {reason.strip()}"
        ) from error


def _map(program: str, child: int, own: int, first: int) -> None:
    argv = [program, str(child), "0", str(own), "1", "1", str(first), str(COUNT)]
    subprocess.run(
        argv,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=True,
        timeout=stretched(MAP_SECONDS),
    )


def _first(file: Path, names: set[str]) -> int | None:
    """The first id of the first range that is large enough, of whoever has these names."""
    return next(
        (
            first
            for name, (first, count) in _spans(file)
            if name in names and count >= COUNT
        ),
        None,
    )


def _spans(file: Path) -> list[tuple[str, tuple[int, int]]]:
    """Each valid line, `name or number:first:count`, as (name, (first, count))."""
    try:
        lines = [line.split(":") for line in file.read_text().splitlines()]
    except OSError:
        return []
    valid = [
        fields
        for fields in lines
        if len(fields) == 3 and fields[1].isdecimal() and fields[2].isdecimal()
    ]
    return [(name, (int(first), int(count))) for name, first, count in valid]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
