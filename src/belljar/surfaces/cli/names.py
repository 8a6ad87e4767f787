"""Names of sessions. Each is a file in the run directory that holds the session's id."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from belljar.errors import SessionNotFound, UsageError, closest
from belljar.options import check_session_id
from belljar.patterns import lazy_pattern
from belljar.sandbox import rundir

_NAME = lazy_pattern(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def _directory() -> Path:
    return rundir.run_root() / "names"


def check(name: str) -> str:
    """Refuse a name that is malformed or taken."""
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
    """Name → id of the sessions that still exist. Names of ended sessions are removed."""
    found = {}
    with suppress(OSError):
        for entry in _directory().iterdir():
            id = entry.read_text()
            if is_id(id) and (rundir.run_root() / id).is_dir():
                found[entry.name] = id
            else:
                entry.unlink(missing_ok=True)
    return found


def session(id_or_name: str) -> str:
    """The id of a session that is named by its id or its name."""
    if is_id(id_or_name):
        return id_or_name
    names = known()
    if id_or_name in names:
        return names[id_or_name]
    if not _NAME.fullmatch(id_or_name):
        return check_session_id(id_or_name)
    close = closest(id_or_name, names)
    hint = f"did you mean {close!r}?" if close else "`belljar session list` lists them"
    raise SessionNotFound(f"no session {id_or_name}; {hint}")


def is_id(text: str) -> bool:
    return re.fullmatch("bj-[0-9a-f]{12}", text) is not None
