"""What a session writes to the audit trail.

Every `start` of a command gets exactly one `end`, and every `session_open` one `session_close`: also if the sandbox
dies, and if a call is cancelled at any await (tests/session/test_cancellation.py). Whoever starts a command holds its
`Entry` and ends it on every way out; what is still open when a session closes is ended then.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from belljar.audit.writer import Audit
    from belljar.policy import Verdict
    from belljar.session.result import Result


class Ledger:
    def __init__(self, audit: Audit) -> None:
        self.audit = audit
        self.session: str | None = None
        self._open: dict[str, Entry] = {}

    def record(self, kind: str, **fields: Any) -> None:
        """Written at once with BELLJAR_AUDIT=required, else in the background."""
        write = self.audit.record if self.audit.required else self.audit.note
        write(kind, session=self.session, **fields)

    def start(self, verdict: Verdict, cwd: str, env: Mapping[Any, Any] | None = None) -> Entry:
        entry = Entry(self, verdict.digest)
        self.record("start", run=entry.run, digest=verdict.digest, command=verdict.canonical, cwd=cwd, env=env)
        self._open[entry.run] = entry
        return entry

    @property
    def unfinished(self) -> bool:
        return bool(self._open)

    def close(self, cause: str) -> None:
        """Record the end of every unfinished command."""
        for entry in list(self._open.values()):
            entry.end(cause)

    def _end(self, entry: Entry, fields: dict[str, Any]) -> None:
        if self._open.pop(entry.run, None) is not None:
            self.record("end", run=entry.run, digest=entry.digest, **fields)


class Entry:
    """A command whose start is recorded."""

    __slots__ = ("_ledger", "digest", "run")

    def __init__(self, ledger: Ledger, digest: str) -> None:
        self._ledger, self.digest = ledger, digest
        self.run = os.urandom(6).hex()

    def end(self, cause: str, exit_code: int | None = None, duration: float | None = None) -> None:
        """Only the first call counts."""
        self._ledger._end(self, {"cause": cause, "exit_code": exit_code, "duration": duration})

    def concluded(self, result: Result) -> None:
        self.end(result.cause, result.exit_code, result.duration)
