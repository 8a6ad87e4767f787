"""A trail of its own for each tenant, whose records name who caused them.

The core writes the records (`audit/writer.py`). The trail adds tenant, key, the key's name and the request: they are
taken from the request that is served at that moment, or from who decided an approval, and stay empty where time did it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from belljar.audit import reader
from belljar.audit.writer import Audit


@dataclass(frozen=True)
class Cause:
    """Who causes what happens now."""

    key: str = ""
    name: str = ""
    request_id: str = ""


NOBODY = Cause()
_cause: ContextVar[Cause] = ContextVar("belljar_cause", default=NOBODY)


@contextlib.contextmanager
def caused_by(cause: Cause) -> Iterator[None]:
    token = _cause.set(cause)
    try:
        yield
    finally:
        _cause.reset(token)


def cause() -> Cause:
    return _cause.get()


def set_cause(cause: Cause) -> None:
    """For the rest of this task."""
    _cause.set(cause)


class TenantAudit(Audit):
    """The trail of one tenant."""

    def __init__(
        self, where: Path, tenant: str, *, required: bool = False, **kept: Any
    ) -> None:
        """`kept`: as for `Audit`."""
        super().__init__(where, required=required, **kept)
        self.tenant = tenant
        self.when_recorded: Callable[[str, dict[str, Any]], None] = (
            lambda kind, fields: None
        )

    def record(self, kind: str, **fields: Any) -> None:
        named = self._named(fields)
        super().record(kind, **named)
        self.when_recorded(kind, named)

    def note(self, kind: str, **fields: Any) -> None:
        named = self._named(fields)
        super().note(kind, **named)
        self.when_recorded(kind, named)

    def _named(self, fields: dict[str, Any]) -> dict[str, Any]:
        by = cause()
        return {
            **fields,
            "tenant": self.tenant,
            "key": by.key,
            "name": by.name,
            "request_id": by.request_id,
        }


def runs(where: Path) -> tuple[dict[str, dict[str, Any]], set[str]]:
    """The `start` records of a trail by run, and the runs that have an `end`. Reads all of it."""
    starts: dict[str, dict[str, Any]] = {}
    ends: set[str] = set()
    for record in reader.records(where):
        if record["kind"] == "start" and record.get("run"):
            starts[record["run"]] = record
        elif record["kind"] == "end" and record.get("run"):
            ends.add(record["run"])
    return starts, ends
