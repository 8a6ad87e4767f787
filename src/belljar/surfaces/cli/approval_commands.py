"""`belljar approvals`: what waits at a service for somebody's yes, and the answer."""

from __future__ import annotations

import time
from argparse import Namespace
from typing import Any

from belljar.audit import masking
from belljar.errors import UsageError
from belljar.surfaces.cli import console, far
from belljar.surfaces.terminal.render import plain

LONGEST_TEXT = 60


async def listing(args: Namespace) -> int:
    found = await far.service().approvals(
        state="" if args.all else "waiting", session=args.session
    )
    rows = [
        (
            each["id"],
            each["risk"],
            _left(each),
            each["session"],
            plain(_short(each["text"])),
            plain(each["reason"]),
        )
        for each in found
    ]
    return console.answer_table(
        args, found, rows, "APPROVAL", "RISK", "LEFT", "SESSION", "COMMAND", "REASON"
    )


def _short(text: str) -> str:
    line = " ".join(masking.text(text).split())
    return line if len(line) <= LONGEST_TEXT else f"{line[: LONGEST_TEXT - 1]}…"


def _left(approval: dict[str, Any]) -> str:
    if approval["state"] != "waiting":
        return str(approval["state"])
    return f"{max(0, approval['expires'] - time.time()):.0f}s"


async def show(args: Namespace) -> int:
    approval = await _the(args.id)
    lines = [
        f"{approval['id']}: {approval['state']}, {approval['risk']} risk, in {approval['session']}",
        *(f"  {plain(line)}" for line in approval["text"].splitlines()),
        plain(approval["reason"]),
        *(f"it would {plain(effect)}" for effect in approval["effects"]),
    ]
    return console.answer(args, approval, *lines)


async def allow(args: Namespace) -> int:
    return await _decide(args, "allow", "session" if args.for_session else "once")


async def deny(args: Namespace) -> int:
    return await _decide(args, "deny", "once")


async def _decide(args: Namespace, decision: str, scope: str) -> int:
    """Each is decided as it is now: the token says what was looked at."""
    decided = []
    for id in args.ids:
        approval = await _the(id)
        decided.append(
            await far.service().decide(
                approval,
                decision,
                scope=scope,
                reason=getattr(args, "reason", None) or "",
            )
        )
        if not args.json:
            console.note(f"{decided[-1]['state']}: {plain(_short(approval['text']))}")
    return console.answer(args, decided)


async def _the(id: str) -> dict[str, Any]:
    """By its id, or the beginning of one that waits."""
    service = far.service()
    waiting = await service.approvals()
    found = [each for each in waiting if each["id"].startswith(id)]
    if len(found) > 1:
        raise UsageError(
            f"several approvals begin with {id}: {', '.join(each['id'] for each in found)}"
        )
    return found[0] if found else await service.approval(id)
