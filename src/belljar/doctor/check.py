"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from belljar.records import record


@record
class Check:
    name: str
    ok: bool
    """False: sandboxes cannot run, or not as they should, until it is fixed."""
    detail: str
    fix: str = ""
    """What to do about it; with `ok`, what would be better still."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def first_line(path: str) -> str:
    """Of a file of the kernel's; empty where it is not there."""
    try:
        return Path(path).read_text().partition("\n")[0]
    except OSError:
        return ""
