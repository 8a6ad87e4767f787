"""How long each image took to build here the last time, and its size: what there is to say before it is built again."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

from belljar import resources


def last(name: str) -> str:
    """`; last time 3 min, 225 MB`; empty: it was never built here."""
    kept = resources.read_json(_file(name)) or {}
    seconds, size = kept.get("seconds"), kept.get("size")
    if not isinstance(seconds, int | float):
        return ""
    taken = f"{seconds / 60:.0f} min" if seconds >= 90 else f"{seconds:.0f} s"
    return f"; last time {taken}{f', {size / 1e6:.0f} MB' if isinstance(size, int) else ''}"


def note(name: str, seconds: float, size: int | None) -> None:
    with suppress(OSError):  # it only helps to guess
        facts = {"seconds": round(seconds, 1), "size": size}
        resources.write_whole(_file(name), json.dumps(facts))


def _file(name: str) -> Path:
    return resources.cache_dir() / f"built-{quote(name, safe='')}.json"
