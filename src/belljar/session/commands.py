"""`Commands`: admits the commands of a session and starts them in its sandbox.

text or words → judged, asked about → Request → RunningCommand → Result
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING

from belljar.errors import AuditError, UsageError
from belljar.layout import WORKSPACE
from belljar.link import frames
from belljar.link.frames import Flag
from belljar.records import record
from belljar.session import options as checks
from belljar.session.ledger import CommandRecord, Ledger
from belljar.session.options import Command, Options
from belljar.session.running_command import GRACE, RunningCommand
from belljar.session.users import Identity, identity
from belljar.workspace.cwd import in_sandbox
from belljar.workspace.cwd import inside as inside_workspace

if TYPE_CHECKING:
    from os import PathLike

    from belljar.link.remote_process import RemoteProcess
    from belljar.policy import Policy, Verdict
    from belljar.session.door import SessionDoor
    from belljar.session.inside import Inside
    from belljar.session.judging import Judge

LONGEST_TAG = 2000  # bytes of its command that a listed shell shows


@record
class Request:
    """Made by `Session.admit`, for that session only. Run it with `box.run(request)`, `box.stream(request)`…"""

    verdict: Verdict
    argv: tuple[bytes, ...] = field(repr=False)
    flags: int
    cwd: bytes
    env: Mapping[bytes, bytes] = field(repr=False)
    options: Options = field(repr=False)
    admitted_by: object = field(repr=False)
    user: bytes = b""
    """Whom it runs as, in the init's words; empty: the sandbox's own user."""


class Commands:
    def __init__(
        self, inside: Inside, judge: Judge, ledger: Ledger, door: SessionDoor
    ) -> None:
        self.inside = inside
        self.judge = judge
        self.ledger = ledger
        self._door = door

    def taken_over(self, request: Request, earlier: Commands) -> Request:
        """What was admitted when the same sandbox was reached by another connection."""
        same = earlier.inside.sandbox.id == self.inside.sandbox.id
        if not same or request.admitted_by is not earlier:
            raise UsageError("a Request runs only in the sandbox that it was made for")
        return replace(request, admitted_by=self)

    async def admitted(
        self,
        command: Command | Request,
        options: Options,
        where: str,
        without: tuple[str, ...] = (),
    ) -> Request:
        """The request for a command, which the caller begins before it awaits anything else."""
        self.inside.link.check_loop()
        if not isinstance(command, Request):
            command = await self.admit(command, checks.check(options, where, without))
        elif command.admitted_by is not self or options:
            raise UsageError(
                "a Request takes no more options and runs only in the session that admitted it"
            )
        await self.inside.ready()
        return command

    async def admit(
        self,
        command: Command,
        options: Options,
        policy: Policy | None = None,
        question: str | None = None,
    ) -> Request:
        checks.check_command(command)
        if self.inside.options.longest is not None:
            options = {**options, "timeout": self.inside.within(options.get("timeout"))}
        place, name = options.get("cwd"), options.get("user")
        cwd = WORKSPACE if place is None else self.resolve_cwd(place, anywhere=True)
        user = None if name is None else await self._identity(name)
        env = {
            **self.inside.env,
            **(user.environment if user else {}),
            **(options.get("env") or {}),
        }
        verdict = await self.judge.admit(
            command, policy=policy, question=question, cwd=cwd, env=env
        )
        argv = (
            (encoded(verdict.canonical),)
            if isinstance(command, str)
            else tuple(map(encoded, command))
        )
        # The init stands in the workspace that it started with; a staged one may be mounted anew.
        raw_cwd = (
            b"" if cwd == WORKSPACE and not self.inside.is_staged else encoded(cwd)
        )
        return Request(
            verdict,
            argv,
            flags_of(command, options),
            raw_cwd,
            environment(env, options),
            options,
            admitted_by=self,
            user=user.words if user else b"",
        )

    async def _identity(self, user: str | int) -> Identity | None:
        is_root = self.inside.options.root
        own = (
            ("root", 0)
            if is_root
            else (
                self.inside.options.account,
                self.inside.sandbox.workspace.identity.uid,
            )
        )
        return await identity(user, own, self.inside.files)

    def resolve_cwd(
        self, cwd: str | PathLike[str] | None, *, anywhere: bool = False
    ) -> str:
        """The path of a working directory in the sandbox. Outside the workspace it is refused, unless `anywhere`."""
        sandbox = self.inside.sandbox
        is_visible = sandbox.engine.capabilities.binds and not self.inside.is_staged
        root = sandbox.workspace.descriptor if is_visible else None
        resolve = in_sandbox if anywhere else inside_workspace
        return resolve(
            sandbox.workspace.path, None if cwd is None else os.fspath(cwd), root=root
        )

    def begin(
        self, request: Request, *, paced: bool = False, ring: int = 0
    ) -> RunningCommand:
        """Start it: `async with commands.begin(request) as running`. With a `ring` it runs in the background."""
        options = request.options
        record = self.new_record(
            request.verdict, bool(options.get("combined") or options.get("pty"))
        )
        process = self._spawn(request, paced, ring)
        try:  # the record is written while the command starts; if the trail is required, its verdict was before
            record.start(os.fsdecode(request.cwd), request.env)
        except AuditError:
            process.abandon()
            raise
        return RunningCommand(
            self.inside, process, record, options, self.inside.options.limits.output
        )

    def new_record(self, verdict: Verdict, combined: bool = False) -> CommandRecord:
        """Called before a command starts: notes which files the host may run now."""
        run_files = self.inside.aftermath.run_files
        before = run_files.before(self.inside.is_busy, look=False)
        return CommandRecord(
            self.ledger,
            self.inside.surroundings,
            verdict,
            combined=combined,
            runs_later=lambda: run_files.since(before, look=False),
            visits=self._door.visits_since,
            listening=self._door.new_listening,
        )

    def _spawn(self, request: Request, paced: bool, ring: int) -> RemoteProcess:
        flags, options, tag = request.flags, request.options, b""
        if ring:
            flags |= Flag.BACKGROUND
        if ring or flags & Flag.PTY:  # it may be detached later
            tag = encoded(request.verdict.canonical)[:LONGEST_TAG]
        try:
            return self.inside.link.spawn(
                request.argv,
                flags=flags,
                cwd=request.cwd,
                env=request.env,
                deadline=options.get("timeout"),
                grace=options.get("grace", GRACE),
                ring=ring,
                tag=tag,
                paced=paced,
                size=options.get("size") or (24, 80),
                user=request.user,
            )
        except frames.FrameError as error:
            raise UsageError(
                f"the command and its environment are too large: {error}"
            ) from error


def flags_of(command: Command, options: Options) -> int:
    has_input = options.get("stdin") is not None or bool(
        options.get("stdin_open") or options.get("pty")
    )
    return (
        (Flag.SHELL if isinstance(command, str) else 0)
        | (0 if options.get("clean_env") else Flag.DEFAULT_ENV)
        | (Flag.COMBINED if options.get("combined") else 0)
        | (Flag.PTY if options.get("pty") else 0)
        | (Flag.STDIN if has_input else 0)
    )


def environment(env: Mapping[str, str], options: Options) -> dict[bytes, bytes]:
    if options.get("pty"):
        env = {"TERM": "xterm-256color", **env}
    return {encoded(name): encoded(value) for name, value in env.items()}


def encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise UsageError(f"the text cannot be encoded: {error}") from error
