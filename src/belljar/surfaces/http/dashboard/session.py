"""A session's page, and its views: commands, changes, files, network, limits, audit, terminal."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from fastapi.responses import Response

from . import diffs, output, present
from .overview import MOST_CARDS, cards
from .pages import TERMINAL_CSP, show
from .visit import Refused, Visit

MOST_COMMANDS = 100
MOST_DIFFS = 50
PIECE = 4 << 20
VIEWS = ("changes", "files", "network", "limits", "audit", "terminal")
Facts = dict[str, Any]
_LIMITS = {
    "memory": present.in_bytes,
    "disk": present.in_bytes,
    "tmp": present.in_bytes,
    "home": present.in_bytes,
    "shm": present.in_bytes,
    "fsize": present.in_bytes,
    "output": present.in_bytes,
    "shell_output": present.in_bytes,
    "memlock": present.in_bytes,
    "swap": present.in_bytes,
}


async def session_page(
    visit: Visit, id: str, view: str = "commands", command: str | None = None
) -> Response:
    session = await visit.get(f"/sessions/{id}")
    name = present.name_of(session)
    waiting = await visit.items("/approvals", state="waiting")
    mine = sorted(
        (each for each in waiting if each["session"] == id), key=present.card_order
    )
    template, more = (
        await _BUILD[view](visit, session)
        if command is None
        else await _commands(visit, session, command)
    )
    values: Facts = {
        "session": session,
        "name": present.one_line(name),
        "view": view,
        "command": None,
        "waiting": waiting,
        "cards": cards(mine[:MOST_CARDS], {id: name}, visit.now),
        "more_cards": max(0, len(mine) - MOST_CARDS),
        "facts": _facts(session, visit.now),
        "barred": not await visit.may("run"),
        "page": "session",
        "script": "session.js",
    }
    answer = await show(
        visit, template, f"{present.one_line(name)} · Belljar", **{**values, **more}
    )
    if view == "terminal":
        answer.headers["Content-Security-Policy"] = TERMINAL_CSP
    return answer


def _facts(session: Facts, now: float) -> list[tuple[str, str, str]]:
    word = present.status(session)
    network = session.get("network")
    shown_network = (
        network
        if isinstance(network, str)
        else ", ".join(map(str, (network or {}).get("allow") or ())) or "presets"
    )
    ends = session["state"] == "ended" or not session.get("expires")
    facts = (
        ("State", f"{present.MARKS[word]} {word}", "state"),
        ("Workspace", session.get("workspace") or "its own, ends with it", ""),
        ("Image", session.get("image"), ""),
        ("Engine", session.get("engine") or "–", ""),
        ("Policy", session.get("policy"), ""),
        ("Network", shown_network, ""),
        (
            "Who",
            " · ".join(
                str(session[key]) for key in ("tenant", "key_name") if session.get(key)
            ),
            "",
        ),
        (
            "Started",
            present.moment(session.get("started") or session.get("created")),
            "",
        ),
        ("Left", "–" if ends else present.clock(session["expires"] - now), "left"),
    )
    return [(label, present.one_line(value), key) for label, value, key in facts]


# Commands and output.


async def _all_commands(visit: Visit, session: Facts) -> tuple[str, Facts]:
    return await _commands(visit, session, None)


async def _commands(
    visit: Visit, session: Facts, wanted: str | None
) -> tuple[str, Facts]:
    id, now = session["id"], visit.now
    answer = await visit.get(f"/sessions/{id}/commands", limit=MOST_COMMANDS)
    found: list[Facts] = answer["items"]
    longest = present.longest(found, now)
    chosen = (
        await visit.get(f"/sessions/{id}/commands/{wanted}")
        if wanted
        else _newest(found)
    )
    at = _position(visit.request.query_params.get("at")) if wanted else None
    values: Facts = {
        "commands": [present.command_row(each, longest, now) for each in found],
        "more_commands": bool(answer.get("next")),
        "command": chosen,
        "at": at,
        "lines": [],
        "earlier": 0,
        "earlier_at": 0,
        "next_number": 1,
        "next_at": 0,
    }
    if chosen is not None:
        start, data = await _log(visit, chosen)
        page = output.page(data, start, at)
        values |= {
            name: getattr(page, name)
            for name in ("lines", "earlier", "earlier_at", "next_number", "next_at")
        }
        values["command_text"] = present.one_line(
            present.command_text(chosen["command"])
        )
    return "commands.html", values


def _newest(commands: list[Facts]) -> Facts | None:
    """The one that runs, else the last that ran."""
    return next(
        (each for each in commands if each["state"] == "running"),
        commands[0] if commands else None,
    )


def _position(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() and len(text) < 16 else None


async def _log(visit: Visit, command: Facts) -> tuple[int, bytes]:
    """What the log holds, and where that begins."""
    path = f"/sessions/{command['session']}/commands/{command['id']}/output"
    start, data, at = (
        int(command.get("bytes_dropped") or 0),
        b"",
        int(command.get("bytes_dropped") or 0),
    )
    while True:
        answer = await visit.answer(path, offset=at, limit=PIECE)
        if at == start:
            start = int(answer.headers.get("Belljar-Offset", start))
        data += answer.body
        at = int(answer.headers.get("Belljar-Next", at + len(answer.body)))
        if len(answer.body) < PIECE:
            return start, data


# Changes.


async def _changes(visit: Visit, session: Facts) -> tuple[str, Facts]:
    sides = visit.request.query_params.get("view") == "sides"
    empty: Facts = {
        "files": [],
        "ignored": None,
        "etag": "",
        "sides": sides,
        "note": "",
    }
    if session.get("changes") != "staged":
        return "changes.html", {
            **empty,
            "note": "This session writes directly into its workspace: nothing is staged.",
        }
    try:
        listed = await visit.answer(f"/sessions/{session['id']}/changes")
        diff = await visit.answer(f"/sessions/{session['id']}/diff")
    except Refused as refused:
        return "changes.html", {**empty, "note": present.one_line(refused)}
    changes: list[Facts] = _json(listed.body)["items"]
    parsed = iter(diffs.parse(diff.body.decode("utf-8", "replace")))
    # The diff has what is not ignored, in the order of the list.
    found = [
        (
            each,
            diffs.FileDiff() if each.get("ignored") else next(parsed, diffs.FileDiff()),
        )
        for each in changes
    ]
    files = [
        _changed_file(index, change, lines)
        for index, (change, lines) in enumerate(found, 1)
    ]
    plain = [each for each in files if not each["ignored"]]
    return "changes.html", {
        **empty,
        "files": plain,
        "ignored": _ignored(files),
        "etag": listed.headers.get("etag", ""),
    }


def _json(body: bytes) -> Any:
    import json

    return json.loads(body)


def _changed_file(index: int, change: Facts, diff: diffs.FileDiff) -> Facts:
    text = bool(diff.hunks) and index <= MOST_DIFFS
    if text:
        diffs.colour(diff, change["path"])
    side = change.get("after") or change.get("before") or {}
    notes = [
        "changed on your side too" if change.get("conflict") else "",
        "runs on your machine later" if change.get("runs_later") else "",
        f"binary, {present.in_bytes(side.get('size') or 0)}"
        if change.get("binary")
        else "",
    ]
    return {
        "index": index,
        "path": change["path"],
        "change": present.CHANGES_IN_WORDS.get(change["kind"], "changed"),
        "added": diff.added or "",
        "removed": diff.removed or "",
        "note": ", ".join(filter(None, notes)),
        "later": bool(change.get("runs_later")),
        "diffed": text,
        "hunks": diff.hunks,
        "cut": diff.cut,
        "ignored": bool(change.get("ignored")),
        "size": side.get("size") or 0,
    }


def _ignored(files: list[Facts]) -> Facts | None:
    ignored = [each for each in files if each["ignored"]]
    if not ignored:
        return None
    return {
        "count": len(ignored),
        "size": sum(each["size"] for each in ignored),
        "paths": [each["path"] for each in ignored][:500],
    }


# Tables.


def _table(
    name: str,
    heads: tuple[str, ...],
    rows: list[list[Any]],
    empty: str,
    numbers: tuple[str, ...] = (),
    note: str = "",
) -> tuple[str, Facts]:
    found = {
        "name": name,
        "heads": heads,
        "rows": [{"cells": cells} for cells in rows],
        "empty": empty,
        "numbers": numbers,
    }
    return "tabled.html", {"table": found, "note": note}


async def _files(visit: Visit, session: Facts) -> tuple[str, Facts]:
    heads, id = ("Path", "Kind", "Size", "Changed"), session["id"]
    path = visit.request.query_params.get("path", ".")
    try:
        items = (await visit.get(f"/sessions/{id}/entries", path=path))["items"]
    except Refused as refused:
        return _table("Files", heads, [], present.one_line(refused))
    rows = [_file(id, path, each) for each in items]
    if path not in (".", "/", ""):
        above = path.rstrip("/").rpartition("/")[0] or "."
        rows.insert(
            0,
            [
                {"text": "..", "href": f"/sessions/{id}/files?path={_quoted(above)}"},
                "directory",
                "",
                "",
            ],
        )
    return _table(
        "Files",
        heads,
        rows,
        "This directory is empty.",
        ("Size",),
        note=present.one_line(path),
    )


def _file(id: str, directory: str, entry: Facts) -> list[Any]:
    path = (
        entry["path"]
        if directory in (".", "")
        else f"{directory.rstrip('/')}/{entry['path']}"
    )
    where = (
        f"/sessions/{id}/files?path={_quoted(path)}"
        if entry["kind"] == "directory"
        else f"/v1/sessions/{id}/files?path={_quoted(path)}"
    )
    target = f" → {present.one_line(entry['target'])}" if entry.get("target") else ""
    link = entry["kind"] in ("directory", "file")
    name = {
        "text": present.one_line(entry["path"]) + target,
        "href": where if link else "",
        "kind": "mono",
    }
    changed = present.moment(entry["mtime_ns"] / 1e9) if entry.get("mtime_ns") else ""
    return [
        name,
        entry["kind"],
        present.in_bytes(entry["size"]) if entry["kind"] == "file" else "",
        changed,
    ]


def _quoted(path: str) -> str:
    from urllib.parse import quote

    return quote(path, safe="/")


async def _network(visit: Visit, session: Facts) -> tuple[str, Facts]:
    heads = ("When", "Host", "Port", "Verdict", "Sent", "Received")
    commands = await visit.items(
        f"/sessions/{session['id']}/commands", limit=MOST_COMMANDS
    )
    rows = [
        _attempt(each, command.get("ended"))
        for command in commands
        for each in (command.get("result") or {}).get("network") or ()
    ]
    return _table(
        "Network",
        heads,
        rows,
        "Nothing has tried to reach the network.",
        ("Port", "Sent", "Received"),
    )


def _attempt(each: Facts, ended: float | None) -> list[Any]:
    amounts = [
        present.in_bytes(each[name]) if each.get(name) is not None else ""
        for name in ("sent", "received")
    ]
    host = {"text": present.one_line(each.get("host")), "kind": "mono"}
    when = present.time_of_day(each.get("started") or ended)
    return [
        when,
        host,
        each.get("port", ""),
        present.one_line(each.get("verdict")),
        *amounts,
    ]


async def _limits(visit: Visit, session: Facts) -> tuple[str, Facts]:
    heads = ("Limit", "Asked", "In force", "Verified by")
    asked, found = (
        session.get("limits") or {},
        {each["limit"]: each for each in session.get("verified") or ()},
    )
    rows: list[list[Any]] = []
    for name in dict.fromkeys([*asked, *found]):
        wanted = _limit(name, asked[name]) if name in asked else "always"
        proof = found.get(name)
        in_force, by = (
            (_limit(name, proof["in_force"]), proof["by"])
            if proof
            else ("as asked, not read back", "–")
        )
        rows.append([name.replace("_", " "), wanted, in_force, by])
    note = (
        ""
        if found
        else "Nothing is verified: the session has not started here, or has ended."
    )
    return _table(
        "Limits as verified", heads, rows, "Not known before it has started.", note=note
    )


def _limit(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "no limit", True: "yes", False: "no"}[value]
    return (
        _LIMITS[name](value)
        if name in _LIMITS and isinstance(value, (int, float))
        else present.one_line(value)
    )


AUDIT_HEADS = ("When", "What", "Session", "Who", "Verdict", "Details")


async def _audit(visit: Visit, session: Facts) -> tuple[str, Facts]:
    try:
        records = await visit.items("/audit", session=session["id"], order="newest")
    except Refused as refused:
        return _table("Audit", AUDIT_HEADS, [], present.one_line(refused))
    rows = [
        audit_row(record, {session["id"]: present.name_of(session)})
        for record in sorted(records, key=lambda each: -each["seq"])
    ]
    template, values = _table("Audit", AUDIT_HEADS, [], "Nothing is recorded yet.")
    values["table"]["rows"] = rows
    return template, values


def audit_row(record: Facts, names: dict[str, str]) -> Facts:
    """A record of the trail as a row; a denial leads to the policy box."""
    session, verdict = record.get("session") or "", present.judged(record)
    said = " ".join(
        str(verdict[name]) for name in ("decision", "risk") if verdict.get(name)
    )
    if "approved" in record:
        said = "allowed" if record["approved"] else "denied"
    cell: dict[str, Any] = {"text": present.one_line(said)}
    if verdict.get("decision") == "deny":
        cell["why"] = f"/policy?audit={record['seq']}"
    cells: list[Any] = [
        {"text": present.moment(present.when(record)), "kind": "time"},
        present.one_line(record.get("kind")),
        {
            "text": present.one_line(names.get(session, session)),
            "href": f"/sessions/{session}" if session else "",
        },
        present.one_line(record.get("name") or record.get("by") or ""),
        cell,
        {"text": present.event_text(record)[:400], "kind": "mono"},
    ]
    return {"id": f"record-{record['seq']}", "cells": cells}


async def _terminal(visit: Visit, session: Facts) -> tuple[str, Facts]:
    return "terminal.html", {}


_BUILD: dict[str, Callable[[Visit, Facts], Awaitable[tuple[str, Facts]]]] = {
    "commands": _all_commands,
    "changes": _changes,
    "files": _files,
    "network": _network,
    "limits": _limits,
    "audit": _audit,
    "terminal": _terminal,
}
