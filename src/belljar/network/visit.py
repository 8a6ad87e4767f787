"""`Visit`: one connection through the door, allowed or refused, for the audit trail and `Result.network`."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from belljar.audit import masking

HOST_MAX, PATH_MAX, REASON_MAX = 300, 500, 500
NOT_ALLOWED = "this sandbox may not reach"
"""How the reason begins if the host was not allowed; only then does `--allow` help."""


class Refused(Exception):
    """A connection that is not allowed. The text tells the agent what was refused, and what a person could do."""

    recorded = False

    def __init__(self, why: str, *, status: int = 403) -> None:
        """Status 502: the host is allowed, but could not be reached."""
        super().__init__(why)
        self.status = status


@dataclass(slots=True)
class Visit:
    host: str
    """As requested, even if it is not a valid host; without unprintable characters."""
    port: int
    verdict: str = "allowed"
    """allowed, refused or failed (allowed, but the other side could not be reached)."""
    reason: str = ""
    address: str = ""
    method: str = "CONNECT"
    path: str = ""
    """Cut to PATH_MAX, then masked: a program may send thousands that are slow to mask."""
    sent: int = 0
    received: int = 0
    started: float = field(default_factory=time.time)
    seconds: float = 0.0
    _begun: float = field(default_factory=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self.host = "".join(
            each if each.isprintable() else "?" for each in self.host[:HOST_MAX]
        )
        self.path = masking.text(self.path[:PATH_MAX])

    def refused_by(self, error: Refused) -> None:
        self.verdict = "failed" if error.status == 502 else "refused"
        self.reason = str(error)

    def end(self) -> None:
        self.reason = self.reason[
            :REASON_MAX
        ]  # it may quote the request, and thousands of visits are kept
        self.seconds = round(time.monotonic() - self._begun, 6)

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host,
            "port": self.port,
            "address": self.address,
            "verdict": self.verdict,
            "reason": self.reason[:REASON_MAX],
            "method": self.method,
            "path": self.path,
            "sent": self.sent,
            "received": self.received,
            "started": self.started,
            "seconds": self.seconds,
        }
