"""Names of sessions (the option `name`): in the facts of those that run, and beside the changes of those that ended."""

from __future__ import annotations

import re

from belljar import host
from belljar.errors import SessionNotFound, UsageError, closest
from belljar.options import SESSION_NAME, check_session_id
from belljar.sandbox import rundir

LAST = "last"


def refuse_taken(name: str | None) -> None:
    """UsageError if a session that runs has this name."""
    if name in _of_running():
        raise UsageError(
            f"a session named {name} exists already; `belljar session stop {name}` ends it"
        )


def _of_running() -> dict[str, str]:
    found = map(rundir.read_session, rundir.run_dirs(host.default().run_root))
    read = [session for session in found if session and "options" in session]
    return {
        session["options"]["name"]: session["id"]
        for session in read
        if session["options"].get("name")
    }


def known() -> dict[str, str]:
    """Name → id. Where several have had a name, it means the one that runs, or else the newest."""
    from belljar.staged.area import (
        StagedArea,
    )  # `run` imports this module before it launches

    areas = sorted(
        StagedArea.all(host.default().staged_root),
        key=lambda area: float(area.meta["created"]),
    )
    return {area.name: area.id for area in areas if area.name} | _of_running()


def session(id_or_name: str) -> str:
    """The id of a session that is named by its id or its name."""
    if is_id(id_or_name):
        return id_or_name
    if (far := host.far_of(None)) is not None:
        return _at_service(far, id_or_name)
    names = known()
    if id_or_name in names:
        return names[id_or_name]
    if id_or_name == LAST or id_or_name.startswith("bj-"):
        return _by_beginning(id_or_name)
    if not SESSION_NAME.fullmatch(id_or_name):
        return check_session_id(id_or_name)
    close = closest(id_or_name, names)
    hint = f"did you mean {close!r}?" if close else "`belljar session list` lists them"
    raise SessionNotFound(f"no session {id_or_name}; {hint}")


def _at_service(far: host.FarHost, name: str) -> str:
    """The newest living session there that has this name, or whose id begins so."""
    living = [
        each
        for each in far.portal().call(far.items, "sessions")
        if each["state"] != "ended"
    ]
    found = [
        each["id"]
        for each in living
        if name in (each["name"], LAST) or each["id"].startswith(name)
    ]
    if not found:
        raise SessionNotFound(
            f"no session {name} at {far.url}; `belljar session list` lists them"
        )
    return str(found[0])


def _by_beginning(text: str) -> str:
    """The only session whose id begins so; for `last`, the newest."""
    from belljar.staged.area import StagedArea

    began = {
        area.id: float(area.meta["created"])
        for area in StagedArea.all(host.default().staged_root)
    }
    read = map(rundir.read_session, rundir.run_dirs(host.default().run_root))
    began |= {session["id"]: float(session["started"]) for session in read if session}
    found = sorted(
        (id for id in began if text == LAST or id.startswith(text)),
        key=began.__getitem__,
    )
    if not found or (text != LAST and len(found) > 1):
        several = (
            f"several sessions begin so: {', '.join(found)}"
            if found
            else "`belljar session list` lists them"
        )
        raise SessionNotFound(f"no session {text}; {several}")
    return found[-1]


def is_id(text: str) -> bool:
    return re.fullmatch("bj-[0-9a-f]{12}", text) is not None
