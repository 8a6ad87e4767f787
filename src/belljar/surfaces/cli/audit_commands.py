"""`belljar audit show|verify`"""

from __future__ import annotations

import json
import re
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from belljar import resources
from belljar.audit import reader
from belljar.errors import UsageError
from belljar.surfaces.cli import console, names
from belljar.surfaces.terminal import render

_DIGEST = 12
_POLL_SECONDS = 0.2
_BROKEN_STATUS = 1


def verify(args: Namespace) -> int:
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
    records = (
        record for record in _records(args.follow) if _matches(record, args, since)
    )
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
        and (since is None or datetime.fromisoformat(record["time"]) >= since)
    )


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
        rules = ",".join(rule["id"] for rule in value.get("rules", ()))
        return f"{value['decision']}/{value.get('risk')} [{rules}] {json.dumps(value.get('canonical'))}"
    if isinstance(value, str) and value.isalnum():
        return value[:_DIGEST]
    return json.dumps(value, ensure_ascii=False)
