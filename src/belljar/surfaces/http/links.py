"""Links to a port of a session, for whoever has no key: `/p/TOKEN/…`. The database has only a hash of the token."""

from __future__ import annotations

import secrets
import time
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from belljar.surfaces.http import storage
from belljar.surfaces.http.keys import hashed

if TYPE_CHECKING:
    from belljar.surfaces.http.storage import Store

LONGEST = 24 * 3600.0


class Links:
    def __init__(self, store: Store) -> None:
        self._store = store

    async def make(self, session: str, port: int, key: str, expires: float) -> str:
        token = secrets.token_hex(24)  # it may be the name of a host
        await self._store.insert(
            storage.links,
            id=hashed(token),
            session=session,
            key=key,
            expires=expires,
            data={"port": port},
        )
        return token

    async def find(self, token: str) -> tuple[str, int, str] | None:
        """Session, port and key of a link that still holds."""
        row = await self._store.get(storage.links, hashed(token))
        if row is None or time.time() >= row["expires"]:
            return None
        data: dict[str, Any] = row["data"]
        return row["session"], data["port"], row["key"]

    async def end_of(self, session: str) -> None:
        await self._store.run(
            sa.delete(storage.links).where(storage.links.c.session == session)
        )
