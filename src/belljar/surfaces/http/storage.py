"""The tables of the service, in SQLite (one server) or PostgreSQL (several).

A row is the object as a client sees it (`data`), beside the columns that are searched. Every change is one transaction
of a few statements, so that whatever a client was told of is there after a crash. SQLite has one writer: transactions
that wait for it are committed together. Each of its transactions is one call in a thread: with an asynchronous driver
it would be five.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import sqlalchemy as sa
from anyio import CapacityLimiter, to_thread
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from belljar.errors import UsageError

T = TypeVar("T")
meta = sa.MetaData()
Statement = sa.Executable
Row = Mapping[Any, Any]
CONNECTIONS = 8


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
        self._shared: AsyncEngine | None = None
        self._own: sa.Engine | None = None
        self._threads = CapacityLimiter(CONNECTIONS)
        self._waiting: list[tuple[Sequence[Statement], asyncio.Future[list[int]]]] = []
        self._writing: asyncio.Task[None] | None = None

    @classmethod
    def at(cls, url: str | None, state: Path) -> Store:
        """The database at `url`; None: a file in the state directory."""
        if url is None:
            return cls(f"sqlite:///{state / 'service.db'}")
        scheme, found, rest = url.partition("://")
        drivers = {
            "postgresql": "postgresql+asyncpg",
            "postgres": "postgresql+asyncpg",
            "sqlite": "sqlite",
        }
        if not found or scheme not in drivers:
            raise UsageError("--database: give postgresql://… or sqlite:///PATH")
        return cls(f"{drivers[scheme]}://{rest}")

    async def open(self) -> None:
        """Connect, and bring the tables to the newest step."""
        self.connect()
        from belljar.surfaces.http.migrations import upgrade

        await self.call(upgrade)

    def connect(self) -> None:
        if self.is_shared:
            self._shared = create_async_engine(
                self.url, pool_size=CONNECTIONS, max_overflow=CONNECTIONS
            )
            return
        self._own = sa.create_engine(
            self.url,
            pool_size=CONNECTIONS,
            connect_args={"timeout": 30, "check_same_thread": False},
        )
        sa.event.listen(self._own, "connect", _prepare_sqlite)

    async def close(self) -> None:
        if self._writing is not None:
            await asyncio.wait([self._writing])
        if self._shared is not None:
            await self._shared.dispose()
        if self._own is not None:
            await to_thread.run_sync(self._own.dispose)

    async def call(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` gives, in one transaction."""
        if self._shared is not None:
            async with self._shared.begin() as connection:
                return await connection.run_sync(work)
        return await to_thread.run_sync(self._called, work, limiter=self._threads)

    def _called(self, work: Callable[[sa.Connection], T]) -> T:
        assert self._own is not None
        with self._own.begin() as connection:
            return work(connection)

    # Reading.

    async def all(self, statement: sa.Select[Any]) -> list[Row]:
        return await self.call(
            lambda connection: [row._mapping for row in connection.execute(statement)]
        )

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
        def work(connection: sa.Connection) -> list[list[int]]:
            return [
                [_changed(connection, statement) for statement in statements]
                for statements in batch
            ]

        return await self.call(work)

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
        assert self._shared is not None
        async with self._shared.begin() as connection:
            await connection.execute(
                sa.text("select pg_advisory_xact_lock(hashtext(:name))"), {"name": name}
            )
            yield


def _settle(done: asyncio.Future[list[int]], counts: list[int]) -> None:
    if not done.done():
        done.set_result(counts)


def _changed(connection: sa.Connection, statement: Statement) -> int:
    result = connection.execute(statement)
    return int(getattr(result, "rowcount", 0) or 0)


def _prepare_sqlite(connection: Any, _: Any) -> None:
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=30000"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


__all__ = ["IntegrityError", "Row", "Statement", "Store"]
