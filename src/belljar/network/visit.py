"""One connection through the door, or one that was refused: what the audit trail and `Result.network` tell of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from belljar.audit import masking


class Refused(Exception):
    """The door stays shut; the text tells the agent what was refused and what a person would have to do."""

    def __init__(self, why: str, *, status: int = 403) -> None:
        super().__init__(why)
        self.status = status


@dataclass(slots=True)
class Visit:
    host: str
    port: int
    verdict: str = "allowed"
    """allowed, refused or failed (allowed, but the other side could not be reached)."""
    reason: str = ""
    address: str = ""
    method: str = "CONNECT"
    path: str = ""
    sent: int = 0
    received: int = 0
    started: float = field(default_factory=time.time)
    seconds: float = 0.0
    _begun: float = field(default_factory=time.monotonic, repr=False)

    def end(self) -> None:
        self.seconds = round(time.monotonic() - self._begun, 6)

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host, "port": self.port, "address": self.address, "verdict": self.verdict,
            "reason": self.reason[:500], "method": self.method, "path": masking.text(self.path[:2000]),
            "sent": self.sent, "received": self.received, "started": self.started, "seconds": self.seconds,
        }  # fmt: skip
