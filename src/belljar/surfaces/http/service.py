"""Everything that a running service holds. `app.state.service` is one.

For the dashboard and other parts inside this process, the doors are:

    service.keys         who calls: `by_secret`, `by_cookie`, `login(secret, address)`, `logout`, `as_dict(key)`; a Key
                         has `may(scope)`, `sees(tenant, path)`, `revoked`
    service.sessions_for(key) · service.session_for(key, id)          Session objects as `/v1` shows them
    service.commands_for(key, session) · service.command_for(key, session, id)   likewise; a live one has `.log`
    service.approvals_for(key, state, session)
    service.approvals.decide(approval, {decision, token, scope, reason}, key)
    service.events       `follow`, `missed`, `now`: what `/v1/events` sends; topics sessions, commands, approvals, audit
    service.trail(tenant)   the tenant's audit trail (an `Audit`: `.where` for `audit.reader`)
    service.live(id)     the LiveSession if this server has it: `.box` is the open `belljar.Session`

Whoever uses them asks with a Key, and gets what that key may see. Pages change things through the same methods as the
routes (routes.py), never through the tables.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from anyio import to_thread

from belljar.audit import reader
from belljar.errors import BelljarError
from belljar.session import kept
from belljar.surfaces.http import audit, storage
from belljar.surfaces.http.commands import Command
from belljar.surfaces.http.keys import Key
from belljar.surfaces.http.log import KEPT
from belljar.surfaces.http.problems import Elsewhere, Problem, hide
from belljar.surfaces.http.replicas import BEAT_SECONDS, Replicas
from belljar.surfaces.http.server import Server
from belljar.surfaces.http.sessions import LIVING, LiveSession
from belljar.surfaces.http.storage import Row
from belljar.surfaces.http.warm import Warm

TICK_SECONDS = 0.5
STOP_SECONDS = 3.0
SWEEP_SECONDS = 30.0
SHOWN_AFTER_END = 3600.0  # how long an ended session is shown
ANSWERS_KEPT = 24 * 3600.0
NEWEST_RECORDS = 200  # that are looked through for new ones


class Service(Server):
    def __init__(
        self,
        state: Path,
        *,
        database: str | None = None,
        output_kept: int = KEPT,
        warm: int = 0,
    ) -> None:
        super().__init__(state, database=database, output_kept=output_kept)
        self.warm = Warm(self, warm)
        self.replicas = Replicas(self.id, self.store, self.events)
        self.status = "starting"
        """What `/readyz` says: starting, ready or stopping."""
        self.stopping = asyncio.Event()
        """Set when the server goes: streams end."""
        self._live: dict[str, LiveSession] = {}
        self.own_url = ""
        """The address where this server listens."""
        self._kept: set[asyncio.Task[None]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._admission = asyncio.Lock()
        self._told: dict[str, int] = {}
        """Of each trail, the last record that followers were told of."""

    # Life.

    async def open(self, bootstrap: str | None = None, url: str = "") -> str | None:
        """Open the database and take over the sessions; the first key, if one was made. `url`: for other servers."""
        self.own_url = url
        self.state.mkdir(parents=True, exist_ok=True, mode=0o700)
        hide(str(self.state), "…")
        await self.store.open()
        await self.keys.load()
        first = await self.keys.first(bootstrap)
        self.database_id = await self._database_id()
        await self.replicas.open(url)
        await self._adopt_all()
        self._begin(TICK_SECONDS, self._tick)
        if self.store.is_shared:
            self._begin(BEAT_SECONDS, self._beat)
        self._begin(SWEEP_SECONDS, self._sweep)
        self.status = "ready"
        return first

    async def _database_id(self) -> str:
        with contextlib.suppress(storage.IntegrityError):
            await self.store.insert(
                storage.facts, id="database", data={"id": secrets.token_hex(8)}
            )
        row = await self.store.get(storage.facts, "database")
        assert row is not None
        return str(row["data"]["id"])

    def stop(self) -> None:
        """Take no more requests; open streams end."""
        self.status = "stopping"
        self.stopping.set()

    async def readiness(self) -> str:
        """ready, starting, stopping, or unavailable without database or engine."""
        if self.status != "ready":
            return self.status
        try:
            await self.store.one(sa.select(sa.literal(1).label("one")))
            await to_thread.run_sync(lambda: self.host_of("default").connect())
        except Exception:
            return "unavailable"
        return "ready"

    async def close(self) -> None:
        """Stop serving; sessions run on."""
        self.stop()
        if self._kept:
            await asyncio.wait(self._kept, timeout=STOP_SECONDS)
        for task in self._tasks:
            task.cancel()
        await self.warm.close()
        await self.keys.note_use()
        for session in self._live.values():
            with contextlib.suppress(BelljarError):
                if not session.is_over:
                    await session.save()
            session.leave()
        for trail in self._trails.values():
            await to_thread.run_sync(trail.close)
        await self.replicas.close()
        await self.store.close()

    def keep(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Work that ends by itself soon after `stopping`."""
        task = asyncio.get_running_loop().create_task(work)
        self._kept.add(task)
        task.add_done_callback(self._kept.discard)
        return task

    def _begin(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        self._tasks.append(
            asyncio.get_running_loop().create_task(self._every(seconds, work))
        )

    async def _every(self, seconds: float, work: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            try:
                await work()
            except asyncio.CancelledError:
                raise
            except Exception as error:
                self.report(error)

    async def _read_on(self, tenant: str) -> None:
        """Tell followers of the trail's new records, as they are stored."""
        self._unread.discard(tenant)
        trail = self.trail(tenant)

        def fresh() -> list[dict[str, Any]]:
            trail.flush()
            records = reader.newest(trail.where, NEWEST_RECORDS)
            return [
                record
                for record in records
                if record["seq"] > self._told.get(tenant, 0)
            ]

        for record in await to_thread.run_sync(fresh):
            self._told[tenant] = record["seq"]
            self.events.put("audit", record, tenant, "/", str(record["seq"]))

    # Adoption.

    async def _adopt_all(self) -> None:
        rows = await self._living_rows()
        mine = [row for row in rows if await self._take(row)]
        for row in mine:
            self._live[row["id"]] = LiveSession(self, dict(row["data"]))
        await self._remove_orphans({row["id"] for row in rows})
        known = {
            tenant: await self._runs(tenant)
            for tenant in {row["tenant"] for row in mine}
        }
        await asyncio.gather(
            *(self._live[row["id"]].adopt(*known[row["tenant"]]) for row in mine)
        )
        await self._close_trails()

    async def _runs(self, tenant: str) -> tuple[set[str], set[str]]:
        """Whose `start` and whose `end` are in the trail: a server may have died between a record and its row."""
        trail = self.trail(tenant)
        await to_thread.run_sync(trail.flush)
        starts, ends = await to_thread.run_sync(audit.runs, trail.where)
        return {*starts}, ends

    async def _living_rows(self) -> list[Row]:
        table = storage.sessions
        return await self.store.all(sa.select(table).where(table.c.state.in_(LIVING)))

    async def _take(self, row: Row) -> bool:
        """Whether this server has the session from now on: nobody else has it, and its sandbox is within reach."""
        if self.replicas.lives(row["owner"]):
            return False
        if (
            self.store.is_shared
            and row["state"] in ("ready", "paused")
            and not self._reaches(row)
        ):
            return False
        return await self.replicas.claim(row["id"], row["owner"])

    def _reaches(self, row: Row) -> bool:
        return bool((self.host_of(row["tenant"]).run_root / row["id"]).exists())

    async def _beat(self) -> None:
        """Tell the other servers that we live, and take over the sessions of those that do not."""
        if not await self.replicas.beat():
            await self._let_go()
        await self.keys.load()
        for row in await self._living_rows():
            if (
                row["id"] not in self._live
                and row["owner"] != self.id
                and await self._take(row)
            ):
                session = self._live[row["id"]] = LiveSession(self, dict(row["data"]))
                await session.adopt(*await self._runs(row["tenant"]))

    async def _let_go(self) -> None:
        """We were silent for too long: leave the sessions that others have taken."""
        owners = {row["id"]: row["owner"] for row in await self._living_rows()}
        for session in self.living:
            if owners.get(session.id, self.id) != self.id:
                session.leave()
                self._live.pop(session.id, None)

    async def _remove_orphans(self, living: set[str]) -> None:
        """Sandboxes of this service that no row names."""
        host = self.host_of("default")
        for facts in await to_thread.run_sync(kept.facts, host):
            if (
                facts["metadata"].get("service") == self.database_id
                and facts["id"] not in living
            ):
                await self.remove_sandbox("default", facts["id"])

    async def _close_trails(self) -> None:
        """Give an `end` to each `start` in the trails whose server was killed before it wrote one."""
        alive = {
            command.id
            for session in self._live.values()
            for command in session.commands.values()
        }
        for tenant in self.keys.tenants:
            trail = self.trail(tenant)
            await to_thread.run_sync(trail.flush)
            starts, ends = await to_thread.run_sync(audit.runs, trail.where)
            for run in starts.keys() - ends - alive:
                row = await self.store.get(storage.commands, run)
                if row is not None and row["state"] != "ended":
                    continue  # another server has it
                result = (
                    row["data"]["command"]["result"] if row is not None else None
                ) or {}
                trail.note(
                    "end",
                    session=starts[run].get("session"),
                    run=run,
                    digest=starts[run].get("digest"),
                    cause=result.get("cause", "sandbox_lost"),
                    exit_code=result.get("exit_code"),
                    duration=result.get("duration"),
                )

    # Every moment.

    async def _tick(self) -> None:
        for tenant in list(self._unread):
            await self._read_on(tenant)
        for session in list(self._live.values()):
            try:
                await session.tick()
            except BelljarError as error:
                self.report(error)

    async def _sweep(self) -> None:
        """Forget what is over."""
        now = time.time()
        table = storage.sessions
        gone = await self.store.all(
            sa.select(table.c.id).where(
                table.c.state == "ended", table.c.ended < now - SHOWN_AFTER_END
            )
        )
        for row in gone:
            await self._forget(row["id"])
        await self.store.run(
            sa.delete(storage.answers).where(
                storage.answers.c.created < now - ANSWERS_KEPT
            ),
            sa.delete(storage.logins).where(storage.logins.c.expires < now),
            sa.delete(storage.links).where(storage.links.c.expires < now),
        )
        await self.approvals.expire()
        await self.keys.note_use()
        await self.replicas.forget_dead()
        await self.warm.sweep()

    async def _forget(self, id: str) -> None:
        self._live.pop(id, None)
        await self.store.run(
            sa.delete(storage.commands).where(storage.commands.c.session == id),
            sa.delete(storage.approvals).where(storage.approvals.c.session == id),
            sa.delete(storage.sessions).where(storage.sessions.c.id == id),
        )
        await to_thread.run_sync(
            lambda: shutil.rmtree(self.state / "output" / id, ignore_errors=True)
        )

    # The end of a tenant.

    async def end_tenant(self, name: str) -> None:
        """End its sessions and keys, and forget what it did."""
        await self._end_sessions_of(name)
        await self.keys.end_tenant(name)
        await self._end_sessions_of(name)  # made meanwhile
        await self.warm.forget(name)
        table = storage.sessions
        for row in await self.store.all(
            sa.select(table.c.id).where(table.c.tenant == name)
        ):
            await self._forget(row["id"])

    async def set_aside(self, name: str) -> None:
        """Keep the files and the trail of a tenant that has ended where no later tenant of its name finds them."""
        trail, host = self._trails.pop(name, None), self._hosts.pop(name, None)
        self._unread.discard(name)
        self._told.pop(name, None)

        def move() -> None:
            if trail is not None:
                trail.close()
            if host is not None:
                host.close()
            aside = self.state / "ended-tenants"
            aside.mkdir(mode=0o700, exist_ok=True)
            with contextlib.suppress(FileNotFoundError):
                self.tenant_directory(name).rename(
                    aside / f"{name}-{secrets.token_hex(4)}"
                )

        await to_thread.run_sync(move)

    async def _end_sessions_of(self, tenant: str) -> None:
        await asyncio.gather(
            *(
                session.end("deleted")
                for session in self.living
                if session.tenant == tenant
            )
        )

    # What a key may see.

    def live(self, id: str) -> LiveSession | None:
        return self._live.get(id)

    async def owner_elsewhere(self, id: str) -> str:
        """The server that has a living session, if it is another one."""
        row = (
            await self.store.get(storage.sessions, id) if self.store.is_shared else None
        )
        return (
            str(row["owner"])
            if row is not None and row["state"] in LIVING and row["owner"] != self.id
            else ""
        )

    def own(self, session: LiveSession) -> None:
        self._live[session.id] = session

    @property
    def living(self) -> list[LiveSession]:
        return [session for session in self._live.values() if not session.is_over]

    async def session_row(self, key: Key, id: str) -> Row:
        """404 unless this key may see it."""
        row = await self.store.get(storage.sessions, id)
        if row is None or not key.sees(row["tenant"], row["path"]):
            raise Problem("session_not_found", "there is no such session")
        return row

    async def session_for(self, key: Key, id: str) -> dict[str, Any]:
        session = self._live.get(id)
        if session is not None and key.sees(session.tenant, session.path):
            return session.as_dict()
        return dict((await self.session_row(key, id))["data"]["session"])

    async def live_for(self, key: Key, id: str) -> LiveSession:
        """The session, if this server has it; else what its row says, ended."""
        session = self._live.get(id)
        if session is None:
            row = await self.session_row(key, id)
            session = LiveSession(self, dict(row["data"]))
            if session.is_over:
                self._live[id] = session
            elif self.store.is_shared:
                raise Elsewhere(row["owner"])
        if not key.sees(session.tenant, session.path):
            raise Problem("session_not_found", "there is no such session")
        return session

    async def command_for(self, key: Key, session: LiveSession, id: str) -> Command:
        command: Command | None = session.commands.get(id) or self.recently.get(id)
        if command is None:
            row = await self.store.get(storage.commands, id)
            if row is None or row["session"] != session.id:
                raise Problem("not_found", "there is no such command")
            command = Command(self, session, dict(row["data"]))
            if command.is_over:
                command.ended.set()
                self.recently.keep(id, command)
        if command.session.id != session.id:
            raise Problem("not_found", "there is no such command")
        return command

    def shown_session(self, row: Row) -> dict[str, Any]:
        session = self._live.get(row["id"])
        return (
            session.as_dict() if session is not None else dict(row["data"]["session"])
        )

    def shown_command(self, row: Row) -> dict[str, Any]:
        session = self._live.get(row["session"])
        command = session.commands.get(row["id"]) if session is not None else None
        return (
            command.as_dict() if command is not None else dict(row["data"]["command"])
        )

    async def sessions_for(self, key: Key) -> list[dict[str, Any]]:
        """All that this key may see, newest first."""
        table = storage.sessions
        rows = await self.store.all(
            sa.select(table)
            .where(visible(table, key))
            .order_by(table.c.created.desc(), table.c.id.desc())
        )
        return [self.shown_session(row) for row in rows]

    async def commands_for(self, key: Key, session: str) -> list[dict[str, Any]]:
        table = storage.commands
        rows = await self.store.all(
            sa.select(table)
            .where(table.c.session == session)
            .order_by(table.c.created.desc(), table.c.id.desc())
        )
        return [self.shown_command(row) for row in rows]

    async def approvals_for(
        self, key: Key, state: str = "waiting", session: str = ""
    ) -> list[dict[str, Any]]:
        table = storage.approvals
        chosen = sa.select(table).where(visible(table, key))
        if state:
            chosen = chosen.where(table.c.state == state)
        if session:
            chosen = chosen.where(table.c.session == session)
        rows = await self.store.all(
            chosen.order_by(table.c.created.desc(), table.c.id.desc())
        )
        return [dict(row["data"]) for row in rows]

    @contextlib.asynccontextmanager
    async def admission(self, tenant: str) -> Any:
        """One decision about a quota of a tenant at a time, on all servers."""
        async with self._admission, self.store.locked(f"quota {tenant}"):
            yield


def visible(table: sa.Table, key: Key) -> sa.ColumnElement[bool]:
    """The rows that a key may see."""
    mine = table.c.tenant == key.tenant
    return (
        mine
        if key.reach == "tenant"
        else sa.and_(mine, table.c.path.startswith(key.path, autoescape=True))
    )
