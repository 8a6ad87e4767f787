"""Questions that wait for a person: whether a command may run, whether a host may be reached.

An approval is bound to what was judged by its `token`; whoever decides sends the token of what they saw. It waits in
the database, so it survives a restart with its id, token and expiry. Of several deciders the first wins, also across
servers: the row changes from `waiting` exactly once. What expires is denied.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol

import sqlalchemy as sa

from belljar.errors import SandboxLost
from belljar.policy.approvals import Approvals as Remembered
from belljar.surfaces.http import storage
from belljar.surfaces.http.events import Signal
from belljar.surfaces.http.keys import new_id
from belljar.surfaces.http.problems import Problem
from belljar.surfaces.words import sentences, words_at_risk

if TYPE_CHECKING:
    from belljar.policy import Verdict
    from belljar.surfaces.http.audit import Cause, TenantAudit
    from belljar.surfaces.http.events import Events
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.metrics import Metrics
    from belljar.surfaces.http.storage import Store

LOOK_EVERY = 1.0  # seconds until a decision at another server is noticed


class Asking(Protocol):
    """What asks: a command, or a session for itself."""

    data: dict[str, Any]
    path: str
    cause: Cause

    @property
    def id(self) -> str: ...


class AskingCommand(Asking, Protocol):
    body: dict[str, Any]

    async def save(self, *more: storage.Statement, **changes: Any) -> None: ...


class AskingSession(Asking, Protocol):
    @property
    def tenant(self) -> str: ...
    def let_through(self) -> None: ...
    async def remember(self, verdict: Verdict) -> None: ...


asking: ContextVar[AskingCommand | None] = ContextVar("belljar_asking", default=None)
"""The command that is judged in this task."""


class Approvals:
    """The approvals of this server's sessions."""

    def __init__(
        self,
        store: Store,
        events: Events,
        metrics: Metrics,
        trail: Callable[[str], TenantAudit],
    ) -> None:
        self._store, self._events, self._metrics, self._trail = (
            store,
            events,
            metrics,
            trail,
        )
        self._changed = Signal()

    # Asking.

    async def ask(self, session: AskingSession, verdict: Verdict) -> bool | None:
        """True: allowed. False: a person said no. None: nobody answered in time."""
        command = asking.get()
        bypass = session.data["bypass_until"]
        if bypass is not None and time.time() < bypass:
            session.let_through()
            self._trail(session.tenant).note(
                "approval",
                session=session.id,
                digest=verdict.digest,
                approved=True,
                by="bypass",
            )
            return True
        seconds = session.data["approval_seconds"]
        if not seconds:
            return None
        cwd, env = (
            (command.body["cwd"], command.body["env"])
            if command is not None
            else (None, {})
        )
        token = token_of(verdict, cwd, env, session.data)
        known = (
            await self.find(command.data["approval"])
            if command and command.data["approval"]
            else None
        )
        if known is None or known["token"] != token:
            known = await self._new(session, verdict, token, cwd, seconds)
        decided = await self._decision(known["id"], known["expires"])
        if decided["state"] == "allowed":
            if decided["decided"]["scope"] == "session":
                await session.remember(verdict)
            return True
        if decided["state"] == "cancelled":
            raise SandboxLost("the session ended")
        return False if decided["state"] == "denied" else None

    async def _new(
        self,
        session: AskingSession,
        verdict: Verdict,
        token: str,
        cwd: str | None,
        seconds: float,
    ) -> dict[str, Any]:
        command, now = asking.get(), time.time()
        by = command.cause if command is not None else session.cause
        approval = {
            "id": new_id("a"),
            "session": session.id,
            "tenant": session.tenant,
            "key": by.key,
            "name": by.name,
            "command": command.id if command is not None else None,
            "about": "host" if verdict.about == "host" else "command",
            "state": "waiting",
            "text": verdict.canonical,
            "risk": verdict.risk,
            "reason": verdict.reason,
            "rules": [rule.as_dict() for rule in verdict.rules],
            "effects": sentences(verdict),
            "marks": words_at_risk(verdict),
            "cwd": cwd or "/workspace",
            "policy": verdict.policy,
            "created": now,
            "expires": now + seconds,
            "token": token,
            "decided": None,
        }
        path = command.path if command is not None else session.path
        insert = sa.insert(storage.approvals).values(
            id=approval["id"],
            session=session.id,
            tenant=session.tenant,
            path=path,
            state="waiting",
            created=now,
            data=approval,
        )
        if command is not None:
            await command.save(
                insert,
                state="waiting",
                approval=approval["id"],
                verdict=verdict.as_dict(),
            )
        else:
            await self._store.run(insert)
        self._events.put("approvals", approval, session.tenant, path)
        return approval

    async def _decision(self, id: str, expires: float) -> dict[str, Any]:
        """The approval, once it does not wait any more."""
        while True:
            approval = await self.find(id)
            if approval is None:
                raise SandboxLost("the approval is gone")
            if approval["state"] != "waiting":
                return approval
            left = expires - time.time()
            if left <= 0:
                await self._change(approval, "expired", None)
            else:
                await self._changed.wait(
                    min(left, LOOK_EVERY) if self._store.is_shared else left
                )

    # Deciding.

    async def decide(
        self, approval: dict[str, Any], wanted: dict[str, Any], key: Key
    ) -> dict[str, Any]:
        if approval["state"] != "waiting":
            raise Problem(
                "approval_decided",
                f"it was {approval['state']} already",
                approval=approval,
            )
        if wanted["token"] != approval["token"]:
            raise Problem(
                "approval_changed",
                "this is not what was asked; look again",
                approval=approval,
            )
        if time.time() >= approval["expires"]:
            await self._change(approval, "expired", None)
            raise Problem(
                "approval_decided",
                "it has expired",
                approval=await self.find(approval["id"]),
            )
        state = "allowed" if wanted["decision"] == "allow" else "denied"
        decided = {
            "by": key.id,
            "name": key.name,
            "at": time.time(),
            "decision": wanted["decision"],
            "scope": wanted["scope"],
            "reason": wanted["reason"],
        }
        changed = await self._change(approval, state, decided)
        if changed is None:
            raise Problem(
                "approval_decided",
                "somebody decided first",
                approval=await self.find(approval["id"]),
            )
        self._trail(approval["tenant"]).note(
            "approval",
            session=approval["session"],
            approval=approval["id"],
            command=approval["text"],
            approved=state == "allowed",
            scope=wanted["scope"],
            reason=wanted["reason"] or None,
            by="person",
        )
        return changed

    async def _change(
        self, approval: dict[str, Any], state: str, decided: dict[str, Any] | None
    ) -> dict[str, Any] | None:
        """The approval in its new state; None: it did not wait any more."""
        changed = {**approval, "state": state, "decided": decided}
        table = storage.approvals
        count = await self._store.run(
            sa.update(table)
            .where(table.c.id == approval["id"], table.c.state == "waiting")
            .values(state=state, data=changed)
        )
        if not count[0]:
            return None
        self._metrics.approvals.labels(state).inc()
        row = await self._store.get(table, approval["id"])
        self._events.put(
            "approvals", changed, approval["tenant"], row["path"] if row else ""
        )
        self._changed.fire()
        return changed

    async def cancel(self, id: str) -> None:
        approval = await self.find(id)
        if approval is not None and approval["state"] == "waiting":
            await self._change(approval, "cancelled", None)

    async def cancel_of(self, session: str) -> None:
        table = storage.approvals
        rows = await self._store.all(
            sa.select(table).where(
                table.c.session == session, table.c.state == "waiting"
            )
        )
        for row in rows:
            await self._change(dict(row["data"]), "cancelled", None)

    async def find(self, id: str) -> dict[str, Any] | None:
        row = await self._store.get(storage.approvals, id) if id else None
        return dict(row["data"]) if row is not None else None

    async def expire(self) -> None:
        """Deny what nobody waits for in this process, such as questions of a session that is being adopted."""
        table = storage.approvals
        for row in await self._store.all(
            sa.select(table).where(table.c.state == "waiting")
        ):
            if time.time() >= row["data"]["expires"]:
                await self._change(dict(row["data"]), "expired", None)


def token_of(
    verdict: Verdict, cwd: str | None, env: dict[str, str], session: dict[str, Any]
) -> str:
    """What was judged, as one hash."""
    judged = [
        verdict.digest,
        cwd,
        sorted(env),
        verdict.policy,
        session["network"],
        session["id"],
    ]
    return hashlib.sha256(json.dumps(judged).encode()).hexdigest()


def remembered(approvals: Remembered) -> dict[str, Any]:
    """What holds for the session, as it is stored."""
    return {
        "digests": sorted(approvals.digests),
        "shapes": [
            [sorted(rules), sorted(map(list, shapes))]
            for rules, shapes in approvals.shapes
        ],
    }


def restored(approvals: Remembered, stored: dict[str, Any]) -> None:
    approvals.digests.update(stored.get("digests", ()))
    for rules, shapes in stored.get("shapes", ()):
        approvals.shapes.append(
            (frozenset(rules), frozenset((a, b, c, d) for a, b, c, d in shapes))
        )
