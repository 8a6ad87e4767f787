"""The life of a command: queued → waiting (for an approval) → running → ended.

Theory of operation. A command runs as a *held* command of its sandbox (session/held_command.py) whose tag is its id, so
it depends on no connection and on no server. One task follows it: takes output from the init, appends it to the log on
disk (log.py), and only then confirms it to the init and wakes readers. Readers read the log; none holds up another.

Before a command is spawned its row says so (`launched`). After a crash a row without that mark has surely not run and
goes on as it was; one with it is either known to the sandbox by its tag, and followed again from the log's end, or it
ends as `sandbox_lost`. So no command runs twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import sqlalchemy as sa
from anyio import to_thread

from belljar import codec
from belljar.errors import BelljarError, PolicyDenied, SandboxLost, UsageError
from belljar.link.frames import EndedBody, Flag
from belljar.session.held_command import HeldCommand
from belljar.session.output import Capture
from belljar.surfaces.http import audit, storage, tracing
from belljar.surfaces.http.approvals import asking
from belljar.surfaces.http.events import Signal
from belljar.surfaces.http.keys import new_id
from belljar.surfaces.http.log import Log
from belljar.surfaces.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from belljar.limits import Limits
    from belljar.session.commands import Request
    from belljar.session.ledger import CommandRecord
    from belljar.session.named_shell import NamedShell
    from belljar.session.result import Cause, Result
    from belljar.session.session import Session
    from belljar.surfaces.http.server import Server
    from belljar.surfaces.http.vitals import Vitals

TAKE_SECONDS = 20.0  # of one waiting look for output
TAKEN_AT_ONCE = 512 << 10
KILL_PATIENCE = 60.0  # how long a kill may take until it counts as not shown
PUBLISHED_EVERY = 0.25  # seconds between news of a command that prints


class SharedShell:
    """A named shell, which its commands take in turn."""

    def __init__(self, name: str) -> None:
        self._name = name
        self.turn = asyncio.Lock()
        """Held by the command that runs; the others queue."""
        self._named: NamedShell | None = None
        self._box: Session | None = None

    def named(self, box: Session) -> NamedShell:
        """After its session's stream was cut it is reached by another `box`."""
        if self._named is None or self._box is not box:
            self._box, self._named = box, box.named_shell(self._name)
        return self._named


class Around(Protocol):
    """What a command needs of its session."""

    commands: dict[str, Command]
    vitals: Vitals
    is_ending: bool

    @property
    def is_cut(self) -> bool: ...
    @property
    def id(self) -> str: ...
    @property
    def tenant(self) -> str: ...
    @property
    def is_over(self) -> bool: ...
    @property
    def limits(self) -> Limits: ...
    def shell(self, name: str) -> SharedShell: ...
    def publish(self) -> None: ...
    async def when_ready(self) -> Session: ...
    def denied(self) -> None: ...
    def refuse_if_paused(self) -> None: ...
    def lost_record(self, started: float) -> CommandRecord: ...
    def record_end(self, command: Command, result: Result) -> None: ...
    def forget_command(self, command: Command) -> None: ...


