"""`RemoteSession`: a `Box` whose sandbox a service has. `Session(…, host=belljar.connect(url, key=…))` makes one.

While it is open its lease is renewed, so it lives as long as this process, and by its lease longer. A directory of this
machine is copied up when it opens, and its changes come back staged. Without a workspace it has an empty one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import cached_property
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Never, Self, Unpack

import anyio

from belljar import codec
from belljar.engines.spec import Network
from belljar.errors import (
    BelljarError,
    PolicyDenied,
    SandboxLost,
    Unsupported,
    UsageError,
)
from belljar.limits import Limits
from belljar.options import FIELDS, PUBLIC, SandboxOptions, callable_or_none, known
from belljar.policy import Policy, Verdict
from belljar.records import record
from belljar.remote.command import RemoteCommands, RemoteRun, Spoken
from belljar.remote.files import RemoteFiles
from belljar.remote.shells import SHELL_ID, RemotePersistentShell, RemoteShells
from belljar.remote.staged import AtService, CopiedUp
from belljar.remote.wire import (
    APPROVAL_SECONDS,
    LONGEST_WAIT,
    Service,
    Wire,
    error_from,
)
from belljar.session import options as checks
from belljar.session.commands import Request, flags_of
from belljar.session.flat import flat
from belljar.session.judging import judged, load
from belljar.session.snapshot import Snapshot
from belljar.tasks import see_through
from belljar.workspace.cwd import in_sandbox, inside

if TYPE_CHECKING:
    from os import PathLike

    from belljar.host import FarHost
    from belljar.network.allow import Allow
    from belljar.session.options import Approver, Command, Options
    from belljar.session.result import Result

WORKSPACE_AT_SERVICE = "/workspace"
LOOK_SECONDS = 2.0  # between looks whether the session still lives
_NOT_OPEN = "this session is not open, or was closed; write `async with belljar.Session(…) as box:`"
_SENT = (
    "image",
    "name",
    "snapshot",
    "changes",
    "checkpoints",
    "root",
    "debug",
    "lease",
)
_IN_ITS_WORDS = ("workspace", "policy", "limits", "network", "env", "metadata")
"""Sent too: `body_of` says how."""
_NOT_SENT = ("mounts", "cache", "account", "timezone", "id", "allow_home")
_OF_THIS_SIDE = ("keep", "on_close", "author")
"""What becomes of a session is decided here; who commits there is its own user."""


class AtServiceWorkspace(str):
    """The name of a workspace that the service keeps for its tenant: `host.workspace("project")`."""

    __slots__ = ()


@record
class Place:
    path: str


class RemoteDoor:
    """`box.door` of a remote session: hosts and ports."""

    def __init__(self, box: RemoteSession) -> None:
        self._box = box

    @property
    def allow(self) -> Allow | None:
        network = self._box.options.network
        return None if isinstance(network, str) else network

    async def allow_host(self, *hosts: str) -> None:
        """Let it reach more hosts, as far as the key may: `await box.allow_host("api.example.com")`."""
        from belljar.network.allow import Allow

        wider = (self.allow or Allow()).with_hosts(*hosts)
        await self._box.wire.post(f"{self._box.at}/hosts", {"hosts": [*hosts]})
        self._box.options = replace(self._box.options, network=wider)

    async def forward(self, port: int, *, at: int = 0) -> str:
        """An address at which a server in the sandbox can be reached, without a key, for an hour."""
        if at:
            raise Unsupported("a service chooses the address itself; leave out at=")
        told = await self._box.wire.post(f"{self._box.at}/links", {"port": port})
        return str(told["url"]).rstrip("/")

    async def listening(self) -> tuple[int, ...]:
        """The ports that programs in the sandbox listen on."""
        return tuple((await self._box.look())["listening"])


class RemoteSession:
    """One sandbox at a service, and the commands that run in it. It has the names of `belljar.Session`."""

    def __init__(
        self,
        host: FarHost,
        service: Service,
        options: SandboxOptions,
        workspace: str | None,
        approve: Approver | None,
    ) -> None:
        callable_or_none("approve", approve)
        self.host = host
        self._service = service
        self.options = options
        self._workspace = workspace
        self._approve = approve
        self._told: dict[str, Any] = {}
        self._wire: Wire | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._was_open = self._is_over = False
        self.enters: str | None = None
        """The session that is there already, which `open` takes part in."""
        self._begins: dict[str, Any] = {}
        """Of a fork: the session that it begins with, and what is not as there."""

    def __repr__(self) -> str:
        state = "open" if self.is_open else "closed" if self._was_open else "not open"
        where = f"{self.id} " if self._told else ""
        return (
            f"<belljar.Session {where}at {self.host.url}, image {self.image}, {state}>"
        )

    # Life.

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> Never:
        raise UsageError(
            "a Session is asynchronous: write `async with`, or use belljar.sync.Session"
        )

    def __exit__(self, *_: object) -> None: ...

    async def open(self) -> Self:
        """Make the session at the service, and wait until it is ready: `await box.open()`."""
        if self._was_open:
            return self
        if self.enters is not None:
            return await self.enter(self.enters)
        self._was_open = True
        self._wire = self._service.wire()
        try:
            await self._begin(await self._made())
            await self.staged.enter()
        except BaseException:
            await see_through(self._let_go(delete=True))
            raise
        return self

    async def _made(self) -> dict[str, Any]:
        body = self._begins or body_of(
            self.options, self._workspace, self._approval_seconds
        )
        key = secrets.token_hex(16)
        while True:
            try:
                told: dict[str, Any] = await self.wire.post(
                    "/v1/sessions", body, wait=LONGEST_WAIT, key=key
                )
            except BelljarError:
                raise
            except (
                BaseException
            ):  # the answer was not waited for: the same key gives the same session
                self._told = await see_through(
                    self.wire.post("/v1/sessions", body, wait=0, key=key)
                )
                raise
            self._told = told
            if told["state"] in ("ready", "ended"):
                return told

    @property
    def _approval_seconds(self) -> float:
        """Whoever asks an approver here needs some time for the answer."""
        return self._service.approval_seconds or (
            APPROVAL_SECONDS if self._approve is not None else 0.0
        )

    async def enter(self, id: str) -> Self:
        """Take part in a session that is there already."""
        self._was_open = True
        self._wire = self._service.wire()
        try:
            await self._begin(await self.wire.get(f"/v1/sessions/{id}"))
            if isinstance(self.staged, CopiedUp):
                self.staged.found()
        except BaseException:
            await see_through(self._let_go(delete=False))
            raise
        return self

    async def _begin(self, told: dict[str, Any]) -> None:
        self._told = told
        if told["state"] == "ended":
            raise (
                error_from(told["error"])
                if told["error"]
                else SandboxLost("the session has ended")
            )
        if not self.options.keep:
            self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _renew(self) -> None:
        """Keep the lease from ending while somebody has it open."""
        while True:
            await asyncio.sleep(max(1.0, self._told["lease"] / 3))
            with suppress(BelljarError):
                await self.wire.ask(
                    "PATCH", self.at, json={"lease": self._told["lease"]}
                )

    async def close(self) -> None:
        """End the sandbox; one with `keep=True` goes on until its lease ends: `await box.close()`."""
        if self._wire is None:
            return
        try:
            if not self._is_over:
                with suppress(SandboxLost):
                    await self.staged.leave(keep=self.options.keep)
        finally:
            await see_through(self._let_go(delete=not self.options.keep))

    async def stop(self) -> None:
        """End the sandbox, even a kept one: `await box.stop()`."""
        self.options = replace(self.options, keep=False)
        await self.close()

    async def _let_go(self, *, delete: bool) -> None:
        wire, self._wire = self._wire, None
        if self._renewing is not None:
            self._renewing.cancel()
        assert wire is not None
        try:
            if (commands := self.__dict__.get("commands")) is not None:
                await commands.settled()
            if delete and self._told:
                await wire.ask("DELETE", self.at)
        except SandboxLost:
            pass
        finally:
            await wire.close()

    async def snapshot(
        self, name: str, *, workspace: bool = False, replace: bool = False
    ) -> Snapshot:
        """Keep what the sandbox holds under a name, for sessions at the same service: `await box.snapshot("ready")`.

        A service keeps all files of a session that is not staged, unless its workspace has a name.
        """
        if workspace and self._workspace is not None and not is_copied(self._workspace):
            raise Unsupported(
                "a workspace that the service keeps under a name is not kept in a snapshot as well"
            )
        if replace:
            with suppress(BelljarError):  # there is none
                await self.wire.ask("DELETE", f"/v1/snapshots/{name}")
        told = await self.wire.post("/v1/snapshots", {"session": self.id, "name": name})
        facts = {each: told[each] for each in ("name", "image", "created", "size")}
        return Snapshot(
            **facts,
            engine="",
            workspace=self._workspace or "",
            left_out=tuple(told["left_out"]),
        )

    async def fork(self, **options: Any) -> RemoteSession:
        """A new session there that begins with a copy of these files: `twin = await box.fork()`."""
        known(options, {*PUBLIC, "approve"}, "fork")
        approve = options.pop("approve", self._approve)
        wanted = replace(self.options, **options, keep=False, snapshot=None)
        twin = RemoteSession(self.host, self._service, wanted, self._workspace, approve)
        if isinstance(self.staged, CopiedUp):
            await twin.open()
            try:
                assert isinstance(twin.staged, CopiedUp)
                await self.staged.copy_to(twin.staged)
            except BaseException:
                await see_through(twin.stop())
                raise
            return twin
        given = body_of(wanted, None, twin._approval_seconds)
        own = {name: given[name] for name in options if name in given}
        twin._begins = {"from": self.id, **own}
        return await twin.open()

    async def pause(self) -> None:
        """Freeze all processes where they stand, until `resume`: `await box.pause()`."""
        await self._patch(paused=True)

    async def resume(self) -> None:
        """Let the processes of a paused session go on: `await box.resume()`."""
        await self._patch(paused=False)

    @property
    def is_paused(self) -> bool:
        return bool(self._told and self._told["paused"])

    async def _patch(self, **changes: Any) -> None:
        self._told = (await self.wire.ask("PATCH", self.at, json=changes)).json()

    def stay(self, lease: float, **metadata: str) -> None:
        """Let the session outlive this process by `lease` seconds."""
        self.options = replace(self.options, keep=True)
        self._told["lease"] = lease
        notes = {"lease": lease, "metadata": {**self.metadata, **metadata}}
        self.commands.later(lambda: self.wire.ask("PATCH", self.at, json=notes))

    def extend(self, lease: float) -> None:
        """Change the lease: `box.extend(3600)`."""
        self._told["lease"] = lease
        self.commands.later(
            lambda: self.wire.ask("PATCH", self.at, json={"lease": lease})
        )

    @property
    def why_lost(self) -> str:
        """Why the sandbox is gone, if it is."""
        error = self._told.get("error") or {}
        return str(error.get("detail") or self._told.get("reason") or "")

    async def until_lost(self) -> None:
        """Wait until the sandbox is gone: `await box.until_lost()`."""
        while True:
            if (await self.look())["state"] == "ended":
                return
            await anyio.sleep(LOOK_SECONDS)

    async def ping(self) -> None:
        """Wait for the service to answer for it; SandboxLost if it is gone."""
        if (await self.look())["state"] == "ended":
            raise SandboxLost("the session has ended")

    async def look(self) -> dict[str, Any]:
        """What the service says of it now."""
        self._told = await self.wire.get(self.at)
        self._is_over = self._told["state"] == "ended"
        return self._told

    # What it is.

    @property
    def wire(self) -> Wire:
        if self._wire is None:
            raise UsageError(_NOT_OPEN)
        return self._wire

    @property
    def id(self) -> str:
        if not self._told:
            raise UsageError(_NOT_OPEN)
        return str(self._told["id"])

    @property
    def at(self) -> str:
        return f"/v1/sessions/{self.id}"

    @property
    def image(self) -> str:
        return self.options.image

    @property
    def limits(self) -> Limits:
        """As the service has set them."""
        return Limits(**self._told["limits"]) if self._told else self.options.limits

    @cached_property
    def workspace(self) -> Place:
        """What is at /workspace: a directory of this machine that was copied, or `@NAME` at the service."""
        return Place(self._workspace or WORKSPACE_AT_SERVICE)

    @cached_property
    def policy(self) -> Policy:
        name = self.options.policy
        return load(name)

    @property
    def network(self) -> Network:
        return self.options.network_mode

    @property
    def allow(self) -> Allow | None:
        return self.door.allow

    @property
    def metadata(self) -> dict[str, str]:
        return dict(self._told["metadata"] if self._told else self.options.metadata)

    @property
    def env(self) -> Mapping[str, str]:
        return dict(self.options.env)

    @property
    def is_open(self) -> bool:
        return self._wire is not None and bool(self._told) and not self._is_over

    @property
    def is_staged(self) -> bool:
        """Whether changes are kept aside until someone applies them; always, of a directory of this machine."""
        return (
            self.staged.is_on
            if self._told
            else self._workspace is not None or self.options.changes == "staged"
        )

    def usage(self) -> dict[str, int]:
        """Empty: the service measures, and its dashboard shows it."""
        return {}

    # Its parts.

    @cached_property
    def commands(self) -> RemoteCommands:
        return RemoteCommands(self.wire, self.id, self._approve)

    @cached_property
    def shells(self) -> RemoteShells:
        return RemoteShells(self.commands, self.files)

    @cached_property
    def files(self) -> RemoteFiles:
        return RemoteFiles(self.wire, self.id)

    @cached_property
    def staged(self) -> AtService | CopiedUp:
        if is_copied(self._workspace):
            assert self._workspace is not None
            return CopiedUp(self.files, self.id, self._workspace, self.options.name)
        return AtService(self.wire, self.id, is_on=self._told["changes"] == "staged")

    @cached_property
    def door(self) -> RemoteDoor:
        return RemoteDoor(self)

    @property
    def persistent(self) -> RemotePersistentShell:
        """One shell that keeps its state from call to call: `await box.persistent.run("cd src")`."""
        return self.shells.persistent

    def shell(self, name: str) -> Any:
        """A background shell by its id, or a shell of its own by any other name."""
        return (
            self.shells.get(name)
            if SHELL_ID.fullmatch(name)
            else self.shells.named(name)
        )

    # Commands.

    async def run(
        self, command: Command | Request, **options: Unpack[Options]
    ) -> Result:
        """Run a command to its end: `result = await box.run("pytest -q", timeout=60)`."""
        return await self.commands.run(
            await self._spoken(command, checks.check(options, "run", ("stdin_open",)))
        )

    @asynccontextmanager
    async def stream(
        self, command: Command | Request, **options: Unpack[Options]
    ) -> AsyncIterator[RemoteRun]:
        """Run a command and watch its events: `Started`, `Output`…, `Ended`. Leaving the block early kills it.

        async with box.stream("npm test") as events:
            async for event in events: ...
        """
        spoken = await self._spoken(command, checks.check(options, "stream"))
        async with RemoteRun.begun(self.commands, spoken) as run:
            yield run

    async def _spoken(self, command: Command | Request, options: Options) -> Spoken:
        if isinstance(command, Request):
            if command.admitted_by is not self or options:
                raise UsageError(
                    "a Request takes no more options and runs only in the session that admitted it"
                )
            return Spoken(command, command.options)
        checks.check_command(command)
        if (
            isinstance(command, str) and "\0" in command
        ):  # JSON for a service has none: the policy says why not
            raise PolicyDenied(await judged(self.policy, command))
        if (place := options.get("cwd")) is not None:
            options = {**options, "cwd": self.resolve_cwd(place, anywhere=True)}
        return Spoken(command, options)

    async def admit(
        self,
        command: Command,
        *,
        policy: Policy | None = None,
        question: str | None = None,
        **options: Unpack[Options],
    ) -> Request:
        """Judge a command; PolicyDenied if it may not run. One that needs an approval is asked about when it runs.

        request = await box.admit("make test", timeout=60)
        result = await box.run(request)
        """
        checks.check_command(command)
        checks.check(options, "admit")
        cwd = options.get("cwd")
        verdict = await self._judged(command, None if cwd is None else str(cwd))
        if policy is not None:
            ours = await judged(policy, command)
            verdict = ours if ours.decision != "allow" else verdict
        if verdict.decision == "deny":
            raise PolicyDenied(verdict)
        if verdict.decision == "ask" and (question is not None or policy is not None):
            await self.ask(verdict)
        text = (verdict.canonical,) if isinstance(command, str) else tuple(command)
        argv = tuple(word.encode("utf-8", "surrogateescape") for word in text)
        return Request(
            verdict,
            argv,
            flags_of(command, options),
            b"",
            {},
            options,
            admitted_by=self,
        )

    async def _judged(self, command: Command, cwd: str | None) -> Verdict:
        name = self.policy.name
        if name == "none":
            return await judged(self.policy, command)
        words = command if isinstance(command, str) else [*command]
        told = await self.wire.post(
            "/v1/check", {"command": words, "policy": name, "cwd": cwd}
        )
        return codec.decode(Verdict, {**told, "effects": [], "policy": name})

    async def ask(self, question: Verdict) -> None:
        """Ask the approver of this process; PolicyDenied unless the answer is yes."""
        answer = self._approve(question) if self._approve is not None else None
        answer = await answer if isawaitable(answer) else answer
        if answer is not True:
            raise PolicyDenied(question, declined=answer is False)

    def resolve_cwd(
        self, cwd: str | PathLike[str] | None, *, anywhere: bool = False
    ) -> str:
        """The path of a working directory in the sandbox. Outside the workspace it is refused, unless `anywhere`."""
        near = (
            str(self._workspace) if is_copied(self._workspace) else WORKSPACE_AT_SERVICE
        )
        resolve = in_sandbox if anywhere else inside
        return resolve(near, None if cwd is None else os.fspath(cwd))

    start = flat("shells", RemoteShells.start)
    yielding = flat("shells", RemoteShells.yielding)
    refresh = flat("shells", RemoteShells.refresh)
    cleanup = flat("shells", RemoteShells.cleanup)

    # Network.

    forward = flat("door", RemoteDoor.forward)
    allow_host = flat("door", RemoteDoor.allow_host)
    listening = flat("door", RemoteDoor.listening)

    # Staged changes.

    changes = flat("staged", CopiedUp.changes)
    apply = flat("staged", CopiedUp.apply)
    show = flat("staged", CopiedUp.show)
    apply_shown = flat("staged", CopiedUp.apply_shown)
    undo_apply = flat("staged", CopiedUp.undo_apply)
    discard = flat("staged", CopiedUp.discard)
    checkpoint = flat("staged", CopiedUp.checkpoint)
    checkpoints = flat("staged", CopiedUp.checkpoints)
    left_out = flat("staged", CopiedUp.left_out)
    copy_out = flat("staged", CopiedUp.copy_out)
    forget_checkpoint = flat("staged", CopiedUp.forget_checkpoint)
    rollback = flat("staged", CopiedUp.rollback)

    async def diff(
        self,
        paths: Iterable[str] | None = None,
        *,
        against: RemoteSession | None = None,
        ignored: bool = False,
    ) -> str:
        """All changes, or those at or below some paths, as a unified diff: `print(await box.diff(["src"]))`."""
        other: Any = against.staged if against is not None else None
        return await self.staged.diff(paths, against=other, ignored=ignored)


def is_copied(workspace: str | None) -> bool:
    """Whether it is a directory of this machine."""
    return workspace is not None and not isinstance(workspace, AtServiceWorkspace)


def body_of(
    options: SandboxOptions, workspace: str | None, approval_seconds: float
) -> dict[str, Any]:
    """What a service is asked for: all that is not the default, so that its own defaults hold."""
    for name in _NOT_SENT:
        if getattr(options, name) != FIELDS[name].default:
            raise Unsupported(
                f"a service takes no {name}: its sandboxes have their own"
            )
    if options.on_close in ("apply", "discard"):
        raise Unsupported(
            f'a service takes no on_close="{options.on_close}": apply or discard the changes yourself'
        )
    changed = {
        name for name in FIELDS if getattr(options, name) != getattr(_DEFAULTS, name)
    }
    body: dict[str, Any] = {
        name: getattr(options, name) for name in _SENT if name in changed
    }
    if (
        not isinstance(options.policy, str)
        or "/" in options.policy
        or options.policy.endswith(".toml")
    ):
        raise Unsupported("a service takes only its own policies, by their names")
    body["policy"] = options.policy
    if "limits" in changed:
        given, usual = options.limits.as_dict(), Limits().as_dict()
        body["limits"] = {
            name: value for name, value in given.items() if value != usual[name]
        }
    if isinstance(options.network, str):
        body["network"] = options.network
    else:
        if options.network.headers:
            raise Unsupported(
                "a service takes no headers for hosts: the secrets would leave this machine"
            )
        hosts, presets = list(options.network.hosts), list(options.network.presets)
        body["network"] = {
            "allow": hosts,
            "presets": presets,
            "ask_hosts": options.network.ask_hosts,
        }
    body |= {
        "env": dict(options.env),
        "metadata": dict(options.metadata),
        "approval_seconds": approval_seconds,
    }
    if options.snapshot is not None:  # what is not given is the original's
        body = {
            name: value
            for name, value in body.items()
            if name in changed or name == "approval_seconds"
        }
    if is_copied(workspace):
        body.pop("changes", None)  # kept aside here
        body.pop("checkpoints", None)
    elif workspace is not None:
        body["workspace"] = workspace.removeprefix("@")
    return body


_DEFAULTS = SandboxOptions()
