"""The tables of the service, in SQLite (one server) or PostgreSQL (several).

A row is the object as a client sees it (`data`), beside the columns that are searched. Every change is one transaction
of a few statements, so that whatever a client was told of is there after a crash. SQLite has one writer: transactions
that wait for it are committed together.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from belljar.errors import UsageError

meta = sa.MetaData()
Statement = sa.Executable
Row = Mapping[str, Any]


def _table(name: str, *columns: sa.Column[Any], key: str = "id") -> sa.Table:
    identity: sa.Column[Any] = sa.Column(key, sa.Text, primary_key=True)
    data: sa.Column[Any] = sa.Column("data", sa.JSON, nullable=False)
    return sa.Table(name, meta, identity, *columns, data)


def _text(name: str, *, index: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Text, nullable=False, index=index, server_default="")


def _number(name: str, *, index: bool = False) -> sa.Column[Any]:
    return sa.Column(name, sa.Double, nullable=False, index=index, server_default="0")


facts = _table("facts")
tenants = _table("tenants")
keys = _table(
    "keys",
    _text("hash", index=True),
    _text("tenant"),
    _text("path"),
    _number("created"),
)
logins = _table("logins", _text("key", index=True), _number("expires"))
sessions = _table(
    "sessions",
    _text("tenant", index=True),
    _text("path"),
    _text("state", index=True),
    _text("owner"),
    _number("created", index=True),
    _number("ended"),
    _number("memory"),
    _number("cpus"),
    _number("disk"),
)
commands = _table(
    "commands",
    _text("session", index=True),
    _text("tenant"),
    _text("state", index=True),
    _number("created"),
    _number("cpu_time"),
)
approvals = _table(
    "approvals",
    _text("session", index=True),
    _text("tenant", index=True),
    _text("path"),
    _text("state", index=True),
    _number("created"),
)
links = _table("links", _text("session", index=True), _text("key"), _number("expires"))
snapshots = _table(
    "snapshots",
    _text("tenant", index=True),
    _text("name"),
    _text("path"),
    _number("created"),
)
answers = _table("answers", _text("body"), _number("created", index=True))
instances = _table("instances", _number("seen"))


class Store:
    """The database: `await store.run(insert, update)`, `await store.all(select)`."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.is_shared = not url.startswith("sqlite")
        """Whether other servers may use it at the same time."""
        self._engine: AsyncEngine | None = None
        self._waiting: list[tuple[Sequence[Statement], asyncio.Future[list[int]]]] = []
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, url: str | None, state: Path) -> Store:
        """The database at `url`; None: a file in the state directory."""
        if url is None:
            return cls(f"sqlite+aiosqlite:///{state / 'service.db'}")
        scheme, found, rest = url.partition("://")
        drivers = {
            "postgresql": "postgresql+asyncpg",
            "postgres": "postgresql+asyncpg",
            "sqlite": "sqlite+aiosqlite",
        }
        if not found or scheme not in drivers:
            raise UsageError("--database: give postgresql://… or sqlite:///PATH")
        return cls(f"{drivers[scheme]}://{rest}")

    async def open(self) -> None:
        """Connect, and bring the tables to the newest step."""
        self.connect()
        from belljar.surfaces.http.migrations import upgrade

        async with self.engine.begin() as connection:
            await connection.run_sync(upgrade)

    def connect(self) -> None:
        options: dict[str, Any] = (
            {} if self.is_shared else {"connect_args": {"timeout": 30}}
        )
        self._engine = create_async_engine(
            self.url, pool_size=8, max_overflow=8, **options
        )
        if not self.is_shared:
            sa.event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._engine is not None:
            await self._engine.dispose()

    @property
    def engine(self) -> AsyncEngine:
        assert self._engine is not None
        return self._engine

    # Reading.

    async def all(self, statement: sa.Select[Any]) -> list[Row]:
        async with self.engine.connect() as connection:
            return [row._mapping for row in await connection.execute(statement)]

    async def one(self, statement: sa.Select[Any]) -> Row | None:
        return next(iter(await self.all(statement)), None)

    async def get(self, table: sa.Table, id: str) -> Row | None:
        return await self.one(sa.select(table).where(table.c.id == id))

    # Writing.

    async def run(self, *statements: Statement) -> list[int]:
        """Run them in one transaction; how many rows each changed. IntegrityError if a row is there already."""
        done: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self._waiting.append((statements, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.get_running_loop().create_task(self._write())
        return await asyncio.shield(done)

    async def insert(self, table: sa.Table, **row: Any) -> None:
        await self.run(sa.insert(table).values(**row))

    async def update(self, table: sa.Table, id: str, **row: Any) -> bool:
        return (await self.run(sa.update(table).where(table.c.id == id).values(**row)))[
            0
        ] > 0

    async def delete(self, table: sa.Table, id: str) -> bool:
        return (await self.run(sa.delete(table).where(table.c.id == id)))[0] > 0

    async def _write(self) -> None:
        while self._waiting:
            batch, self._waiting = self._waiting, []
            try:
                counts = await self._together([statements for statements, _ in batch])
            except Exception:  # one of them spoils the others: each on its own
                for statements, done in batch:
                    await self._alone(statements, done)
                continue
            for (_, done), count in zip(batch, counts, strict=True):
                _settle(done, count)

    async def _together(self, batch: list[Sequence[Statement]]) -> list[list[int]]:
        async with self.engine.begin() as connection:
            return [
                [await _changed(connection, statement) for statement in statements]
                for statements in batch
            ]

    async def _alone(
        self, statements: Sequence[Statement], done: asyncio.Future[list[int]]
    ) -> None:
        try:
            _settle(done, (await self._together([statements]))[0])
        except Exception as error:
            if not done.done():
                done.set_exception(error)

    @contextlib.asynccontextmanager
    async def locked(self, name: str) -> AsyncIterator[None]:
        """Keep other servers out of this block."""
        if not self.is_shared:
            yield
            return
        async with self.engine.begin() as connection:
            await connection.execute(
                sa.text("select pg_advisory_xact_lock(hashtext(:name))"), {"name": name}
            )
            yield


def _settle(done: asyncio.Future[list[int]], counts: list[int]) -> None:
    if not done.done():
        done.set_result(counts)


async def _changed(connection: AsyncConnection, statement: Statement) -> int:
    result = await connection.execute(statement)
    return int(getattr(result, "rowcount", 0) or 0)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


__all__ = ["IntegrityError", "Row", "Statement", "Store"]
