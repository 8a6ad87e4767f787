"""Where the files that ship beside the code are: in the wheel next to it, in a checkout at the top.

The init is compiled: in the wheel it is next to the code, for a checkout in the environment that runs it.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from belljar.ancestry import untrusted
from belljar.errors import EngineError, UsageError
from belljar.layout import MACHINES

_PACKAGE = Path(__file__).resolve().parent
_CHECKOUT = _PACKAGE.parent.parent


@cache
def directory(name: str) -> Path:
    """`policies` or `sandbox-images`."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _CHECKOUT / name


def extra(name: str) -> str:
    """How an optional part is installed, where it is missing."""
    in_checkout = not (_PACKAGE / "policies").is_dir()
    return f"`make setup` in {_CHECKOUT}" if in_checkout else f"pip install 'belljar-sandbox[{name}]'"


def init_binary(machine: str | None = None) -> Path:
    """The init for an engine's machine (this one's by default)."""
    asked = machine or os.uname().machine
    known = MACHINES.get(asked.lower(), asked.lower())
    if known not in MACHINES.values():
        raise EngineError(f"there is no init for {asked}: only for x86_64 and aarch64")
    name = f"belljar-init-{known}"
    for place in (Path(sys.prefix, "share", "belljar"), _PACKAGE / "_init"):
        if (place / name).is_file():
            return place / name
    raise EngineError(
        f"{name} is missing: in a checkout `make setup` builds it, or `python sandbox-images/init/build.py {known}`"
    )


def state_path() -> Path:
    """$BELLJAR_STATE, else belljar/ in the user's state directory."""
    base = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return Path(os.environ.get("BELLJAR_STATE") or os.path.join(base, "belljar"))


def state_dir() -> Path:
    """The same, to write to: only its owner may look into it."""
    path = state_path()
    if not os.environ.get("BELLJAR_STATE"):  # a directory that was named may be there for others, too
        _close(path)
    return own_directory(path)


def _close(path: Path) -> None:
    """Take from others the right to look into it; where they may even write, it is too late for that."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if status.st_uid == os.geteuid() and status.st_mode & 0o077 and not status.st_mode & 0o022:
                os.fchmod(descriptor, 0o700)
        finally:
            os.close(descriptor)


def own_directory(path: Path, others: int = 0o077, setting: str = "BELLJAR_STATE") -> Path:
    """Made if it is not there. One that others own, may enter or could replace is refused: they could lead us to
    other files."""
    with suppress(OSError):  # who writes there says what is wrong
        check_ancestry(path.parent, setting)  # nothing is made where others choose what is there
        for parent in reversed(path.parents):
            if not parent.exists():
                parent.mkdir(mode=0o755, exist_ok=True)  # whatever the umask is: others may not write there
        path.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
        if {path.lstat().st_uid, status.st_uid} != {os.geteuid()} or status.st_mode & others:
            raise UsageError(
                f"{path} must be a directory that only you can enter: `chmod 700` it, or set {setting} to another"
            )
        check_ancestry(path, setting)
    return path


def check_ancestry(path: Path, setting: str) -> None:
    if found := untrusted(path):
        raise UsageError(
            f"{path} cannot be used: others own {found} or may write to it, so they could put something else in its "
            f"place; set {setting} to a directory elsewhere"
        )


@contextmanager
def locked(path: Path, how: int = fcntl.LOCK_EX) -> Iterator[None]:
    """Hold the lock file. A link is refused and nothing is truncated: it might lead to somebody's file."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None where there is none, or something else."""
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def cache_dir() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    # Earlier versions let others look into it.
    path = own_directory(Path(home) / "belljar", 0o022, "XDG_CACHE_HOME")
    path.mkdir(mode=0o700, parents=True, exist_ok=True)  # says why, where it could not be made
    return path


def is_remembered(kind: str, key: str) -> bool:
    """Whether some process of this user said so before."""
    with suppress(OSError, UsageError):
        return (cache_dir() / kind / key).is_file()
    return False


def remember(kind: str, key: str) -> None:
    """That something was looked at, for other processes. Where there is no place of our own for it, they look again."""
    with suppress(OSError, UsageError):
        notes = cache_dir() / kind
        notes.mkdir(mode=0o700, exist_ok=True)
        (notes / key).touch()
