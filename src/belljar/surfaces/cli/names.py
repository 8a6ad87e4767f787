"""Names that people give to sessions: a file for each, beside the sessions' own directories, that holds an id."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from belljar.errors import SessionNotFound, UsageError, meant
from belljar.patterns import lazy_pattern
from belljar.sandbox import rundir

_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _directory() -> Path:
    return rundir.run_root() / "names"


def check(name: str) -> str:
    """A name that is free."""
    if not _NAME.fullmatch(name) or name.startswith(("bj-", "shell_")):
        raise UsageError(f"{name!r} is not a name for a session; use letters, digits, dots and dashes")
    if name in known():
        raise UsageError(f"a session named {name} exists already; `belljar session stop {name}` ends it")
    return name


def give(name: str, id: str) -> None:
    directory = _directory()
    directory.mkdir(mode=0o700, exist_ok=True)
    (directory / name).write_text(id)


def known() -> dict[str, str]:
    """Names and ids of the sessions that are still there; names of others are dropped."""
    found = {}
    with suppress(OSError):
        for entry in _directory().iterdir():
            id = entry.read_text()
            if is_id(id) and (rundir.run_root() / id).is_dir():
                found[entry.name] = id
            else:
                entry.unlink(missing_ok=True)
    return found


def session(given: str) -> str:
    """The id that was meant, by id or by name."""
    if is_id(given):
        return given
    names = known()
    if given in names:
        return names[given]
    if not _NAME.fullmatch(given):
        return rundir.check_session_id(given)
    guess = meant(given, names)
    raise SessionNotFound(f"no session {given}; {guess if '?' in guess else '`belljar session list` lists them'}")


def is_id(text: str) -> bool:
    return re.fullmatch("bj-[0-9a-f]{12}", text) is not None
