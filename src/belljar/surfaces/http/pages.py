"""Lists in pages. A cursor names the last item of a page, so it stays valid when items are added."""

from __future__ import annotations

import base64
from typing import Any

from belljar.surfaces.http.problems import Problem


def page(items: list[dict[str, Any]], query: Any, *, id: str = "id", when: str = "created") -> dict[str, Any]:
    """The page of `items` that the query asks for, newest first."""
    items = sorted(items, key=lambda item: (-item[when], _backwards(str(item[id]))))
    if query.cursor is not None:
        at, name = _place(query.cursor)
        items = [item for item in items if (-item[when], _backwards(str(item[id]))) > (-at, _backwards(name))]
    shown = items[: query.limit]
    more = len(items) > len(shown)
    return {"items": shown, "next": _cursor(shown[-1][when], str(shown[-1][id])) if more else None}


def _backwards(name: str) -> tuple[int, ...]:
    """Orders names from the last to the first."""
    return tuple(-ord(letter) for letter in name)


def _cursor(at: float, name: str) -> str:
    return base64.urlsafe_b64encode(f"{at!r} {name}".encode()).decode().rstrip("=")


def _place(cursor: str) -> tuple[float, str]:
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        at, _, name = text.partition(" ")
        return float(at), name
    except ValueError:
        raise Problem("usage", "cursor: this is no cursor of this list", field="cursor") from None
