"""One connection through the door, or one that was refused: what the audit trail and `Result.network` tell of it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from belljar.audit import masking

HOST_MAX, PATH_MAX, REASON_MAX = 300, 500, 500
NOT_ALLOWED = "this sandbox may not reach"
"""How the reason begins where nobody allowed the host: for that alone `--allow` helps."""


class Refused(Exception):
    """The door stays shut; the text tells the agent what was refused and what a person would have to do."""

    recorded = False

    def __init__(self, why: str, *, status: int = 403) -> None:
        super().__init__(why)
        self.status = status

    @property
    def verdict(self) -> str:
        """With 502 the door was open, and what is behind it did not answer."""
        return "failed" if self.status == 502 else "refused"


@dataclass(slots=True)
class Visit:
    host: str
    """As it was asked for, also where that is no host; what no terminal should see is left out."""
    port: int
    verdict: str = "allowed"
    """allowed, refused or failed (allowed, but the other side could not be reached)."""
    reason: str = ""
    address: str = ""
    method: str = "CONNECT"
    path: str = ""
    """Masked once, and no more of it than PATH_MAX: there may be thousands, each chosen to be slow to mask."""
    sent: int = 0
    received: int = 0
    started: float = field(default_factory=time.time)
    seconds: float = 0.0
    _begun: float = field(default_factory=time.monotonic, repr=False)

    def __post_init__(self) -> None:
        self.host = "".join(each if each.isprintable() else "?" for each in self.host[:HOST_MAX])
        self.path = masking.text(self.path[:PATH_MAX])

    def end(self) -> None:
        self.reason = self.reason[:REASON_MAX]  # it may repeat what was asked for, and thousands are remembered
        self.seconds = round(time.monotonic() - self._begun, 6)

    def as_dict(self) -> dict[str, Any]:
        return {
            "host": self.host, "port": self.port, "address": self.address, "verdict": self.verdict,
            "reason": self.reason[:REASON_MAX], "method": self.method, "path": self.path,
            "sent": self.sent, "received": self.received, "started": self.started, "seconds": self.seconds,
        }  # fmt: skip
