"""`belljar audit show|verify`"""

from __future__ import annotations

import heapq
import json
import os
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from belljar import enforcement, resources
from belljar.audit import reader
from belljar.errors import UsageError
from belljar.surfaces.cli import console, names
from belljar.surfaces.terminal import render

_DIGEST = 12
_POLL_SECONDS = 0.2
_BROKEN_STATUS = 1


UNIT = """\
[Unit]
Description=Belljar's collector: audit records of all users, where no user can change them

[Service]
ExecStart={program} audit collect
Restart=always
LogsDirectory=belljar
LogsDirectoryMode=0700
RuntimeDirectory=belljar-trail
NoNewPrivileges=yes
ProtectSystem=strict
PrivateTmp=yes
PrivateNetwork=yes

[Install]
WantedBy=multi-user.target
"""


def collect(args: Namespace) -> int:
    from belljar.audit.collector import Collector, listening

    if args.print_unit:
        return console.text(args, UNIT.format(program=os.path.abspath(sys.argv[0])))
    _only_root()
    collector = Collector(Path(args.directory), drop_after=args.drop_after or 0)
    with listening(Path(args.socket)) as listener:
        console.note(f"collecting at {args.socket} into {collector.place}")
        collector.serve(listener)
    return 0


def _only_root() -> None:
    if os.geteuid() != 0:
        raise UsageError("only root can do this: use sudo")


def _verify_collected(args: Namespace) -> int:
    """Each user's trail on its own."""
    _only_root()
    trails = collected_trails(Path(args.directory), args.user)
    reports = {
        enforcement.user_name(uid): reader.verify(path) for uid, path in trails.items()
    }
    lines = [
        f"{user}: {report.records} records, the chain is intact"
        if report.ok
        else f"{user}: {report.at}: {report.fault}: {report.reason}"
        for user, report in reports.items()
    ]
    ok = all(report.ok for report in reports.values())
    facts = {user: report.as_dict() for user, report in reports.items()}
    console.answer(
        args, {"ok": ok, "users": facts}, *(lines or ["nothing was collected"])
    )
    return 0 if ok else _BROKEN_STATUS


def collected_trails(place: Path, user: str | None) -> dict[int, Path]:
    from belljar.audit.collector import users

    found = users(place)
    chosen = {
        uid: path
        for uid, path in found.items()
        if user in (None, str(uid), enforcement.user_name(uid))
    }
    if user is not None and not chosen:
        raise UsageError(f"nothing was collected of {user} in {place}")
    return chosen


def _collected(place: Path, user: str | None) -> Iterator[dict[str, Any]]:
    """By the time of arrival. Who, when and where in the chain are the collector's words, the rest is the sender's."""
    trails = [reader.records(path) for path in collected_trails(place, user).values()]
    for record in heapq.merge(*trails, key=lambda record: str(record["time"])):
        sent = record.pop("record", None) or {}
        shown = {name: value for name, value in sent.items() if name not in _CHAIN}
        yield {**shown, **record, "kind": str(sent.get("kind", record["kind"]))} | {
            name: str(sent[name]) for name in ("session",) if name in sent
        }


def _whose(args: Namespace) -> None:
    if args.user and not args.collected:
        raise UsageError("--user is for --collected: a trail of one's own has one user")


def verify(args: Namespace) -> int:
    _whose(args)
    if args.collected:
        return _verify_collected(args)
    with _readable():
        report = reader.verify(resources.state_path())
    intact = f"{resources.state_path()}: {report.records} records, the chain is intact"
    broken = f"{report.at}: {report.fault}: {report.reason}"
    notes = [f"note: {line}" for line in report.torn if report.ok]
    console.answer(args, report.as_dict(), intact if report.ok else broken, *notes)
    return 0 if report.ok else _BROKEN_STATUS


def show(args: Namespace) -> int:
    since = _moment(args.since) if args.since else None
    if args.session and not args.session.startswith("bj-"):
        args.session = names.session(args.session)
    _whose(args)
    if args.collected:
        _only_root()
        if args.follow:
            raise UsageError("--follow shows one trail: leave out --collected")
        found = _collected(Path(args.directory), args.user)
    else:
        found = _records(args.follow)
    records = (record for record in found if _matches(record, args, since))
    with _readable():
        if args.json and not args.follow:
            console.document(list(records))
            return 0
        for record in records:
            sys.stdout.write(f"{json.dumps(record) if args.json else _line(record)}\n")
            if args.follow:
                sys.stdout.flush()
    return 0


@contextmanager
def _readable() -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise UsageError(
            f"{error.filename or resources.state_path()} can be read by its owner only; BELLJAR_STATE names the place"
        ) from None


def _records(follow: bool) -> Iterator[dict[str, Any]]:
    where, last = resources.state_path(), 0
    for record in reader.records(where):
        last = record["seq"]
        yield record
    while follow:
        time.sleep(_POLL_SECONDS)
        for line in reader.lines_of(
            *reader.files(where)[-2:]
        ):  # one may have been rotated since the last look
            if line.record is not None and line.record["seq"] > last:
                last = line.record["seq"]
                yield line.record


def _matches(record: dict[str, Any], args: Namespace, since: datetime | None) -> bool:
    return (
        (args.session is None or record.get("session") == args.session)
        and (args.kind is None or record["kind"] == args.kind)
        and (since is None or _is_since(record["time"], since))
    )


def _is_since(text: str, since: datetime) -> bool:
    try:
        return datetime.fromisoformat(text) >= since
    except (ValueError, TypeError):  # no writer of ours wrote that
        return False


def _moment(text: str) -> datetime:
    if ago := re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text):
        unit = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}[ago[2]]
        return datetime.now(UTC) - timedelta(**{unit: float(ago[1])})
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"--since {text!r}: write for example 15m, 2h, 3d or 2026-01-31T12:00"
        ) from None
    return moment if moment.tzinfo else moment.astimezone()


_CHAIN = frozenset(("seq", "time", "kind", "session", "pid", "prev", "hash"))


def _line(record: dict[str, Any]) -> str:
    rest = {name: value for name, value in record.items() if name not in _CHAIN}
    fields = " ".join(
        f"{name}={_brief(value)}"
        for name, value in rest.items()
        if value not in ("", {})
    )
    return render.plain(
        f"{record['time'][:19]} {record['kind']:13} {record.get('session') or '-':15} {fields}"
    )


def _brief(value: Any) -> str:
    if isinstance(value, dict) and "decision" in value:
        try:
            rules = ",".join(rule["id"] for rule in value.get("rules", ()))
        except (TypeError, KeyError):  # of --collected: a user's invention
            return json.dumps(value, ensure_ascii=False)
        return f"{value['decision']}/{value.get('risk')} [{rules}] {json.dumps(value.get('canonical'))}"
    if isinstance(value, str) and value.isalnum():
        return value[:_DIGEST]
    return json.dumps(value, ensure_ascii=False)
