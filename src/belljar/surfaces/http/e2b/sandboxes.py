"""Sandboxes as E2B's clients see them: ids, tokens, states, deadlines.

The facts that only E2B knows (its timeout, what happens then, the template's name) are in the session's metadata, under
names that begin with `e2b.`, so they are there after a restart and at every replica.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import secrets
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from belljar.surfaces import connections
from belljar.surfaces.http import storage
from belljar.surfaces.http.keys import PREFIX, Key
from belljar.surfaces.http.problems import Problem

if TYPE_CHECKING:
    from starlette.requests import Request

    from belljar.surfaces.http.service import Service
    from belljar.surfaces.http.sessions import LiveSession
    from belljar.surfaces.http.storage import Row

ENVD_VERSION = "0.6.4"
"""What the clients of these years expect of the daemon in a sandbox."""
HEX_PREFIX = "e2b_"
OURS = "e2b."
LONGEST = 24 * 3600
USUAL = 300
TICK_SECONDS = 0.5


class Refused(Exception):
    """An answer of the API that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


class Sandboxes:
    def __init__(self, service: Service) -> None:
        self.service = service
        self._secret = b""
        self._ticking: asyncio.Task[None] | None = None

    async def open(self) -> None:
        fresh = {"secret": secrets.token_hex(32)}
        try:
            await self.service.store.insert(storage.facts, id="e2b", data=fresh)
        except storage.IntegrityError:
            row = await self.service.store.get(storage.facts, "e2b")
            assert row is not None
            fresh = row["data"]
        self._secret = bytes.fromhex(fresh["secret"])
        self._ticking = asyncio.get_running_loop().create_task(self._tick())

    def close(self) -> None:
        if self._ticking is not None:
            self._ticking.cancel()

    # Who asks.

    async def key(self, request: Request) -> Key:
        """The key of a call to the API."""
        given = request.headers.get("x-api-key") or request.headers.get(
            "authorization", ""
        ).removeprefix("Bearer ")
        key = await self.service.keys.by_secret(_secret(given))
        if key is None:
            raise Refused(401, "unauthorized: X-API-Key must be a key of this server")
        connections.admit(request.scope)
        return key

    def token(self, id: str) -> str:
        """What a client shows to reach a sandbox. It needs no row: it is computed again from the id."""
        return hmac.new(self._secret, id.encode(), hashlib.sha256).hexdigest()

    def is_token(self, id: str, given: str) -> bool:
        return hmac.compare_digest(
            self.token(id).encode(), given.encode("utf-8", "surrogateescape")
        )

    def signed(self, request: Request, operation: str) -> LiveSession:
        """The sandbox whose token signed this address of a file; a signature names no sandbox, so each is tried."""
        query = request.query_params
        expiry = query.get("signature_expiration", "")
        words = [query.get("path", ""), operation, query.get("username", "")]
        for session in self.service.living:
            text = ":".join(
                [*words, self.token(session.id), *([expiry] if expiry else [])]
            )
            digest = (
                base64.b64encode(hashlib.sha256(text.encode()).digest())
                .rstrip(b"=")
                .decode()
            )
            if hmac.compare_digest(
                f"v1_{digest}".encode(), query.get("signature", "").encode()
            ):
                if expiry and (
                    not expiry.lstrip("-").isdigit() or int(expiry) < time.time()
                ):
                    raise Refused(401, "signature is already expired")
                return session
        raise Refused(401, "invalid signature")

    # Finding them.

    async def live(self, key: Key, id: str) -> LiveSession:
        """A sandbox that this key may see and that has not ended."""
        try:
            session = await self.service.live_for(key, id)
        except Problem:
            raise Refused(404, f"sandbox {id!r} was not found") from None
        if session.is_over or session.is_ending:
            raise Refused(404, f"sandbox {id!r} was not found")
        return session

    def named(self, id: str) -> LiveSession:
        """For a call to the sandbox itself, whose token was checked."""
        session = self.service.live(id)
        if (
            session is None
            or session.is_over
            or session.is_ending
            or session.state == "paused"
        ):
            raise Refused(502, f"The sandbox was not found: {id}")
        return session

    # Showing them.

    def created(self, session: LiveSession) -> dict[str, Any]:
        return {
            "templateID": template(session),
            "alias": template(session),
            "sandboxID": session.id,
            "clientID": self.service.id,
            "envdVersion": ENVD_VERSION,
            "envdAccessToken": self.token(session.id),
            "trafficAccessToken": None,
            "domain": None,
        }

    def listed(self, shown: dict[str, Any]) -> dict[str, Any]:
        """One of a list, from a session as `/v1` shows it."""
        limits, facts = shown["limits"], _facts(shown)
        return {
            "templateID": facts.get("template", shown["image"]),
            "alias": facts.get("template", shown["image"]),
            "sandboxID": shown["id"],
            "clientID": self.service.id,
            "startedAt": moment(shown["created"]),
            "endAt": moment(
                float(facts.get("end") or shown["expires"] or shown["created"])
            ),
            "cpuCount": max(1, round(limits["cpus"] or 1)),
            "memoryMB": (limits["memory"] or 0) >> 20,
            "diskSizeMB": (limits["disk"] or limits["home"] or 0) >> 20,
            "envdVersion": ENVD_VERSION,
            "state": "paused" if shown["state"] == "paused" else "running",
            "metadata": _theirs(shown),
        }

    def detail(self, session: LiveSession) -> dict[str, Any]:
        shown = session.as_dict()
        facts = _facts(shown)
        lifecycle = {
            "autoResume": facts.get("auto_resume") == "1",
            "onTimeout": "pause" if facts.get("auto_pause") == "1" else "kill",
        }
        network = shown["network"]
        allowed = {"allowOut": network["allow"]} if isinstance(network, dict) else {}
        return {
            **self.listed(shown),
            "envdAccessToken": self.token(session.id),
            "domain": None,
            "lifecycle": lifecycle,
            "allowInternetAccess": network == "full",
            "network": {"allowPublicTraffic": False, **allowed},
            **({"pauseMode": "full"} if shown["state"] == "paused" else {}),
        }

    # Changing them.

    async def set_timeout(
        self, session: LiveSession, seconds: int, *, only_longer: bool = False
    ) -> None:
        """Let it end (or pause) so many seconds from now."""
        end = time.time() + seconds
        facts = session.data["metadata"]
        if only_longer and float(facts.get(f"{OURS}end") or 0) >= end:
            return
        auto = facts.get(f"{OURS}auto_pause") == "1"
        session.ends_at = None if auto or session.state == "paused" else end
        await session.save(
            metadata={**facts, f"{OURS}end": str(end)},
            lease=float(seconds),
            expires=end + (LONGEST if auto else 0),
        )

    async def pause(self, session: LiveSession) -> None:
        if session.state == "paused":
            raise Refused(409, f"sandbox {session.id} is paused already")
        await session.pause(paused=True)
        session.ends_at = None
        await session.save(expires=time.time() + 30 * LONGEST)

    async def resume(self, session: LiveSession, seconds: int) -> None:
        if session.state == "paused":
            await session.pause(paused=False)
            await self.set_timeout(session, seconds)
        else:
            await self.set_timeout(session, seconds, only_longer=True)

    async def _tick(self) -> None:
        """Pause those whose time is over and that wish it so."""
        while True:
            await asyncio.sleep(TICK_SECONDS)
            for session in self.service.living:
                facts = session.data["metadata"]
                is_due = float(facts.get(f"{OURS}end") or "inf") <= time.time()
                if (
                    is_due
                    and facts.get(f"{OURS}auto_pause") == "1"
                    and session.state == "ready"
                ):
                    try:
                        await self.pause(session)
                    except (Refused, Problem) as error:
                        self.service.report(error)


def template(session: LiveSession) -> str:
    return str(_facts(session.data).get("template", session.data["image"]))


def seconds_of(
    body: dict[str, Any], name: str = "timeout", default: int = USUAL
) -> int:
    value = body.get(name)
    if value is None:
        return default
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 <= value <= LONGEST
    ):
        raise Refused(400, f"{name}: seconds from 0 to {LONGEST} expected")
    return int(value)


def moment(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


def _secret(given: str) -> str:
    """Some clients insist on keys that look like E2B's: `e2b_` and our key in hexadecimal digits."""
    if given.startswith(HEX_PREFIX):
        try:
            return bytes.fromhex(given.removeprefix(HEX_PREFIX)).decode()
        except ValueError:
            return ""
    return given if given.startswith(PREFIX) else ""


def _facts(shown: dict[str, Any] | Row) -> dict[str, str]:
    return {
        name.removeprefix(OURS): text
        for name, text in shown["metadata"].items()
        if name.startswith(OURS)
    }


def _theirs(shown: dict[str, Any]) -> dict[str, str]:
    return {
        name: text
        for name, text in shown["metadata"].items()
        if not name.startswith(OURS)
    }
