"""A user namespace of one's own: an ordinary user is root in it, and his subordinate ids are the other users.

In it he may mount, chown and unpack an image, all of it only with what is his: that is how the engine `oci` works for
who is not root. Ids there are those of an image on disk: 0 is the user himself, 1 to 65536 are his subordinate ids.

A namespace needs a process to be born in: a child that only sleeps. It is made with clone(2) straight into libc's
`sleep`, so no Python runs in it (this process has threads), and it ends by itself should we be killed before we end it.
It shares our memory instead of copying our tables of it, which would take longer than all the rest.
newuidmap and newgidmap, which are set-uid root, write its maps; a descriptor keeps it; nsenter runs programs in it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from belljar.errors import EngineUnavailable
from belljar.patience import stretched
from belljar.records import record
from belljar.syscalls import CLONE_NEWUSER, checked, libc

COUNT = 65536
"""Subordinate ids that are needed: those that an image may use."""
FIRST_UNUSED = 100_000
"""Below are accounts."""
MAP_SECONDS = 10.0
_CLONE_VM = 0x00000100
_WAIT_ALL = 0x40000000  # __WALL: the child raises no SIGCHLD, so that nobody else's wait sees it
_CHILD_SECONDS = 5
_CHILD_STACK = 64 << 10
_PATH = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_DEEPEST = 256  # levels that are unlocked; each holds a descriptor


@record
class SubordinateIds:
    """The first of them."""

    uid: int
    gid: int


def lacking() -> str | None:
    """Why this user cannot have a namespace with subordinate ids, all of it, and what to do; None where he can."""
    programs = {"newuidmap": "uidmap", "newgidmap": "uidmap", "nsenter": "util-linux"}
    found = [
        f"{name} is not installed (the package {package})"
        for name, package in programs.items()
        if shutil.which(name) is None
    ]
    files = {name: Path("/etc", name) for name in ("subuid", "subgid")}
    if missing := [name for name, path in files.items() if _first(path) is None]:
        start = _unused(files.values())
        options = " ".join(f"--add-{name}s {start}-{start + COUNT - 1}" for name in missing)
        where = " and ".join(f"/etc/{name}" for name in missing)
        found.append(f"you have no {COUNT} ids in {where}: `sudo usermod {options} {_user()}`")
    return "; ".join(found) or None


def _unused(files: Iterable[Path]) -> int:
    """The first of so many ids that are nobody's yet: two users who share some can reach each other's sandboxes."""
    start = FIRST_UNUSED
    for taken, count in sorted(span for path in files for _, span in _spans(path)):
        if start + COUNT <= taken:
            break
        start = max(start, taken + count)
    return start


def subordinate_ids() -> SubordinateIds:
    uid, gid = _first(Path("/etc/subuid")), _first(Path("/etc/subgid"))
    if uid is None or gid is None:
        raise EngineUnavailable(lacking() or "you have no subordinate ids")
    return SubordinateIds(uid, gid)


@contextlib.contextmanager
def newborn() -> Iterator[int]:
    """A child in a new user namespace without maps, for as long as this is open."""
    stack = ctypes.create_string_buffer(_CHILD_STACK)
    top = (ctypes.addressof(stack) + _CHILD_STACK) & ~0xF
    seconds, flags = max(1, round(stretched(_CHILD_SECONDS))), CLONE_NEWUSER | _CLONE_VM
    entry = ctypes.cast(libc.sleep, ctypes.c_void_p)
    child = checked(libc.clone(entry, ctypes.c_void_p(top), ctypes.c_int(flags), ctypes.c_void_p(seconds)))
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(child, _WAIT_ALL)
        del stack


def of_process(pid: int) -> int:
    return os.open(f"/proc/{pid}/ns/user", os.O_RDONLY | os.O_CLOEXEC)


def command(argv: Sequence[str]) -> tuple[list[str], tuple[int, ...]]:
    """`argv` as root of the caller's namespace: what to run, and the descriptors to pass on."""
    namespace = _own()
    entry = ["nsenter", f"--user=/proc/self/fd/{namespace}", "--setuid", "0", "--setgid", "0", "--"]
    return [*entry, *argv], (namespace,)


def run(argv: Sequence[str]) -> None:
    entering, descriptors = command(argv)
    subprocess.run(entering, pass_fds=descriptors, stdin=subprocess.DEVNULL, capture_output=True, check=True)


def clear_away(path: Path) -> None:
    """Remove a tree as well as can be: also what belongs to a subordinate id of the caller's, has a mode that locks
    him out, or is nested more deeply than Python can follow. No link in it is followed, whoever swaps it meanwhile."""
    _remove(path)
    if path.exists():
        with contextlib.suppress(OSError):
            _unlock(os.open(path, _PATH), 0)
        _remove(path)
    if path.exists():
        words = ["rm", "-rf", "--", str(path)]
        with contextlib.suppress(subprocess.SubprocessError, OSError, EngineUnavailable):
            if os.geteuid() == 0 or lacking():
                subprocess.run(words, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
            else:
                run(words)


def _remove(path: Path) -> None:
    with contextlib.suppress(RecursionError):
        shutil.rmtree(path, ignore_errors=True)


def _unlock(directory: int, depth: int) -> None:
    """Let the owner into this directory and those below it; takes the descriptor over."""
    try:
        os.chmod(f"/proc/self/fd/{directory}", 0o700)
        with contextlib.closing(os.scandir(f"/proc/self/fd/{directory}")) as entries:
            names = [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
        for name in names if depth < _DEEPEST else ():
            with contextlib.suppress(OSError):
                _unlock(os.open(name, _PATH, dir_fd=directory), depth + 1)
    finally:
        os.close(directory)


def inside(id: int, own: int, first: int) -> int:
    """What an id of this machine is called in the caller's namespace."""
    return 0 if id == own else id - first + 1


@cache
def _own() -> int:
    ids = subordinate_ids()
    try:
        with newborn() as child:
            _map("newuidmap", child, os.getuid(), ids.uid)
            _map("newgidmap", child, os.getgid(), ids.gid)
            return of_process(child)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", None) or str(error)
        raise EngineUnavailable(f"no user namespace with subordinate ids can be made: {said.strip()}") from error


def _map(program: str, child: int, own: int, first: int) -> None:
    words = [program, str(child), "0", str(own), "1", "1", str(first), str(COUNT)]
    subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=stretched(MAP_SECONDS)
    )


def _first(file: Path) -> int | None:
    """Where the caller's first range of enough ids begins."""
    who = {_user(), str(os.getuid())}
    return next((first for name, (first, count) in _spans(file) if name in who and count >= COUNT), None)


def _spans(file: Path) -> list[tuple[str, tuple[int, int]]]:
    """Whose, the first, how many; lines are `name or number:first:count`."""
    try:
        lines = [line.split(":") for line in file.read_text().splitlines()]
    except OSError:
        return []
    numbered = [each for each in lines if len(each) == 3 and each[1].isdecimal() and each[2].isdecimal()]
    return [(name, (int(first), int(count))) for name, first, count in numbered]


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
