"""Who calls: tenants, keys, scopes, logins.

A key is 256 random bits that only its holder knows; the database has its hash. Keys form trees: whoever has a key can
make narrower ones, and when a key goes, all below it go. `path` is the way from the root to a key (`/a/b/`), so what a
key and its descendants made is everything whose path begins with its own.

All keys are held in memory. A server that shares its database reads them again when another has changed them.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from belljar.surfaces.http import quota, storage
from belljar.surfaces.http.problems import Problem

if TYPE_CHECKING:
    from belljar.surfaces.http.storage import Row, Store

PREFIX = "bj_"
LOGIN_SECONDS = 12 * 3600
DEFAULT_TENANT = "default"
SCOPES = ("read", "run", "approve", "admin", "operator")
_MEANS = {
    "read": {"read"},
    "run": {"read", "run"},
    "approve": {"read", "approve"},
    "admin": {"read", "run", "approve", "admin"},
    "operator": {*SCOPES},
}
TRIES_A_MINUTE = 10
REREAD_SECONDS = (
    0.5  # how old the keys may be that a server with a shared database knows
)


def meant(scopes: Any) -> frozenset[str]:
    """A scope holds the lesser ones."""
    return frozenset().union(*(_MEANS[scope] for scope in scopes))


def hashed(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def new_id(kind: str) -> str:
    return f"{kind}-{secrets.token_hex(8)}"


@dataclass(eq=False)
class Key:
    id: str
    name: str
    tenant: str
    scopes: tuple[str, ...]
    reach: str
    parent: str | None
    path: str
    own_quota: dict[str, Any]
    """Only what was given."""
    created: float
    expires: float | None
    last_used: float | None = None
    revoked: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0
    """Open now."""
    requests: int = 0
    """Likewise."""
    hash: str = ""

    def may(self, scope: str) -> bool:
        return scope in meant(self.scopes)

    def made(self, path: str) -> bool:
        """Whether a thing with this path was made by this key or one below it."""
        return path.startswith(self.path)

    def sees(self, tenant: str, path: str) -> bool:
        return tenant == self.tenant and (self.reach == "tenant" or self.made(path))

    @property
    def is_over(self) -> bool:
        return self.revoked.is_set() or (
            self.expires is not None and time.time() >= self.expires
        )


class Keys:
    def __init__(self, store: Store) -> None:
        self._store = store
        self._by_id: dict[str, Key] = {}
        self._by_hash: dict[str, Key] = {}
        self.tenants: dict[str, dict[str, Any]] = {}
        self._logins: dict[str, tuple[str, float]] = {}
        self._tries: dict[str, list[float]] = {}
        self._read_at = 0.0

    # Reading them.

    async def load(self) -> None:
        tenants = await self._store.all(sa.select(storage.tenants))
        rows = await self._store.all(sa.select(storage.keys))
        logins = await self._store.all(sa.select(storage.logins))
        self.tenants = {row["id"]: row["data"] for row in tenants}
        known, self._by_id, self._by_hash = self._by_id, {}, {}
        for row in rows:
            self._know(known.pop(row["id"]) if row["id"] in known else _key(row))
        for key in known.values():
            key.revoked.set()
        self._logins = {row["id"]: (row["key"], row["expires"]) for row in logins}
        self._read_at = time.monotonic()

    async def _reread(self) -> None:
        if self._store.is_shared and time.monotonic() - self._read_at > REREAD_SECONDS:
            await self.load()

    def _know(self, key: Key) -> None:
        self._by_id[key.id] = self._by_hash[key.hash] = key

    async def by_secret(self, secret: str) -> Key | None:
        """The living key that is this secret."""
        await self._reread()
        return self._living(
            self._by_hash.get(hashed(secret)) if secret.startswith(PREFIX) else None
        )

    async def by_cookie(self, cookie: str) -> Key | None:
        await self._reread()
        id, expires = self._logins.get(hashed(cookie), ("", 0.0))
        return self._living(self._by_id.get(id)) if time.time() < expires else None

    def _living(self, key: Key | None) -> Key | None:
        if key is None or key.is_over:
            return None
        key.last_used = time.time()
        return key

    def get(self, id: str) -> Key | None:
        return self._by_id.get(id)

    def name_of(self, id: str) -> str:
        key = self._by_id.get(id)
        return key.name if key else ""

    def visible_to(self, caller: Key) -> list[Key]:
        if caller.may("admin"):
            found = [key for key in self._by_id.values() if key.tenant == caller.tenant]
        else:
            found = [
                key
                for key in self._by_id.values()
                if key.tenant == caller.tenant and caller.made(key.path)
            ]
        return sorted(
            (key for key in found if not key.is_over),
            key=lambda key: (-key.created, key.id),
        )

    def chain(self, key: Key) -> list[Key]:
        """The key and all above it."""
        return [
            known
            for id in key.path.strip("/").split("/")
            if (known := self._by_id.get(id)) is not None
        ]

    def effective(self, key: Key) -> dict[str, Any]:
        """The quota that binds a key: its own, those above it, and the tenant's."""
        quotas = [each.own_quota for each in self.chain(key)]
        return quota.narrowest(
            [self.tenants.get(key.tenant, {}).get("quota", {}), *quotas]
        )

    def as_dict(self, key: Key) -> dict[str, Any]:
        return {
            "id": key.id,
            "name": key.name,
            "tenant": key.tenant,
            "scopes": list(key.scopes),
            "reach": key.reach,
            "parent": key.parent,
            "quota": self.effective(key),
            "created": key.created,
            "expires": key.expires,
            "last_used": key.last_used,
        }

    # Making and ending them.

    async def first(self, secret: str | None) -> str | None:
        """Make the first key, if there is none; its secret, if it was made here and not given."""
        if self._by_id:
            return None
        if DEFAULT_TENANT not in self.tenants:
            await self.make_tenant(DEFAULT_TENANT, {})
        made = secret or PREFIX + secrets.token_urlsafe(32)
        id = new_id("key")
        await self._add(
            Key(
                id,
                "first",
                DEFAULT_TENANT,
                ("operator",),
                "tenant",
                None,
                f"/{id}/",
                {},
                time.time(),
                None,
            ),
            made,
        )
        return None if secret else made

    async def mint(
        self,
        caller: Key,
        wanted: dict[str, Any],
        *more: storage.Statement,
        id: str = "",
    ) -> tuple[Key, str]:
        """A child key and its secret; 403 if it would be wider than the caller's."""
        tenant = wanted["tenant"] or caller.tenant
        if tenant != caller.tenant and not caller.may("operator"):
            raise Problem("forbidden", "this key makes keys of its own tenant only")
        if tenant not in self.tenants:
            raise Problem("not_found", f"there is no tenant {tenant}", field="tenant")
        scopes = tuple(dict.fromkeys(wanted["scopes"]))
        if missing := sorted(meant(scopes) - meant(caller.scopes)):
            raise Problem(
                "forbidden",
                f"this key has no scope {missing[0]} to give",
                scope=missing[0],
            )
        if "operator" in scopes and tenant != DEFAULT_TENANT:
            raise Problem(
                "forbidden",
                f"an operator's key belongs to the tenant {DEFAULT_TENANT}",
                scope="operator",
            )
        reach = wanted["reach"] or ("tenant" if caller.may("admin") else "own")
        if reach == "tenant" and not (caller.may("admin") and caller.reach == "tenant"):
            raise Problem(
                "forbidden",
                "a key without the scope admin makes keys with reach own only",
                scope="admin",
            )
        expires = wanted["expires"] if wanted["expires"] is not None else caller.expires
        if (
            caller.expires is not None
            and expires is not None
            and expires > caller.expires
        ):
            raise Problem(
                "forbidden", "it would outlive the key that makes it", field="expires"
            )
        bounds = self._granted(caller, tenant, scopes, wanted["quota"])
        id = id or new_id("key")
        key = Key(
            id,
            wanted["name"],
            tenant,
            scopes,
            reach,
            caller.id,
            f"{caller.path}{id}/",
            bounds,
            time.time(),
            expires,
        )
        secret = PREFIX + secrets.token_urlsafe(32)
        await self._add(key, secret, *more)
        return key, secret

    def _granted(
        self, caller: Key, tenant: str, scopes: tuple[str, ...], given: dict[str, Any]
    ) -> dict[str, Any]:
        """The quota of a new key: what is given, and for one without admin what new tenants have."""
        limit = (
            self.effective(caller)
            if tenant == caller.tenant
            else quota.narrowest([c.own_quota for c in self.chain(caller)])
        )
        for name, value in given.items():
            if quota.wider(name, value, limit[name]):
                raise Problem(
                    "forbidden",
                    f"quota: {name} would be wider than this key's own",
                    quota=name,
                )
        if "admin" in meant(scopes):
            return given
        usual = {name: quota.NEW_TENANT[name] for name in ("policies", "network")}
        return {
            **quota.narrowest([usual, {name: limit[name] for name in usual}]),
            **given,
        }

    async def _add(self, key: Key, secret: str, *more: storage.Statement) -> None:
        key.hash = hashed(secret)
        row = {
            "id": key.id,
            "hash": key.hash,
            "tenant": key.tenant,
            "path": key.path,
            "created": key.created,
            "data": {
                "name": key.name,
                "scopes": list(key.scopes),
                "reach": key.reach,
                "parent": key.parent,
                "quota": key.own_quota,
                "expires": key.expires,
                "last_used": None,
            },
        }
        await self._store.run(sa.insert(storage.keys).values(**row), *more)
        self._know(key)

    async def revoke(self, key: Key) -> list[Key]:
        """End a key, all below it, and their logins."""
        gone = [each for each in self._by_id.values() if each.path.startswith(key.path)]
        ids = [each.id for each in gone]
        for each in gone:
            self._by_id.pop(each.id, None)
            self._by_hash.pop(each.hash, None)
            each.revoked.set()
        self._logins = {
            hash: login for hash, login in self._logins.items() if login[0] not in ids
        }
        await self._store.run(
            sa.delete(storage.logins).where(storage.logins.c.key.in_(ids)),
            sa.delete(storage.links).where(storage.links.c.key.in_(ids)),
            sa.delete(storage.keys).where(
                storage.keys.c.path.startswith(key.path, autoescape=True)
            ),
        )
        return gone

    async def make_tenant(
        self, name: str, bounds: dict[str, Any], *more: storage.Statement
    ) -> dict[str, Any]:
        tenant = {"name": name, "quota": bounds, "created": time.time()}
        await self._store.run(
            sa.insert(storage.tenants).values(id=name, data=tenant), *more
        )
        self.tenants[name] = tenant
        return tenant

    async def end_tenant(self, name: str) -> None:
        for key in [key for key in self._by_id.values() if key.tenant == name]:
            await self.revoke(key)
        await self._store.delete(storage.tenants, name)
        self.tenants.pop(name, None)

    async def note_use(self) -> None:
        """Write down when keys were last used."""
        used = [key for key in self._by_id.values() if key.last_used]
        rows = (
            {
                row["id"]: row["data"]
                for row in await self._store.all(sa.select(storage.keys))
            }
            if used
            else {}
        )
        for key in used:
            if key.id in rows and rows[key.id]["last_used"] != key.last_used:
                await self._store.update(
                    storage.keys,
                    key.id,
                    data={**rows[key.id], "last_used": key.last_used},
                )

    # Logins of browsers.

    def may_try(self, address: str) -> bool:
        """Whether this address has not tried too many wrong keys in the last minute."""
        now = time.monotonic()
        tries = [at for at in self._tries.pop(address, []) if now - at < 60]
        if tries:
            self._tries[address] = tries
        return len(tries) < TRIES_A_MINUTE

    async def login(self, secret: str, address: str) -> tuple[Key, str]:
        """A key and the cookie that stands for it; 401 if there is no such key, 429 after too many tries."""
        if not self.may_try(address):
            raise Problem(
                "quota_exceeded",
                "too many wrong keys",
                quota="logins",
                headers={"Retry-After": "60"},
            )
        key = await self.by_secret(secret)
        if key is None:
            if len(self._tries) > 10_000:
                self._tries.clear()
            self._tries.setdefault(address, []).append(time.monotonic())
            raise Problem(
                "unauthenticated",
                "this key is not valid",
                headers={"WWW-Authenticate": "Bearer"},
            )
        cookie = secrets.token_urlsafe(32)
        expires = min(time.time() + LOGIN_SECONDS, key.expires or float("inf"))
        await self._store.insert(
            storage.logins, id=hashed(cookie), key=key.id, expires=expires, data={}
        )
        self._logins[hashed(cookie)] = key.id, expires
        return key, cookie

    async def logout(self, cookie: str) -> None:
        self._logins.pop(hashed(cookie), None)
        await self._store.delete(storage.logins, hashed(cookie))

    def login_ends(self, cookie: str) -> float:
        return self._logins.get(hashed(cookie), ("", 0.0))[1]


def _key(row: Row) -> Key:
    data = row["data"]
    return Key(
        row["id"],
        data["name"],
        row["tenant"],
        tuple(data["scopes"]),
        data["reach"],
        data["parent"],
        row["path"],
        data["quota"],
        row["created"],
        data["expires"],
        data["last_used"],
        hash=row["hash"],
    )
