"""What a session, an approval or a number looks like in words, for the first HTML.

`static/present.js` says the same for what changes afterwards; a test gives both the same things and compares.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import Any

Thing = Mapping[str, Any]

MARKS = {
    "waiting": "⚠",
    "lost": "✕",
    "failing": "✕",
    "starting": "◌",
    "paused": "‖",
    "running": "▶",
    "idle": "○",
    "ended": "■",
}
RISKS = ("critical", "high", "medium", "low")
RANKS = (
    "waiting",
    "lost",
    "failing",
    "hot",
    "denied",
    "running",
    "starting",
    "paused",
    "idle",
    "ended",
)
ENDED_IN_WORDS = {
    "exited": "exited",
    "signalled": "killed",
    "interrupted": "killed",
    "killed": "killed",
    "timeout": "timed out",
    "out_of_memory": "out of memory",
    "output_limit": "output limit",
    "sandbox_lost": "lost",
}
END_MARKS = {
    "exited": "■",
    "running": "▶",
    "waiting": "⚠",
    "queued": "◌",
    "denied": "✕",
}
CHANGES_IN_WORDS = {"added": "added", "deleted": "deleted"}
MOST_EFFECTS = 5
GONE_AFTER = 60.0
_FAILING = frozenset(("timeout", "out_of_memory", "output_limit", "sandbox_lost"))
_PHASES = frozenset(("queued", "pulling", "starting", "verifying"))
_SOON = 300.0
_DENIED_FOR = 300.0
_UNITS = (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10))
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u034f\u061c\u115f\u1160\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufeff\uffa0"
    "\ufff9-\ufffb\U000e0000-\U000e0fff]"
)
_DETAIL = re.compile(r" \([a-z_.]+: [^()]*\)$")
_SGR = re.compile(r"\x1b\[[0-9;:]*m")


def shown(text: object) -> str:
    """Text for a person: characters that cannot be seen are named."""
    return _HIDDEN.sub(_code, "" if text is None else str(text))


def one_line(text: object) -> str:
    return shown(
        re.sub(r"\s*\n\s*", " ↵ ", "" if text is None else str(text)).replace("\t", " ")
    )


def output_text(text: str) -> str:
    """One line of output: no colours, controls as their pictures."""
    return _HIDDEN.sub(_picture, _SGR.sub("", text))


def _code(found: re.Match[str]) -> str:
    return f"⟨U+{ord(found[0]):04X}⟩"


def _picture(found: re.Match[str]) -> str:
    point = ord(found[0])
    return chr(0x2400 + point) if point < 32 else "␡" if point == 127 else _code(found)


def name_of(session: Thing) -> str:
    return str(session.get("name") or session["id"])


def count(value: object) -> int:
    return (
        len(value)
        if isinstance(value, (list, tuple))
        else int(value)
        if isinstance(value, (int, float))
        else 0
    )


def status(session: Thing) -> str:
    """The first that fits, from what needs a person most."""
    last = session.get("last") or {}
    if session["state"] == "ended":
        return {"lost": "lost", "failed": "failing"}.get(
            str(session.get("reason")), "ended"
        )
    if count(session.get("waiting")):
        return "waiting"
    if session.get("silent"):
        return "lost"
    if not session.get("current") and last.get("cause") in _FAILING:
        return "failing"
    if session["state"] in _PHASES:
        return "starting"
    if session.get("paused") or session["state"] == "paused":
        return "paused"
    return (
        "running" if session.get("current") or count(session.get("running")) else "idle"
    )


def badges(session: Thing, now: float) -> list[str]:
    living = session["state"] != "ended"
    marks = {
        "denied": bool(session.get("denied")) and now - session["denied"] < _DENIED_FOR,
        "hot": living and bool(session.get("hot")),
        "ends soon": living
        and bool(session.get("expires"))
        and session["expires"] - now < _SOON,
    }
    return [word for word, on in marks.items() if on]


def rank(session: Thing, now: float) -> tuple[int, float, str]:
    words = [status(session), *badges(session, now)]
    current = session.get("current") or {}
    since = current.get("started") or session.get("created") or 0
    return (
        min(RANKS.index(word) for word in words if word in RANKS),
        since,
        session["id"],
    )


def leaves(session: Thing, show: str, now: float) -> bool:
    """Whether the button `show` leaves this session in the table."""
    word = status(session)
    if show == "denied":
        return "denied" in badges(session, now)
    return show == "all" or word == show or (show == "failing" and word == "lost")


def present(session: Thing, now: float) -> bool:
    return status(session) != "ended" or now - (session.get("ended") or 0) < GONE_AFTER


def command_text(command: object) -> str:
    return (
        " ".join(map(str, command)) if isinstance(command, list) else str(command or "")
    )


def finds(session: Thing, words: str) -> bool:
    doing = session.get("current") or session.get("last") or {}
    parts = [
        session.get("name"),
        session["id"],
        command_text(doing.get("command")),
        session.get("policy"),
    ]
    text = " ".join(
        str(part)
        for part in [*parts, *(session.get("metadata") or {}).values()]
        if part
    )
    return words.strip().lower() in text.lower()


def clock(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60:02}"
    return f"{whole // 60}:{whole % 60:02}"


def size(count: float) -> str:
    """`61M`: for a column."""
    for unit, factor in _UNITS:
        if count >= factor:
            return f"{count / factor:.{1 if unit == 'GiB' and count < 10 * factor else 0}f}{unit[0]}"
    return str(round(count))


def in_bytes(count: float) -> str:
    """`3.2 MiB`: for a sentence."""
    for unit, factor in _UNITS:
        if count >= factor:
            return f"{count / factor:.1f} {unit}"
    return f"{round(count)} bytes"


def number(value: float) -> str:
    return f"{value:,.0f}"


def time_of_day(when: float | None) -> str:
    return (
        datetime.fromtimestamp(when).astimezone().strftime("%H:%M:%S") if when else ""
    )


def moment(when: float | None) -> str:
    return (
        datetime.fromtimestamp(when).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        if when
        else ""
    )


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    return (
        f"{seconds * 1000:.0f} ms"
        if seconds < 1
        else f"{seconds:.1f} s"
        if seconds < 60
        else clock(seconds)
    )


def marked(text: str, words: Iterable[str]) -> list[tuple[str, bool]]:
    """The text split at the words that the findings name: `[("sudo", True), (" make", False)]`."""
    known = [re.escape(word) for word in words if word]
    if not known:
        return [(text, False)]
    pieces = re.split(rf"(?<![\w/.-])({'|'.join(known)})(?![\w/-])", text)
    return [(piece, index % 2 == 1) for index, piece in enumerate(pieces) if piece]


def plain_reason(text: object) -> str:
    """A rule's reason, without the effect that it matched in the policy's own terms."""
    return _DETAIL.sub("", one_line(text))


def card(approval: Thing, name: str, now: float) -> dict[str, Any]:
    """An approval as its card shows it."""
    text, effects = (
        str(approval["text"]),
        [one_line(effect) for effect in approval.get("effects") or ()],
    )
    rules = approval.get("rules") or []
    rule = next(
        (rule for rule in rules if rule.get("decision") == "ask"),
        rules[0] if rules else None,
    )
    more = len(effects) - MOST_EFFECTS
    return {
        "id": approval["id"],
        "risk": approval["risk"],
        "created": approval["created"],
        "about": approval.get("about"),
        "title": f"{str(approval['risk']).capitalize()} · {shown(name)}",
        "name": shown(name),
        "pieces": [
            (shown(piece), risky)
            for piece, risky in marked(text, approval.get("marks") or ())
        ],
        "lines": text.count("\n") + 1,
        "session": approval["session"],
        "effects": effects[:MOST_EFFECTS] + ([f"and {more} more"] if more > 0 else []),
        "who": " · ".join(
            shown(approval[part]) for part in ("tenant", "name") if approval.get(part)
        ),
        "rule": f"{rule['id']}: {plain_reason(rule['reason'])}"
        if rule
        else plain_reason(approval.get("reason")),
        "directory": shown(approval.get("cwd") or "/workspace"),
        "waits": clock(now - approval["created"]),
        "left": clock(approval["expires"] - now),
    }


def card_order(approval: Thing) -> tuple[int, float, str]:
    return RISKS.index(approval["risk"]), approval["created"], approval["id"]


def row(session: Thing, asked: Thing | None, now: float) -> dict[str, Any]:
    """A session as its row shows it."""
    word, current, last, use = (
        status(session),
        session.get("current"),
        session.get("last"),
        session.get("usage"),
    )
    doing = asked or current or last or {}
    since = (
        asked["created"]
        if asked
        else current["started"]
        if current
        else last.get("ended")
        if last
        else None
    )
    staged = session.get("staged")
    return {
        "id": session["id"],
        "word": word,
        "mark": MARKS[word],
        "name": one_line(name_of(session)),
        "state": f"{word} · {session['state']}" if word == "starting" else word,
        "badges": badges(session, now),
        "command": one_line(command_text(doing.get("text") or doing.get("command"))),
        "dim": not (asked or current),
        "line": output_text(session.get("last_line") or "")[:200],
        "since": clock(now - since) if since and word != "ended" else "",
        "cpu_known": bool(use),
        "cpu": round(use["cpu"] * 100) if use else "",
        "memory": size(use["memory"]) if use else "",
        "points": _flat(use["cpu"]) if use else "",
        "left": clock(session["expires"] - now)
        if session["state"] != "ended" and session.get("expires")
        else "",
        "changes": lines_changed(staged),
    }


def lines_changed(staged: Thing | None) -> str:
    """`+12 −3`; nothing where nothing has changed."""
    if not staged or not (staged["added"] or staged["removed"]):
        return ""
    return f"+{staged['added']} −{staged['removed']}"


def _flat(cpu: float) -> str:
    height = f"{14 - min(1.0, cpu) * 12:.1f}"
    return f"58,{height} 59,{height}"


EVENT_WORDS = {
    "session_open": "opened",
    "session_close": "closed",
    "pause": "paused",
    "resume": "resumed",
    "start": "started",
    "end": "ended",
    "login": "signed in",
    "key_created": "new key",
    "key_revoked": "key revoked",
}


def when(record: Thing) -> float | None:
    """The time of a record of the trail."""
    found = record.get("time")
    if isinstance(found, str):
        with suppress(ValueError):
            return datetime.fromisoformat(found).timestamp()
        return None
    return float(found) if isinstance(found, (int, float)) else None


def judged(record: Thing) -> Thing:
    """The verdict that a record holds, if any."""
    verdict = record.get("verdict")
    return verdict if isinstance(verdict, dict) else {}


def event_word(record: Thing) -> str:
    kind = str(record.get("kind", ""))
    if kind == "verdict":
        return {"deny": "denied", "ask": "asked"}.get(
            str(judged(record).get("decision")), "judged"
        )
    if kind == "approval":
        return "allowed" if record.get("approved") else "refused"
    return EVENT_WORDS.get(kind, kind)


def event_text(record: Thing) -> str:
    """What a record is about, on one line."""
    found = (
        record.get("command")
        or judged(record).get("canonical")
        or record.get("host")
        or record.get("reason")
    )
    ended = " ".join(
        str(record[name])
        for name in ("cause", "exit_code")
        if record.get(name) is not None
    )
    named = (
        record.get("made_name") or record.get("gone_name") or record.get("image") or ""
    )
    return one_line(found or ended or named)


def command_row(command: Thing, longest: float, now: float) -> dict[str, Any]:
    """A command as its row shows it. `longest`: seconds that fill a bar."""
    result, verdict = command.get("result") or {}, command.get("verdict") or {}
    took = _took(command, now)
    ended = _ended(command)
    return {
        "id": command["id"],
        "text": one_line(command_text(command["command"])),
        "ended": ended,
        "mark": END_MARKS.get(ended, "✕"),
        "started": time_of_day(command.get("started") or command.get("created")),
        "took": duration(took),
        "bar": f"{100 * took / longest:.1f}" if took and longest else "0",
        "exit": command["exit_code"]
        if command.get("exit_code") is not None
        else result.get("exit_code", ""),
        "verdict": " ".join(
            str(verdict[part]) for part in ("decision", "risk") if verdict.get(part)
        ),
    }


def _took(command: Thing, now: float) -> float | None:
    if not command.get("started"):
        return None
    return max(0.0, float(command.get("ended") or now) - float(command["started"]))


def longest(commands: Iterable[Thing], now: float) -> float:
    return max((_took(command, now) or 0.0 for command in commands), default=0.0)


def _ended(command: Thing) -> str:
    if command["state"] != "ended":
        return str(command["state"])
    if command.get("result"):
        return ENDED_IN_WORDS.get(str(command["result"]["cause"]), "ended")
    code = (command.get("error") or {}).get("code")
    return {
        "policy_denied": "denied",
        "sandbox_lost": "lost",
        "cancelled": "killed",
    }.get(str(code), "not started")
