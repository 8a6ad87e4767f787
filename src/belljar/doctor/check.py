"""One line of the doctor's report."""

from __future__ import annotations

from pathlib import Path

from belljar.records import record


@record
class Check:
    name: str
    ok: bool
    """False: until this is fixed sandboxes cannot run, or not properly."""
    detail: str
    fix: str = ""
    """What to do about it. For a check that is ok: what would improve it."""

    def lines(self) -> list[str]:
        """For people."""
        state = "FAIL" if not self.ok else "note" if self.fix else "ok  "
        return [
            f"{state}  {self.name}: {self.detail}",
            *([f"      → {self.fix}"] if self.fix else []),
        ]


def first_line(path: str) -> str:
    """The first line of a kernel file; empty if it does not exist."""
    try:
        return Path(path).read_text().partition("\n")[0]
    except OSError:
        return ""
