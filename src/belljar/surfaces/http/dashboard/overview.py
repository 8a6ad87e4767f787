"""The overview: who waits for me, what is on fire, what is each doing, how do I stop it."""

from __future__ import annotations

from typing import Any

from fastapi.responses import Response

from . import present
from .pages import show
from .visit import Refused, Visit

MOST_ROWS = 200
MOST_CARDS = 50
SHOWS = (
    ("waiting", "Waiting"),
    ("denied", "Denied"),
    ("failing", "Failing"),
    ("running", "Running"),
    ("all", "All"),
)


async def overview(visit: Visit) -> Response:
    query, now = visit.request.query_params, visit.now
    sessions = await all_sessions(visit)
    waiting = sorted(
        await visit.items("/approvals", state="waiting"), key=present.card_order
    )
    names = {session["id"]: present.name_of(session) for session in sessions}
    show_only, words, chosen = (
        query.get("state", "all"),
        query.get("q", ""),
        query.get("session", ""),
    )
    show_only = show_only if show_only in dict(SHOWS) else "all"
    found = [
        each
        for each in sessions
        if present.present(each, now) and present.finds(each, words)
    ]
    found.sort(key=lambda each: present.rank(each, now))
    left = [each for each in found if present.leaves(each, show_only, now)]
    asked = {approval["session"]: approval for approval in reversed(waiting)}
    rows = [present.row(each, asked.get(each["id"]), now) for each in left[:MOST_ROWS]]
    if rows:
        rows[0]["first"] = True
    return await show(
        visit,
        "overview.html",
        "Belljar",
        waiting=waiting,
        cards=cards(waiting[:MOST_CARDS], names, now),
        more_cards=max(0, len(waiting) - MOST_CARDS),
        rows=rows,
        more_rows=max(0, len(left) - MOST_ROWS),
        shows=_counts(found, waiting, now),
        show=show_only,
        q=words,
        filtered=show_only != "all" or bool(words.strip()),
        chosen=chosen,
        chosen_name=present.one_line(names.get(chosen, chosen)),
        events=[event(record, names) for record in await last_records(visit)],
    )


async def all_sessions(visit: Visit) -> list[dict[str, Any]]:
    """All of them, page by page."""
    found: list[dict[str, Any]] = []
    cursor = None
    while True:
        answer = await visit.get("/sessions", limit=200, cursor=cursor)
        found += answer["items"]
        cursor = answer.get("next")
        if not cursor:
            return found


async def last_records(visit: Visit, **query: Any) -> list[dict[str, Any]]:
    """The newest records of the trail, newest first; none where the key may not see them."""
    try:
        found = await visit.items("/audit", limit=20, order="newest", **query)
    except Refused:
        return []
    return sorted(found, key=lambda record: -record["seq"])


def cards(
    approvals: list[dict[str, Any]], names: dict[str, str], now: float
) -> list[dict[str, Any]]:
    return [
        present.card(each, names.get(each["session"], each["session"]), now)
        for each in approvals
    ]


def _counts(
    sessions: list[dict[str, Any]], waiting: list[dict[str, Any]], now: float
) -> list[tuple[str, str, int]]:
    """Waiting counts cards; the others count the rows that they would leave."""
    return [
        (
            word,
            label,
            len(waiting)
            if word == "waiting"
            else sum(present.leaves(each, word, now) for each in sessions),
        )
        for word, label in SHOWS
    ]


def event(record: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    session = record.get("session") or ""
    return {
        "seq": record["seq"],
        "at": present.time_of_day(present.when(record)),
        "word": present.event_word(record),
        "session": session,
        "name": present.one_line(names.get(session, session)),
        "text": present.event_text(record)[:200],
    }
