"""What a person wants to know of a session at a glance, beside its state: its last line, load and changes.

All of it is for a screen: it is sampled, never waited for, and what cannot be read here is left out.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.engines.spec import ulimits
from belljar.errors import BelljarError

if TYPE_CHECKING:
    from belljar.session.session import Session

SAMPLE_SECONDS = 2.0
COUNT_SECONDS = 5.0
HOT_SHARE, HOT_SECONDS = 0.9, 30.0
LOUD_BYTES, LOUD_SECONDS = 1 << 20, 10.0
LINE = 400
_SHOWN = (
    "memory",
    "swap",
    "cpus",
    "pids",
    "ulimits",
    "read_only_root",
    "capabilities",
    "no_new_privileges",
    "seccomp",
    "network",
)


def verified(box: Session) -> list[dict[str, Any]]:
    """Each limit and protection as it is in force, and who said so: the kernel, the init or the engine."""
    claims, witnesses = box.sandbox.launched.claims, box.sandbox.witnesses
    found: list[dict[str, Any]] = []
    for name in _SHOWN:
        value, by = getattr(claims, name), witnesses.get(name, "engine")
        if name == "ulimits":  # an engine that leaves them to the init does not say
            told = value if by == "engine" else ulimits(box.limits).items()
            found += [
                {"limit": limit, "in_force": most, "by": by}
                for limit, most in sorted(told or ())
            ]
        elif value is not None:
            plain = (
                ", ".join(sorted(value)) or "none"
                if isinstance(value, frozenset)
                else value
            )
            found.append({"limit": name, "in_force": plain, "by": by})
    return found


class Vitals:
    def __init__(self) -> None:
        self.line = ""
        self.usage: dict[str, float] | None = None
        self.staged: dict[str, int] | None = None
        self._cpu: tuple[float, float] | None = None
        self._hot_since: float | None = None
        self._loud_since: float | None = None
        self._printed = 0
        self._sampled = self._counted = 0.0
        self._rest = b""
        self._is_stale = True
        """Something has run since the changes were counted."""

    def as_dict(self, now: float) -> dict[str, Any]:
        hot = any(
            since is not None and now - since >= seconds
            for since, seconds in (
                (self._hot_since, HOT_SECONDS),
                (self._loud_since, LOUD_SECONDS),
            )
        )
        return {
            "last_line": self.line,
            "usage": self.usage,
            "hot": hot,
            "staged": self.staged,
        }

    def printed(self, data: bytes) -> None:
        """The last line that is not empty."""
        self._printed += len(data)
        self._is_stale = True
        whole = (self._rest + data)[-4 * LINE :]
        lines = [
            line for line in whole.replace(b"\r", b"\n").split(b"\n") if line.strip()
        ]
        self._rest = whole.rpartition(b"\n")[2]
        if lines:
            self.line = lines[-1][:LINE].decode("utf-8", "replace")

    def ran(self) -> None:
        """A command has begun or ended."""
        self._is_stale = True
        self._rest = b""

    async def look(self, box: Session, limits: dict[str, Any]) -> bool:
        """Take a sample if it is time for one. Whether anything may look different now."""
        now, looked = time.time(), False
        if now - self._sampled >= SAMPLE_SECONDS:
            looked = await to_thread.run_sync(self._sample, box, limits, now)
        if box.is_staged and self._is_stale and now - self._counted >= COUNT_SECONDS:
            self._counted, self._is_stale = now, False
            before, self.staged = self.staged, await _counted(box)
            looked = looked or before != self.staged
        return looked

    def _sample(self, box: Session, limits: dict[str, Any], now: float) -> bool:
        elapsed, self._sampled = now - self._sampled, now
        self._loud_since = self._since(
            self._loud_since, self._printed > LOUD_BYTES * min(elapsed, 60.0), now
        )
        self._printed = 0
        spent, memory = box.sandbox.cpu_time(), box.usage().get("memory")
        if spent is None or memory is None:
            return False
        before, self._cpu = self._cpu, (now, spent)
        if before is None or now <= before[0]:
            return False
        share = (spent - before[1]) / (now - before[0]) / float(limits.get("cpus") or 1)
        fill = memory / limits["memory"] if limits.get("memory") else 0.0
        self._hot_since = self._since(
            self._hot_since, max(share, fill) >= HOT_SHARE, now
        )
        known = self.usage
        self.usage = {
            "cpu": round(max(0.0, share), 3),
            "memory": memory,
            "at": round(now, 1),
        }
        return (
            known is None
            or abs(known["cpu"] - share) > 0.005
            or known["memory"] != memory
        )

    @staticmethod
    def _since(before: float | None, holds: bool, now: float) -> float | None:
        return (before or now) if holds else None


async def _counted(box: Session) -> dict[str, int] | None:
    """Lines that the staged changes add and remove; None if they cannot be looked at now."""
    try:
        changes = await box.changes()
    except (BelljarError, OSError):
        return None
    added, removed = (
        sum(getattr(change, name) or 0 for change in changes)
        for name in ("added", "removed")
    )
    return {"added": added, "removed": removed, "files": len(changes)}
