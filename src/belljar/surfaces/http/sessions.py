"""The life of a session: queued → starting → verifying → ready (⇄ paused) → ended.

A session is a *kept* sandbox (`Session(keep=True)`), so it ends with no server. Its row is written before the sandbox
is made and says how far it came: after a crash one that was ready is attached, one that was not is made again.

What ends a session: DELETE, its lease (`expires`, moved on by commands and requests), the hard end that its key's quota
sets (`lifetime`), or the loss of its sandbox. Readiness is the link's heartbeat, not a row.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from anyio import to_thread

from belljar import enforcement
from belljar.errors import (
    BelljarError,
    EngineUnavailable,
    PolicyDenied,
    SandboxLost,
    SessionNotFound,
)
from belljar.limits import Limits
from belljar.options import SandboxOptions
from belljar.session.judging import judged, load
from belljar.session.ledger import CommandRecord
from belljar.session.result import Surroundings
from belljar.session.session import Session
from belljar.staged.copying import copy_layer
from belljar.surfaces.http import audit, storage, tracing
from belljar.surfaces.http.approvals import remembered, restored
from belljar.surfaces.http.commands import Command, SharedShell
from belljar.surfaces.http.events import Signal
from belljar.surfaces.http.problems import Problem, problem_of
from belljar.surfaces.http.vitals import Vitals, verified
from belljar.workspace.beneath import Folder

if TYPE_CHECKING:
    from belljar.policy import Verdict
    from belljar.session.result import Result
    from belljar.surfaces.http.server import Server

READY_PATIENCE = 30.0  # how long a request waits for a session that is starting
RESTART_LEASE = 3600.0  # the least that a sandbox outlives a server
SAVE_EVERY = 5.0  # seconds between notes of a lease that commands extend
PING_EVERY = 10.0
PING_SECONDS = 15.0
RETURN_SECONDS = 25.0  # an API server restarts in less, and its clients find it again
UNREACHED_SECONDS = (
    4.0  # the same where the engine answers, but does not reach the sandbox
)
RETRY = {"Retry-After": "1"}
LIVING = ("queued", "pulling", "starting", "verifying", "ready", "paused")


class LiveSession:
    """One session of this server."""

    def __init__(self, server: Server, row: dict[str, Any]) -> None:
        self.server = server
        self.data: dict[str, Any] = {"from": None, "snapshot": None, **row["session"]}
        self.path: str = row["path"]
        self.ends_at: float | None = row["ends_at"]
        """The hard end."""
        self.remembered: dict[str, Any] = row["remembered"]
        """Approvals for the session."""
        self.cause = audit.Cause(*row["cause"])
        self.trace = tracing.here()
        self.commands: dict[str, Command] = {}
        """Those that have not ended."""
        self.changed = Signal()
        self.box: Session | None = None
        self.stands_for: LiveSession | None = None
        """The session that got the sandbox which this one made ahead (warm.py)."""
        self.is_ending = False
        self._ended_runs: Collection[str] = ()
        self._unrecorded_runs: Collection[str] = ()
        """Of commands that were adopted: whose `end` is in the trail, and whose `start` is not."""
        self._shells: dict[str, SharedShell] = {}
        self._task: asyncio.Task[None] | None = None
        self._saved = time.monotonic()
        self._pinged = time.monotonic()
        self._ending = asyncio.Lock()
        self.vitals = Vitals()
        self._looking: asyncio.Task[None] | None = None
        self._returning: asyncio.Task[None] | None = None
        self.review = asyncio.Lock()
        """One apply, undo or discard at a time."""

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def tenant(self) -> str:
        return str(self.data["tenant"])

    @property
    def state(self) -> str:
        return str(self.data["state"])

    @property
    def is_over(self) -> bool:
        return self.state == "ended"

    @property
    def limits(self) -> Limits:
        return Limits(**self.data["limits"])

    def as_dict(self) -> dict[str, Any]:
        running = [
            command for command in self.commands.values() if command.state == "running"
        ]
        waiting = [
            command for command in self.commands.values() if command.state == "waiting"
        ]
        current = running[0] if running else None
        shown = (
            {
                "id": current.id,
                "command": current.data["command"],
                "started": current.data["started"],
            }
            if current
            else None
        )
        counts = {"current": shown, "running": len(running), "waiting": len(waiting)}
        return {**self.data, **counts, **self.vitals.as_dict(time.time())}

    # Storing it.

    @property
    def row(self) -> dict[str, Any]:
        limits = self.data["limits"]
        return {
            "id": self.id,
            "tenant": self.tenant,
            "path": self.path,
            "state": self.state,
            "created": self.data["created"],
            "ended": self.data["ended"] or 0.0,
            "memory": limits["memory"] or 0,
            "cpus": limits["cpus"] or 0,
            "disk": limits["disk"] or 0,
            "data": {
                "session": {
                    **self.data,
                    "current": None,
                    "running": 0,
                    "waiting": 0,
                    "listening": [],
                },
                "path": self.path,
                "ends_at": self.ends_at,
                "remembered": self.remembered,
                "cause": [self.cause.key, self.cause.name, self.cause.request_id],
            },
        }

    async def insert(self, *more: storage.Statement) -> None:
        row = {**self.row, "owner": self.server.id}
        await self.server.store.run(sa.insert(storage.sessions).values(**row), *more)
        self.publish()

    async def save(self, **changes: Any) -> None:
        self.data.update(changes)
        self._saved = time.monotonic()
        row = self.row
        await self.server.store.update(storage.sessions, row.pop("id"), **row)
        self.publish()
        self.changed.fire()

    def publish(self) -> None:
        self.server.events.put("sessions", self.as_dict(), self.tenant, self.path)

    # Starting.

    def begin(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._start())

    async def _start(self) -> None:
        audit.set_cause(self.cause)
        try:
            if self.box is None:
                await self.save(state="starting")
            box = self.box or await self.made()
        except asyncio.CancelledError:
            raise
        except BelljarError as error:
            await self._ended("failed", problem_of(error))
            self.server.metrics.session_created("failed")
            return
        except Exception as error:
            self.server.report(error)
            await self._ended(
                "failed", Problem("failed", "the service failed to start this session")
            )
            return
        if self.is_ending:
            await box.stop()
            return
        self.box = box
        restored(box.approvals, self.remembered)
        began, now = self.data["created"], time.time()
        self.server.metrics.session_created("ready", now - began)
        tracing.session_started(self.trace, self.id, began, now)
        await self.save(state="ready", started=now)
        self.touch()

    async def made(self) -> Session:
        await to_thread.run_sync(self._make_workspace)
        host = self.server.host_of(self.tenant)
        return await Session.of(self.wanted(), approve=self._approve, host=host).open()

    def wanted(self) -> SandboxOptions:
        own = {
            "keep": True,
            "id": self.id,
            "lease": self.init_lease,
            "on_close": "keep",
        }
        begins = {"snapshot": self.data["snapshot"], "base": self.data["from"] or ""}
        return SandboxOptions(
            self.workspace, **enforcement.filled({**self._options, **own, **begins})
        )

    @property
    def workspace(self) -> Path:
        return self.server.workspace_of(self.tenant, self.id, self.data["workspace"])

    def _make_workspace(self) -> None:
        own, origin = self.workspace, self.data["from"]
        if origin is not None and self.data["workspace"] is None and not own.exists():
            # What the original applied is in its own directory, which ends with it.
            own.mkdir(parents=True)
            with (
                Folder.at(
                    self.server.workspace_of(self.tenant, origin, None)
                ) as source,
                Folder.at(own) as target,
            ):
                copy_layer(source, target)
        own.mkdir(parents=True, exist_ok=True)

    @property
    def init_lease(self) -> float:
        return max(float(self.data["lease"]), RESTART_LEASE)

    @property
    def _options(self) -> dict[str, Any]:
        data = self.data
        names = (
            "image",
            "policy",
            "changes",
            "checkpoints",
            "env",
            "root",
            "debug",
            "account",
        )
        return {
            **{name: data[name] for name in names},
            "limits": self.limits,
            "network": network_of(data["network"]),
            "metadata": {"service": self.server.database_id},
        }

    async def _approve(self, verdict: Verdict) -> bool | None:
        return await self.server.approvals.ask(self.stands_for or self, verdict)

    # After a restart.

    async def adopt(
        self, started: Collection[str] = (), ended: Collection[str] = ()
    ) -> None:
        """Take over the session from the server that had it: attach its sandbox, go on with its commands. `started`,
        `ended`: whose start and end are in the trail."""
        rows = await self.server.store.all(
            sa.select(storage.commands).where(
                storage.commands.c.session == self.id,
                storage.commands.c.state != "ended",
            )
        )
        for row in sorted(rows, key=lambda row: float(row["created"])):
            self.commands[row["id"]] = Command(self.server, self, dict(row["data"]))
        self._ended_runs = ended
        self._unrecorded_runs = {
            id for id, command in self.commands.items() if command.launched
        } - {*started}
        if self.state not in ("ready", "paused"):
            await self.server.remove_sandbox(self.tenant, self.id)
            self.begin()
            held = {}
        else:
            try:
                self.box = await self._attached()
                held = await self.box.held()
            except BelljarError as error:
                await self._lose(str(error))
                return
        for command in list(self.commands.values()):
            await command.adopt(held.pop(command.id, None))
        for known in held.values():  # their end was told already
            known.forget()
        if self.state == "paused" and self.box is not None:
            await (
                self.box.pause()
            )  # it ran for the moment that it took to find its commands
        await self.save()

    async def _attached(self) -> Session:
        box = await Session.attach(
            self.id,
            policy=self.data["policy"],
            approve=self._approve,
            env=self.data["env"],
            host=self.server.host_of(self.tenant),
            resume=True,
        )
        restored(box.approvals, self.remembered)
        return box

    # Using it.

    def touch(self) -> None:
        """Somebody uses it: its lease begins anew."""
        self._extend(time.time() + self.data["lease"])

    def _extend(self, to: float) -> None:
        to = min(to, self.ends_at) if self.ends_at is not None else to
        if self.data["expires"] is None or to > self.data["expires"]:
            self.data["expires"] = to

    async def when_ready(self) -> Session:
        """The open sandbox, once there is one; SandboxLost when there will be none."""
        while self.state != "ready" or self.box is None:
            if self.is_over or self.is_ending:
                raise SandboxLost("the session ended")
            await self.changed.wait(5)
        return self.box

    async def usable(self) -> Session:
        """For a request: waits a while for the start, and begins the lease anew."""
        if self.is_over or self.is_ending:
            raise ended_problem()
        self.refuse_if_paused()
        try:
            async with asyncio.timeout(READY_PATIENCE):
                box = await self.when_ready()
        except TimeoutError:
            raise Problem(
                "not_ready", f"the session is {self.state}", headers=RETRY
            ) from None
        except SandboxLost:
            raise ended_problem() from None
        self.touch()
        if not box.is_open:
            raise ended_problem()
        return box

    def refuse_if_paused(self) -> None:
        if self.state == "paused":
            raise Problem("not_ready", "the session is paused", headers=RETRY)

    def shell(self, name: str) -> SharedShell:
        if name not in self._shells:
            self._shells[name] = SharedShell(name)
        return self._shells[name]

    def _open_box(self) -> Session:
        if self.box is None:
            raise SandboxLost("the session ended")
        return self.box

    async def submit(self, command: Command, *statements: storage.Statement) -> None:
        """Take a command; returns when it is stored (running, waiting or queued). PolicyDenied: nothing was made."""
        if self.is_over or self.is_ending:
            raise ended_problem()
        command.first_statements = statements
        shell = (
            None if command.body["shell"] is None else self.shell(command.body["shell"])
        )
        self.commands[command.id] = command
        try:
            if self.state != "ready" or (shell is not None and shell.turn.locked()):
                if shell is None:
                    await self._refuse_denied(command.body)
                await command.save()
        except BaseException:
            self.commands.pop(command.id, None)
            raise
        command.begin()
        await command.settled

    async def _refuse_denied(self, body: dict[str, Any]) -> None:
        """A command that has to wait for the sandbox is denied at once if it will be."""
        policy = await to_thread.run_sync(load, self.data["policy"])
        env = {**self.data["env"], **body["env"]}
        verdict = await judged(
            policy, body["command"], env=env, staged=self.data["changes"] == "staged"
        )
        if verdict.decision == "deny":
            self.server.trail(self.tenant).note(
                "verdict", session=self.id, verdict=verdict
            )
            self.denied()
            raise PolicyDenied(verdict)

    def forget_command(self, command: Command) -> None:
        self.commands.pop(command.id, None)
        self.data["last"] = command.as_last()
        self.vitals.ran()
        self.touch()
        self.publish()

    def record_end(self, command: Command, result: Result) -> None:
        """The `end` in the audit trail; the `start` was written by the command itself."""
        if command.id in self._ended_runs:
            return
        with audit.caused_by(command.cause):
            if command.id in self._unrecorded_runs:
                self.server.trail(self.tenant).note(
                    "start",
                    session=self.id,
                    run=command.id,
                    digest=command.digest,
                    command=command.data["command"],
                )
            self.server.trail(self.tenant).note(
                "end",
                session=self.id,
                run=command.id,
                digest=command.digest,
                cause=result.cause,
                exit_code=result.exit_code,
                duration=result.duration,
            )

    def lost_record(self, started: float) -> CommandRecord:
        surroundings = Surroundings(
            self.data["network"], self.limits, self.data["image"]
        )
        return CommandRecord(None, surroundings, started=started)

    async def remember(self, verdict: Verdict) -> None:
        """An approval that holds for the session."""
        if self.box is not None:
            self.box.approvals.remember(verdict, "session")
            self.remembered = remembered(self.box.approvals)
            await self.save()

    async def pause(self, *, paused: bool) -> None:
        if paused == (self.state == "paused"):
            return
        if paused:
            box = await self.usable()
            self.data["state"] = "paused"  # from here on commands queue
            try:
                await box.pause()
            except BaseException:
                self.data["state"] = "ready"
                raise
        else:
            await self._open_box().resume()
        await self.save(state="paused" if paused else "ready", paused=paused)

    # Watching it.

    async def tick(self) -> None:
        """Called every moment: the lease, the heartbeat, what it listens on."""
        now = time.time()
        if self.is_over or self.is_ending:
            return
        is_starting = self.state not in ("ready", "paused")
        if is_starting or any(
            command.state == "running" for command in self.commands.values()
        ):
            self.touch()
        if (self.data["expires"] is not None and now >= self.data["expires"]) or (
            self.ends_at is not None and now >= self.ends_at
        ):
            await self.end("expired")
        elif self.is_cut:
            self._find_again()
        elif self.box is not None and not self.box.is_open:
            await self._lose("the sandbox went away")
        elif self.box is not None and self.state == "ready":
            await self._look(self.box)

    @property
    def is_cut(self) -> bool:
        """The stream to its sandbox has ended, which says nothing about the sandbox: it went through an engine."""
        if self.is_ending:
            return False
        if self._returning is not None and not self._returning.done():
            return True
        box = self.box
        return box is not None and not box.is_open and box.sandbox.link.bridged

    def _find_again(self) -> None:
        if self._returning is None or self._returning.done():
            self._returning = asyncio.get_running_loop().create_task(self._return())

    async def _return(self) -> None:
        """Whoever needs the sandbox waits meanwhile (`when_ready`). Its commands hold what nobody has confirmed."""
        cut, self.box = self.box, None
        assert cut is not None
        cut.sandbox.disconnect()
        try:
            box = await self._reached()
            held = await box.held()
        except Exception as error:
            if not isinstance(error, BelljarError):
                self.server.report(error)
            await self._lose(cut.why_lost or "the sandbox went away")
            return
        self.box = box
        for command in list(self.commands.values()):
            known = held.pop(command.id, None)
            if command.was_cut:
                await command.found_again(known)
        for known in held.values():  # their end was told already
            known.forget()
        if self.state == "paused":  # it ran for the moment that it took to find it
            await box.pause()
        self.changed.fire()
        self.publish()

    async def _reached(self) -> Session:
        began = time.monotonic()
        while True:
            try:
                return await self._attached()
            except SessionNotFound:  # it has ended
                raise
            except BelljarError as error:
                silent = isinstance(error, EngineUnavailable)
                patience = RETURN_SECONDS if silent else UNREACHED_SECONDS
                if time.monotonic() - began > patience:
                    raise
            await asyncio.sleep(0.2)

    async def _look(self, box: Session) -> None:
        if time.monotonic() - self._saved > SAVE_EVERY:
            await self.save()
        if self._looking is None or self._looking.done():
            self._looking = asyncio.get_running_loop().create_task(
                self._look_at_vitals(box)
            )
        if time.monotonic() - self._pinged > PING_EVERY:
            self._pinged = time.monotonic()
            with contextlib.suppress(BelljarError, TimeoutError):
                async with asyncio.timeout(PING_SECONDS):
                    await box.ping()
                    self.data["listening"] = list(await box.listening())

    async def _look_at_vitals(self, box: Session) -> None:
        try:
            with contextlib.suppress(
                BelljarError, OSError
            ):  # the sandbox may end meanwhile
                if await self.vitals.look(box, self.data["limits"]):
                    self.publish()
        except Exception as error:
            self.server.report(error)

    @property
    def engine(self) -> str | None:
        return (
            self.box.sandbox.engine.name
            if self.box is not None and self.box.is_open
            else None
        )

    def verified(self) -> list[dict[str, Any]]:
        """What protects the host from it, and whose word stands for each; empty before it runs."""
        return verified(self.box) if self.box is not None and self.box.is_open else []

    def let_through(self) -> None:
        """A bypass answered for a person."""
        if self.data.get("bypass"):
            self.data["bypass"]["let_through"] += 1
        self.publish()

    def denied(self) -> None:
        """A command of it was denied."""
        self.data["denied"] = time.time()
        self.publish()

    # The end.

    async def end(self, reason: str) -> None:
        """End it; returns when nothing of it runs any more."""
        async with self._ending:
            if self.is_over:
                return
            self.is_ending = True
            self.changed.fire()
            if self._returning is not None:
                self._returning.cancel()
            if self._task is not None and self.box is None:
                self._task.cancel()
                with contextlib.suppress(asyncio.CancelledError, Exception):
                    await self._task
            await self.kill_commands()
            box = self.box
            if box is not None:
                with contextlib.suppress(BelljarError):
                    await box.stop()
            else:
                await self.server.remove_sandbox(self.tenant, self.id)
            await self._ended(reason)

    async def kill_commands(self) -> None:
        ending = [command.kill(0.0) for command in self.commands.values()]
        for outcome in await asyncio.gather(*ending, return_exceptions=True):
            if isinstance(outcome, BaseException) and not isinstance(
                outcome, Problem | BelljarError
            ):
                self.server.report(outcome)

    async def _lose(self, why: str) -> None:
        async with self._ending:
            if self.is_over:
                return
            for command in list(self.commands.values()):
                if command.was_cut:
                    await command.lost(SandboxLost(why))
            box, self.box = self.box, None
            if box is not None:
                with contextlib.suppress(BelljarError):
                    await box.stop()
            await self.server.remove_sandbox(self.tenant, self.id)
            await self._ended("lost", Problem("sandbox_lost", why))

    async def _ended(self, reason: str, error: Problem | None = None) -> None:
        self.is_ending = True
        told = error.as_dict() if error is not None else None
        for command in list(self.commands.values()):
            command.abandon()
            await command.lost(SandboxLost("the session ended"))
        await self.server.approvals.cancel_of(self.id)
        await self.save(
            state="ended",
            reason=reason,
            error=told,
            ended=time.time(),
            paused=False,
            listening=[],
        )
        self.box = None
        await self.server.links.end_of(self.id)
        if self.data["workspace"] is None:
            await to_thread.run_sync(
                lambda: shutil.rmtree(self.workspace, ignore_errors=True)
            )

    def leave(self) -> None:
        """This server stops; the session runs on."""
        for command in self.commands.values():
            command.abandon()
        for task in (self._task, self._returning):
            if task is not None:
                task.cancel()
        if self.box is not None and self.box.is_open:
            self.box.sandbox.disconnect()


def ended_problem() -> Problem:
    return Problem("session_ended", "the session has ended")


def network_of(network: Any) -> Any:
    """The network of the core for that of a body."""
    if isinstance(network, str):
        return network
    from belljar.network.allow import Allow

    return Allow(
        *network["allow"],
        presets=tuple(network["presets"]),
        ask_hosts=network["ask_hosts"],
    )


__all__ = ["LIVING", "LiveSession", "PolicyDenied", "ended_problem"]