class Command:
    """One command, as a client sees it (`data`) and as it was asked for (`body`)."""

    def __init__(self, server: Server, session: Around, row: dict[str, Any]) -> None:
        self.server, self.session = server, session
        self.data: dict[str, Any] = row["command"]
        self.body: dict[str, Any] = row["body"]
        self.path: str = row["path"]
        self.cause = audit.Cause(*row["cause"])
        self.launched: bool = row["launched"]
        self.digest: str = row["digest"]
        self.is_stored = bool(row.get("stored", True))
        self.first_statements: tuple[storage.Statement, ...] = ()
        """What is written together with it."""
        self.settled: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Done once it is stored, or will never be."""
        self.log = Log(server.output_of(session.id, self.id), server.output_kept)
        self.changed = Signal()
        self.ended = asyncio.Event()
        self.readers = 0
        self.sent = 0
        """The newest position that any reader was sent."""
        self._held: HeldCommand | None = None
        self._captures = _captures(session)
        self._stopped: Cause | None = None
        self._skew = (0, 0)
        self._task: asyncio.Task[None] | None = None
        self._published = 0.0
        self.was_cut = False
        """Nobody follows it: the stream to its sandbox was cut, and may be there again soon."""
        self.trace = tracing.here()

    @classmethod
    def new(
        cls, server: Server, session: Around, body: dict[str, Any], path: str
    ) -> Command:
        terminal = bool(body["pty"])
        data = {
            "id": new_id("c"),
            "session": session.id,
            "command": body["command"],
            "state": "queued",
            "shell": body["shell"],
            "pty": terminal,
            "created": time.time(),
            "started": None,
            "ended": None,
            "bytes_produced": 0,
            "bytes_dropped": 0,
            "exit_code": None,
            "approval": None,
            "verdict": None,
            "result": None,
            "error": None,
        }
        by = audit.cause()
        row = {
            "command": data,
            "body": body,
            "path": path,
            "launched": False,
            "digest": "",
            "stored": False,
            "cause": [by.key, by.name, by.request_id],
        }
        return cls(server, session, row)

    @property
    def id(self) -> str:
        return str(self.data["id"])

    @property
    def state(self) -> str:
        return str(self.data["state"])

    @property
    def is_over(self) -> bool:
        return self.state == "ended"

    @property
    def has_input(self) -> bool:
        return bool(self.body["stdin_open"] or self.body["pty"])

    def as_dict(self) -> dict[str, Any]:
        return {
            **self.data,
            "bytes_produced": self.log.end,
            "bytes_dropped": self.log.start,
        }

    def as_item(self) -> dict[str, Any]:
        """For a list or a screen: without the output."""
        item = self.as_dict()
        if item["result"] is not None:
            output = ("stdout", "stderr", "output", "stdout_base64", "stderr_base64")
            item["result"] = {
                name: value
                for name, value in item["result"].items()
                if name not in output
            }
        return item

    def as_last(self) -> dict[str, Any]:
        """For its session: how the last command went."""
        names = ("id", "command", "state", "started", "ended", "exit_code")
        result, error = self.data["result"] or {}, self.data["error"] or {}
        return {
            **{name: self.data[name] for name in names},
            "cause": result.get("cause"),
            "error": error.get("code"),
        }

    # Storing it.

    @property
    def row(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "session": self.session.id,
            "tenant": self.session.tenant,
            "state": self.state,
            "created": self.data["created"],
            "cpu_time": (self.data["result"] or {}).get("cpu_time", 0.0),
            "data": {
                "command": self.as_dict(),
                "body": self.body,
                "path": self.path,
                "launched": self.launched,
                "digest": self.digest,
                "cause": [self.cause.key, self.cause.name, self.cause.request_id],
            },
        }

    async def save(self, *more: storage.Statement, **changes: Any) -> None:
        """Write it down, with `more` in the same transaction. From the first time on it exists for clients."""
        self.data.update(changes)
        row = self.row
        if self.is_stored:
            statement: storage.Statement = (
                sa.update(storage.commands)
                .where(storage.commands.c.id == row.pop("id"))
                .values(**row)
            )
            await self.server.store.run(statement, *more)
        else:
            await self.server.store.run(
                sa.insert(storage.commands).values(**row), *self.first_statements, *more
            )
            self.is_stored = True
        if (
            self.state != "running"
        ):  # then its first client is told when it has really started
            self._settle(None)
        self.publish()
        self.changed.fire()

    def _settle(self, error: BaseException | None) -> None:
        if self.settled.done():
            return
        if error is None:
            self.settled.set_result(None)
        else:
            self.settled.set_exception(error)

    def publish(self) -> None:
        self._published = time.monotonic()
        self.server.events.put(
            "commands", self.as_item(), self.session.tenant, self.path
        )
        self.session.publish()

    # Its life.

    def begin(self) -> None:
        """Let it run in a task of its own, once its session and its shell are ready."""
        self._task = asyncio.get_running_loop().create_task(self._live())

    async def _live(self) -> None:
        audit.set_cause(self.cause)
        asking.set(self)
        try:
            await self._in_turn()
        except asyncio.CancelledError:
            raise
        except SandboxLost as lost:
            await self._lost_sight(lost)
        except PolicyDenied as denied:
            await self._refused(denied)
        except Problem as problem:
            await self._fail(problem)
        except BelljarError as error:
            await self._fail(problem_of(error))
        except Exception as error:
            self.server.report(error)
            await self._fail(
                Problem("failed", "the service failed to run this command")
            )

    async def _in_turn(self) -> None:
        shell = self._shell
        async with shell.turn if shell is not None else contextlib.nullcontext():
            box = await self.session.when_ready()
            request = await self._admitted(box, shell)
            await self._run(box, request, shell)

    async def _fail(self, problem: Problem) -> None:
        """It did not run. If no client knows of it yet, it is as if it had never been there."""
        if self.is_stored:
            await self._end(error=problem)
        else:
            self.session.commands.pop(self.id, None)
            self._settle(problem)

    @property
    def _shell(self) -> SharedShell | None:
        return (
            self.session.shell(self.body["shell"])
            if self.body["shell"] is not None
            else None
        )

    async def _refused(self, denied: PolicyDenied) -> None:
        problem = problem_of(denied)
        self.session.denied()
        self.data["verdict"] = denied.verdict.as_dict()
        approval = await self.server.approvals.find(self.data["approval"] or "")
        decided = approval["decided"] if approval else None
        if decided and decided["reason"]:
            problem.detail = decided["reason"]
        if self.is_stored:
            problem.fields["command"] = {**self.as_dict(), "state": "ended"}
        await self._fail(problem)

    async def _admitted(self, box: Session, shell: SharedShell | None) -> Request:
        options = options_of(self.body)
        if shell is not None:
            return await shell.named(box).admit(self.body["command"], options)
        return await box.admit(self.body["command"], **options)

    async def _run(
        self, box: Session, request: Request, shell: SharedShell | None
    ) -> None:
        self.data["verdict"], self.digest = (
            request.verdict.as_dict(),
            request.verdict.digest,
        )
        self.launched = True
        await self.save(state="running", started=time.time())
        if self.body["stdin"] or self.has_input:
            request = replace(request, flags=request.flags | Flag.STDIN)
        else:
            request = replace(request, flags=request.flags & ~Flag.STDIN)
        self._held = held = await self._begun(box, request)
        self.data["started"] = held.started
        self._settle(None)
        self.changed.fire()
        feeding = asyncio.create_task(self._feed(held)) if self.body["stdin"] else None
        try:
            await self._follow(held)
        finally:
            if feeding is not None:
                feeding.cancel()
        if shell is not None:
            shell.named(box).learn(request)

    async def _begun(self, admitted: Session, request: Request) -> HeldCommand:
        """A session may have been paused while the command was judged; then it waits."""
        while True:
            box = await self.session.when_ready()  # another one if its stream was cut
            try:
                return await box.hold(request, self.id, earlier=admitted)
            except UsageError:
                if not box.is_paused:
                    raise

    async def _feed(self, held: HeldCommand) -> None:
        with contextlib.suppress(BelljarError):
            await held.write(self.body["stdin"].encode())
            if not self.body["stdin_open"] and not self.body["pty"]:
                held.close_input()

    async def _lost_sight(self, lost: SandboxLost) -> None:
        self.was_cut = self.session.is_cut and not self.is_over
        if not self.was_cut:
            await self.lost(lost)

    async def found_again(self, held: HeldCommand | None) -> None:
        """The stream to its sandbox is there again."""
        self.was_cut = False
        self._captures = _captures(self.session)  # filled again from the log
        await self.adopt(held)

    async def adopt(self, held: HeldCommand | None) -> None:
        """Go on after a restart. `held`: what the sandbox knows of it."""
        if held is None and self.launched:
            await self.lost(
                SandboxLost(
                    "the server ended before the command was known to have started"
                )
            )
        elif held is None:
            self.begin()
        else:
            await to_thread.run_sync(self._recall)
            self._held = held
            if self.body["stdin"] and not self.has_input:
                held.close_input()
            self._task = asyncio.get_running_loop().create_task(self._adopted(held))

    def _recall(self) -> None:
        """Read again what the result keeps of the output."""
        position = self.log.start
        while pieces := self.log.read(position, 1 << 20):
            for piece in pieces:
                self._collect(0 if piece.stream == "stdout" else 1, piece.data)
            position = pieces[-1].end

    async def _adopted(self, held: HeldCommand) -> None:
        audit.set_cause(self.cause)
        try:
            await self._follow(held)
        except SandboxLost as lost:
            await self._lost_sight(lost)
        except Exception as error:
            self.server.report(error)
            await self._end(error=Problem("failed", "the service lost this command"))

    # Its output.

    async def _follow(self, held: HeldCommand) -> None:
        while True:
            await self._room()
            out, err = self.log.received
            taken = await held.take(
                (out + self._skew[0], err + self._skew[1]),
                wait=TAKE_SECONDS,
                most=TAKEN_AT_ONCE,
            )
            self._skew = taken.start[0] - out, taken.start[1] - err
            for stream, data in enumerate((taken.stdout, taken.stderr)):
                if data:
                    self.log.append(stream, data)
                    self._collect(stream, data)
                    self.session.vitals.printed(data)
            if taken.stdout or taken.stderr:
                self._printed(held)
            if taken.is_last and taken.ended is not None:
                await self._concluded(held, taken.ended)
                return

    async def _room(self) -> None:
        """With `on_full: "wait"` a full log holds the command back until somebody was sent its oldest part."""
        while (
            self.body["on_full"] == "wait"
            and self.log.is_full
            and self._stopped is None
        ):
            self.log.trim(self.sent)
            if self.log.is_full:
                await self.changed.wait()

    def _printed(self, held: HeldCommand) -> None:
        held.confirm(
            (self.log.received[0] + self._skew[0], self.log.received[1] + self._skew[1])
        )
        self.log.trim(self.sent if self.body["on_full"] == "wait" else None)
        limit = self.body["output_limit"]
        if limit is not None and self.log.end > limit and self._stopped is None:
            self._stopped = "output_limit"
            held.kill(self.body["grace"])
        self.changed.fire()
        if time.monotonic() - self._published > PUBLISHED_EVERY:
            self.publish()

    def _collect(self, stream: int, data: bytes) -> None:
        capture, limit = self._captures[stream], self.body["output_limit"]
        produced = self._captures[0].produced + self._captures[1].produced
        kept = data if limit is None else data[: max(0, limit - produced)]
        if kept:
            capture.add(produced, kept)
        capture.produced += len(data) - len(kept)

    def was_sent(self, position: int) -> None:
        """A reader has been sent everything before this position."""
        if position > self.sent:
            self.sent = position
            if self.body["on_full"] == "wait":
                self.changed.fire()

    # Its end.

    async def _concluded(self, held: HeldCommand, ended: EndedBody) -> None:
        result = await held.conclude(self._captures, ended, self._stopped)
        await self._end(result)
        with contextlib.suppress(SandboxLost):
            held.left(ended)
            held.forget()

    async def lost(self, lost: SandboxLost) -> None:
        """Its sandbox is gone, or it was never known to have started."""
        if self.is_over:
            return
        if not self.launched:
            await self._fail(
                Problem("cancelled", "the session ended before the command ran")
            )
            return
        record = self.session.lost_record(self.data["started"] or time.time())
        result = record.lost(self._captures, lost)
        if self.session.is_ending:
            result = replace(result, cause="killed", exit_code=137)
        await self._end(result)

    async def _end(
        self, result: Result | None = None, error: Problem | None = None
    ) -> None:
        if self.is_over:
            return
        self.log.close()
        if result is None and self._held is not None:
            self._give_up(self._held)
        if result is not None:
            self.session.record_end(self, result)
            self.server.metrics.command_ended(result.cause, result.duration)
            ids = {"belljar.session": self.session.id, "belljar.command": self.id}
            tracing.command_ended(
                self.trace, ids, self.data["started"] or time.time(), result
            )
        await self.save(
            state="ended",
            ended=time.time(),
            exit_code=result.exit_code if result else None,
            result=self._shown(result) if result else None,
            error=error.as_dict() if error else None,
        )
        self.ended.set()
        self.session.forget_command(self)
        if self.data["approval"]:
            await self.server.approvals.cancel(self.data["approval"])
        self.server.recently.keep(self.id, self)

    def _give_up(self, held: HeldCommand) -> None:
        """The service failed while it ran, its disk is full for one: nobody follows it any more."""
        with contextlib.suppress(SandboxLost):
            held.kill()
        record = self.session.lost_record(self.data["started"] or time.time())
        lost = record.lost(self._captures, "the service failed")
        self.session.record_end(self, replace(lost, cause="killed", exit_code=137))

    def _shown(self, result: Result) -> dict[str, Any]:
        kept = {"stdout": result.stdout_bytes, "stderr": result.stderr_bytes}
        raw = codec.base64_of(**kept) if result.truncated else codec.raw_streams(**kept)
        return {
            **result.as_dict(),
            "combined": result.combined,
            "verdict": self.data["verdict"],
            **raw,
        }

    # Steering.

    async def wait(self, seconds: float) -> bool:
        """Whether it ended within so many seconds."""
        if seconds <= 0 or self.ended.is_set():
            return self.is_over
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ended.wait()
        return self.is_over

    async def held(self) -> HeldCommand:
        """The running command; 409 if it has not started or has ended."""
        while not self.is_over and self.state == "running" and self._held is None:
            self.session.refuse_if_paused()
            await self.changed.wait(1)
        if self._held is None or self.is_over:
            raise Problem("conflict", f"the command is {self.state}")
        self.session.refuse_if_paused()
        return self._held

    async def write(self, data: bytes, *, close: bool) -> None:
        if not self.has_input:
            raise Problem("conflict", "the command has no open stdin")
        held = await self.held()
        if self.body.get("closed"):
            raise Problem("conflict", "its stdin was closed")
        if data:
            await held.write(data)
        if close:
            self.close_input(held)
        if self.is_over and data:
            raise Problem("conflict", "the command has ended")

    def close_input(self, held: HeldCommand) -> None:
        held.close_input()
        if not self.body["pty"]:
            self.body["closed"] = True

    async def kill(self, grace: float) -> None:
        """End it; returns when no process of it is left."""
        if self.is_over:
            return
        if self._held is None and not self.launched:
            if self._task is not None:
                self._task.cancel()
            await self._end(
                error=Problem("cancelled", "the command was ended before it ran")
            )
            return
        held = await self.held()
        held.kill(grace)
        self._stopped = self._stopped or "killed"
        self.changed.fire()
        if not await self.wait(grace + KILL_PATIENCE):
            raise Problem(
                "failed", "the sandbox does not say that the command has ended"
            )

    def abandon(self) -> None:
        """This server stops following it; it runs on."""
        if self._task is not None:
            self._task.cancel()
        self.log.close()


def _captures(session: Around) -> tuple[Capture, Capture]:
    cap = int(session.limits.output)
    return Capture("stdout", cap), Capture("stderr", cap)


def options_of(body: dict[str, Any]) -> Any:
    """The options of the core for a body."""
    names = ("timeout", "grace", "cwd", "env", "combined", "pty", "clean_env", "user")
    options: dict[str, Any] = {
        name: body[name] for name in names if body[name] is not None
    }
    if body["size"] is not None:
        options["size"] = tuple(body["size"])
    return options
