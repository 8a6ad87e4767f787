"""Where Belljar finds its own files, and where it keeps state and caches.

Shipped files are next to the code in a wheel, and at the top of a checkout. The compiled init of a checkout is in the
Python environment that runs it.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from belljar import environment
from belljar.ancestry import untrusted
from belljar.errors import BelljarError, EngineError, UsageError
from belljar.layout import MACHINES

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


@cache
def directory(name: str) -> Path:
    """`policies` or `sandbox-images`."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _CHECKOUT / name


def extra(name: str) -> str:
    """How to install a missing optional part."""
    in_checkout = not (_PACKAGE / "policies").is_dir()
    return (
        f"`make setup` in {_CHECKOUT}"
        if in_checkout
        else f"pip install 'belljar-sandbox[{name}]'"
    )


def init_binary(machine: str | None = None) -> Path:
    """The init for an engine's machine (by default this one)."""
    machine = machine or os.uname().machine
    architecture = MACHINES.get(machine.lower(), machine.lower())
    if architecture not in MACHINES.values():
        raise EngineError(
            f"there is no init for {machine}: only for x86_64 and aarch64"
        )
    name = f"belljar-init-{architecture}"
    for place in (Path(sys.prefix, "share", "belljar"), _PACKAGE / "_init"):
        if (place / name).is_file():
            return place / name
    raise EngineError(
        f"{name} is missing: run `make setup` in the checkout, or `python sandbox-images/init/build.py {architecture}`"
    )


def state_path() -> Path:
    """$BELLJAR_STATE, else belljar/ in the user's state directory."""
    base = environment.value("XDG_STATE_HOME", os.path.expanduser("~/.local/state"))
    return Path(environment.value("BELLJAR_STATE", os.path.join(base, "belljar")))


def state_dir() -> Path:
    """The state directory, created if missing. Only its owner may enter it."""
    return own_directory(state_path())


def run_root() -> Path:
    """The run directory, if nobody else can enter it."""
    return closed_to_others(_default_root())


def closed_to_others(root: Path) -> Path:
    """The root, if nobody else can put sessions there. rundir.py makes one that does not exist yet."""
    try:
        check_ancestry(root.parent, "BELLJAR_RUN")
        status = root.lstat()
    except OSError:
        return root
    if (
        status.st_uid != os.geteuid()
        or status.st_mode & 0o077
        or not stat.S_ISDIR(status.st_mode)
    ):
        raise BelljarError(
            f"{root} must be a directory that only you can enter; set BELLJAR_RUN to another one"
        )
    return root


def _default_root() -> Path:
    place = Path(environment.run_place())
    if place.parent == Path("/tmp") and not environment.value("BELLJAR_RUN"):
        with suppress(OSError):
            place.mkdir(
                mode=0o700
            )  # /tmp is sticky: from now on nobody else can replace it
    return place


def own_directory(
    path: Path, forbidden: int = 0o077, setting: str = "BELLJAR_STATE"
) -> Path:
    """A directory of this user's own, created if missing. Refused if its mode has `forbidden` bits, or if other users
    own it or could replace it: they could make us use files of their choice."""
    with suppress(OSError):  # the caller's first write reports it
        check_ancestry(path.parent, setting)
        for parent in reversed(path.parents):
            if not parent.exists():
                parent.mkdir(
                    mode=0o700, exist_ok=True
                )  # one of them may be another directory of ours
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
        if {path.lstat().st_uid, status.st_uid} != {
            os.geteuid()
        } or status.st_mode & forbidden:
            raise UsageError(
                f"{path} must be a directory that only you can enter: `chmod 700` it, or set {setting} to another"
            )
        check_ancestry(path, setting)
    return path


def check_ancestry(path: Path, setting: str) -> None:
    if directory := untrusted(path):
        raise UsageError(
            f"{path} cannot be used: other users own {directory} or may write to it, so they could replace it; "
            f"set {setting} to a directory elsewhere"
        )


def make_room_for(descriptor: int) -> None:
    """Raise this process's soft limit on open files if half of it is used: a descriptor that was just opened tells,
    since the kernel gives the lowest that is free. A session keeps four. What this process starts inherits the limit,
    but for sandboxes, which have their own (`Limits.nofile`)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or descriptor < soft // 2:
        return
    more = 4 * soft if hard == resource.RLIM_INFINITY else min(4 * soft, hard)
    if more > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (more, hard))


@contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold a lock file. A link is refused and nothing is truncated: the path might lead to another user's file."""
    descriptor = os.open(
        path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, or None if the file does not hold one."""
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return data if isinstance(data, dict) else None


def write_whole(path: Path, text: str) -> None:
    """Readers see the old file or the new one, also if several processes write it. Only the owner may read it,
    whatever the umask says."""
    temporary = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    temporary.touch(0o600, exist_ok=False)
    temporary.write_text(text)
    temporary.rename(path)


@contextmanager
def new_directory(target: Path) -> Iterator[Path]:
    """A directory to fill, which becomes `target` at the end of the block: completely or not at all. If another process
    has made `target` meanwhile, that one stays."""
    import shutil  # slow to import, and seldom needed here

    made = target.with_name(f".new-{os.urandom(8).hex()}")
    made.mkdir(mode=0o700)
    try:
        yield made
        made.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(made, ignore_errors=True)


def cache_dir() -> Path:
    home = environment.value("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))
    path = own_directory(Path(home) / "belljar", 0o022, "XDG_CACHE_HOME")
    path.mkdir(
        mode=0o700, parents=True, exist_ok=True
    )  # raises the error that `own_directory` suppressed
    return path


def is_remembered(kind: str, key: str) -> bool:
    """Whether a process of this user has called `remember` with this before."""
    with suppress(OSError, UsageError):
        return (cache_dir() / kind / key).is_file()
    return False


def remember(kind: str, key: str) -> None:
    """Note for later processes that something was checked. Without a cache directory they check again."""
    with suppress(OSError, UsageError):
        directory = cache_dir() / kind
        directory.mkdir(mode=0o700, exist_ok=True)
        (directory / key).touch()
