"""Lists in pages. A cursor names the last item of a page, so it stays valid when items are added."""

from __future__ import annotations

import struct
from typing import Any


def page(
    items: list[dict[str, Any]], query: Any, *, id: str = "id", when: str = "created"
) -> dict[str, Any]:
    """The page of `items` that the query asks for, newest first; those without a time by their names."""

    def place(item: dict[str, Any]) -> tuple[float, tuple[int, ...]]:
        return -item.get(when, 0.0), _backwards(str(item[id]))

    items = sorted(items, key=place)
    if query.cursor is not None:
        at, name = _place(query.cursor)
        items = [item for item in items if place(item) > (-at, _backwards(name))]
    shown = items[: query.limit]
    more = len(items) > len(shown)
    return {
        "items": shown,
        "next": _cursor(-place(shown[-1])[0], str(shown[-1][id])) if more else None,
    }


def _backwards(name: str) -> tuple[int, ...]:
    """Orders names from the last to the first."""
    return tuple(-ord(letter) for letter in name)


CURSOR = r"^[0-9a-f]{16}[A-Za-z0-9._:/@-]{1,255}$"
"""Whatever looks like a cursor is one: a time and an id, between which the next page begins."""
_TIME = struct.Struct(">d")


def _cursor(at: float, name: str) -> str:
    return _TIME.pack(at).hex() + name


def _place(cursor: str) -> tuple[float, str]:
    (at,) = _TIME.unpack(bytes.fromhex(cursor[:16]))
    return at, cursor[16:]
