"""OpenAI Agents SDK: a sandbox client for `SandboxAgent`, and an executor for `ShellTool`.

    from agents import Runner
    from agents.run import RunConfig
    from agents.sandbox import SandboxAgent, SandboxRunConfig
    from belljar.adapters.openai_agents import BelljarSandboxClient, BelljarSandboxClientOptions

    agent = SandboxAgent(name="engineer", model=model, instructions="Use the sandbox.")
    options = BelljarSandboxClientOptions(image="base", limits={"memory": "1g"})
    sandbox = SandboxRunConfig(client=BelljarSandboxClient(), options=options)
    result = await Runner.run(agent, "Which files are here?", run_config=RunConfig(sandbox=sandbox))

A denied command ends with status 126 and the reason on stderr, so that the model reads it. The manifest's root is a
directory of the sandbox; without `workspace` what is at /workspace ends with the session, and a snapshot keeps it.
With `workspace` the host's directory is used as it is: no snapshot is ever unpacked over it.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import shutil
import tarfile
import tempfile
import time
import uuid
from collections import deque
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Literal, cast

from agents.sandbox import errors
from agents.sandbox.manifest import Manifest
from agents.sandbox.session import SandboxSession, SandboxSessionState
from agents.sandbox.session.base_sandbox_session import BaseSandboxSession
from agents.sandbox.session.manager import Instrumentation
from agents.sandbox.session.pty_output import collect_pty_output
from agents.sandbox.session.pty_types import (
    PTY_PROCESSES_MAX,
    PtyExecUpdate,
    allocate_pty_process_id,
    clamp_pty_yield_time_ms,
    process_id_to_prune_from_meta,
    resolve_pty_write_yield_time_ms,
)
from agents.sandbox.session.runtime_helpers import RESOLVE_WORKSPACE_PATH_HELPER
from agents.sandbox.session.sandbox_client import (
    BaseSandboxClient,
    BaseSandboxClientOptions,
)
from agents.sandbox.session.workspace_payloads import coerce_write_payload
from agents.sandbox.snapshot import resolve_snapshot
from agents.sandbox.types import ExecResult, ExposedPortEndpoint
from agents.sandbox.util.tar_utils import UnsafeTarMemberError, validate_tarfile
from agents.sandbox.workspace_paths import posix_path_for_error, sandbox_path_str
from agents.tool import (
    ShellCallOutcome,
    ShellCommandOutput,
    ShellCommandRequest,
    ShellResult,
)
from anyio import to_thread
from pydantic import ConfigDict, Field, field_validator

import belljar
from belljar.adapters import boxes
from belljar.errors import CommandNotExecutable, CommandNotFound, ShellNotFound
from belljar.options import known
from belljar.session.box import BoxShell

PIECE = 256 << 10
MOST_AT_ONCE = 8 << 20
"""Bytes of a program's output that one call brings, and then what the sandbox still has at its end."""
IN_MEMORY = 16 << 20  # bytes of an archive that are not yet put on the disk


class BelljarSandboxClientOptions(BaseSandboxClientOptions):
    """The fields of `belljar.SandboxOptions`, as plain data: `BelljarSandboxClientOptions(image="python")`."""

    model_config = ConfigDict(extra="allow")

    type: Literal["belljar"] = "belljar"
    host: str | None = None
    """The address of a service; here if None."""
    exposed_ports: tuple[int, ...] = ()
    """Ports that `resolve_exposed_port` may open on this machine's loopback."""

    def model_post_init(self, _: Any) -> None:
        boxes.options_of(self.sandbox)  # raises for a wrong name
        if self.__pydantic_extra__:
            self.__pydantic_extra__.update(
                {
                    name: boxes.plain(value)
                    for name, value in self.__pydantic_extra__.items()
                }
            )

    @property
    def sandbox(self) -> dict[str, Any]:
        return {
            name: value
            for name, value in (self.model_extra or {}).items()
            if name != "workspace"
        }

    @property
    def workspace(self) -> str | None:
        return (self.model_extra or {}).get("workspace")


class BelljarSandboxSessionState(SandboxSessionState):
    type: Literal["belljar"] = "belljar"
    sandbox_id: str = ""
    options: BelljarSandboxClientOptions = Field(
        default_factory=BelljarSandboxClientOptions
    )

    @field_validator("options", mode="before")
    @classmethod
    def _parsed(cls, value: object) -> object:
        return BelljarSandboxClientOptions.parse(value)


@dataclass
class _Pty:
    shell: BoxShell
    tty: bool
    chunks: deque[bytes] = field(default_factory=deque)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    used: float = field(default_factory=time.monotonic)
    ended: bool = False
    taken: int = 0
    """Bytes, in this call."""

    async def poll(self, deadline: float) -> None:
        left = max(0.0, deadline - time.monotonic())
        try:
            if self.taken >= MOST_AT_ONCE and not await self._ends_within(left):
                return
            chunk = await self.shell.read(wait=left)
        except ShellNotFound:  # another call has ended it
            self.ended = True
            return
        if chunk.stdout_bytes or chunk.stderr_bytes:
            self.chunks.append(chunk.stdout_bytes + chunk.stderr_bytes)
            self.taken += len(self.chunks[-1])
        else:
            self.ended = chunk.status != "running"

    async def _ends_within(self, seconds: float) -> bool:
        with contextlib.suppress(TimeoutError):
            await self.shell.wait(max(seconds, 0.001))
        return self.shell.status != "running"

    async def collect(
        self, yield_ms: int, most: int | None
    ) -> tuple[bytes, int | None, bool]:
        self.taken = 0
        return await collect_pty_output(
            output_chunks=self.chunks,
            output_lock=self.lock,
            output_notify=asyncio.Event(),
            is_done=lambda: self.ended,
            yield_time_ms=yield_ms,
            max_output_tokens=most,
            poll_output=self.poll,
            wait_for_output=_at_once,
        )


async def _at_once(_: float) -> None:
    """`poll` has waited already."""


class BelljarSandboxSession(BaseSandboxSession):
    state: BelljarSandboxSessionState

    def __init__(self, state: BelljarSandboxSessionState, box: Any) -> None:
        self.state = state
        self.box = box
        """The `belljar.Session`."""
        self._ptys: dict[int, _Pty] = {}
        self._used_ids: set[int] = set()

    # Life.

    async def _prepare_backend_workspace(self) -> None:
        root = self._workspace_root_path()
        try:
            await self.box.files.mkdir(sandbox_path_str(root))
        except belljar.BelljarError as error:
            raise errors.WorkspaceStartError(path=root, cause=error) from error

    async def _after_start_failed(self) -> None:
        await self._shutdown_backend()

    async def running(self) -> bool:
        try:
            await self.box.ping()
        except (belljar.BelljarError, RuntimeError):
            return False
        return bool(self.box.is_open)

    async def _shutdown_backend(self) -> None:
        if not self.box.is_open:
            return
        if self.box.options.keep:
            await self.box.close()
        else:
            await boxes.closed(self.box)

    async def _restore_snapshot_into_workspace_on_resume(self) -> None:
        if self.state.options.workspace is None:
            await super()._restore_snapshot_into_workspace_on_resume()

    # Commands.

    async def _options(
        self, command: Sequence[str]
    ) -> tuple[list[str], dict[str, Any]]:
        """An argument vector without the `sudo -u USER --` that the SDK puts before it, and the command's options."""
        options: dict[str, Any] = {
            "env": await self.state.manifest.environment.resolve()
        }
        options["cwd"] = self._workspace_root_path().as_posix()
        if command[:2] == ["sudo", "-u"] and command[3:4] == ["--"]:
            options["user"], command = command[2], command[4:]
        return list(command), options

    async def _exec_internal(
        self, *command: str | Path, timeout: float | None = None
    ) -> ExecResult:
        if timeout is not None and timeout <= 0:
            raise errors.ExecTimeoutError(command=command, timeout_s=timeout)
        argv, options = await self._options([str(word) for word in command])
        with _refusals_are_results(command) as refused:
            result, stdout, stderr = await boxes.run_whole(
                self.box, argv, timeout=timeout, **options
            )
        if refused:
            return ExecResult(
                stdout=b"", stderr=refused[0].text, exit_code=refused[0].status
            )
        if result.cause == "timeout":
            raise errors.ExecTimeoutError(
                command=command, timeout_s=timeout, context=_streams(result)
            )
        if result.cause == "output_limit":
            raise errors.ExecTransportError(
                command=command, context=_streams(result), retryable=False
            )
        return ExecResult(stdout=stdout, stderr=stderr, exit_code=result.exit_code)

    def supports_pty(self) -> bool:
        return True

    async def pty_exec_start(
        self,
        *command: str | Path,
        timeout: float | None = None,
        shell: bool | list[str] = True,
        user: Any = None,
        tty: bool = False,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        prepared = self._prepare_exec_command(*command, shell=shell, user=user)
        argv, options = await self._options(prepared)
        with _refusals_are_results(command) as refused:
            how: dict[str, Any] = {"pty": True} if tty else {"combined": True}
            started = await self.box.start(argv, timeout=timeout, **how, **options)
        if refused:
            return PtyExecUpdate(None, refused[0].text, refused[0].status, None)
        if not tty:
            started.close_input()
        number = allocate_pty_process_id(self._used_ids)
        self._used_ids.add(number)
        self._ptys[number] = pty = _Pty(started, tty)
        await self._prune()
        milliseconds = 10_000 if yield_time_s is None else int(yield_time_s * 1000)
        return await self._update(
            number,
            pty,
            clamp_pty_yield_time_ms(milliseconds),
            max_output_tokens,
        )

    async def pty_write_stdin(
        self,
        *,
        session_id: int,
        chars: str,
        yield_time_s: float | None = None,
        max_output_tokens: int | None = None,
    ) -> PtyExecUpdate:
        pty = self._resolve_pty_session_entry(
            pty_processes=self._ptys, session_id=session_id
        )
        if chars:
            if not pty.tty:
                raise RuntimeError("stdin is not available for this process")
            with _transported(("write_stdin",)):
                await pty.shell.write(chars)
        milliseconds = 250 if yield_time_s is None else int(yield_time_s * 1000)
        wait = resolve_pty_write_yield_time_ms(
            yield_time_ms=milliseconds, input_empty=not chars
        )
        return await self._update(session_id, pty, wait, max_output_tokens)

    async def pty_terminate_all(self) -> None:
        for number in list(self._ptys):
            await self._end(number)

    async def _update(
        self, number: int, pty: _Pty, wait: int, most: int | None
    ) -> PtyExecUpdate:
        with _transported((pty.shell.command,)):
            output, tokens, is_closed = await pty.collect(wait, most)
        pty.used = time.monotonic()
        if not is_closed:
            return PtyExecUpdate(number, output, None, tokens)
        await self._end(number)
        return PtyExecUpdate(None, output, pty.shell.exit_code, tokens)

    async def _prune(self) -> None:
        if len(self._ptys) > PTY_PROCESSES_MAX:
            oldest = process_id_to_prune_from_meta(
                [(n, pty.used, pty.ended) for n, pty in self._ptys.items()]
            )
            if oldest is not None:
                await self._end(oldest)

    async def _end(self, number: int) -> None:
        pty = self._ptys.pop(number, None)
        self._used_ids.discard(number)
        if pty is not None and self.box.is_open:
            with contextlib.suppress(belljar.BelljarError):
                await pty.shell.kill(0)
                pty.shell.forget()

    async def _resolve_exposed_port(self, port: int) -> ExposedPortEndpoint:
        try:
            address = await self.box.forward(port)
        except belljar.BelljarError as error:
            raise errors.ExposedPortUnavailableError(
                port=port,
                exposed_ports=self.state.exposed_ports,
                reason="backend_unavailable",
                cause=error,
            ) from error
        host, _, number = address.rpartition("//")[2].rpartition(":")
        return ExposedPortEndpoint(host=host, port=int(number), tls=False)

    # Files.

    def _runtime_helpers(self) -> tuple[Any, ...]:
        return (RESOLVE_WORKSPACE_PATH_HELPER,)

    def _current_runtime_helper_cache_key(self) -> object:
        return self.state.sandbox_id

    async def _validate_path_access(
        self, path: Path | str, *, for_write: bool = False
    ) -> Path:
        return cast(
            Path, await self._validate_remote_path_access(path, for_write=for_write)
        )

    async def read(self, path: Path, *, user: Any = None) -> io.IOBase:
        if user is not None:
            await self._check_read_with_exec(path, user=user)
        return io.BytesIO(await self._read(path))

    async def _read_bounded(self, path: Path, *, max_bytes: int) -> bytes:
        return await self._read(path, length=max_bytes)

    async def _read(self, path: Path, **window: Any) -> bytes:
        place = await self._validate_path_access(path)
        try:
            return cast(
                bytes, await self.box.files.read(sandbox_path_str(place), **window)
            )
        except (FileNotFoundError, NotADirectoryError) as error:
            raise errors.WorkspaceReadNotFoundError(path=path, cause=error) from error
        except belljar.BelljarError as error:
            raise errors.WorkspaceArchiveReadError(path=path, cause=error) from error

    async def write(self, path: Path, data: io.IOBase, *, user: Any = None) -> None:
        if user is not None:
            await self._check_write_with_exec(path, user=user)
        payload = coerce_write_payload(path=path, data=data)
        place = await self._validate_path_access(path, for_write=True)
        try:
            file, mode = await boxes.opened_for_writing(
                self.box, sandbox_path_str(place)
            )
            await self.box.files.put(file, _pieces(payload.stream), mode=mode)
        except belljar.BelljarError as error:
            raise errors.WorkspaceArchiveWriteError(path=place, cause=error) from error

    async def persist_workspace(self) -> io.IOBase:
        root = self._workspace_root_path()
        left_out = [
            f"--exclude=./{path.as_posix()}"
            for path in sorted(self._persist_workspace_skip_relpaths())
        ]
        command = ["tar", *left_out, "-C", root.as_posix(), "-cf", "-", "."]
        with contextlib.ExitStack() as on_failure:
            archive = on_failure.enter_context(
                tempfile.SpooledTemporaryFile(max_size=IN_MEMORY)
            )
            try:
                await self._output_of(command, archive)
            except belljar.BelljarError as error:
                raise errors.WorkspaceArchiveReadError(
                    path=posix_path_for_error(root), cause=error
                ) from error
            archive.seek(0)
            on_failure.pop_all()
        return cast(io.IOBase, archive)

    async def _output_of(self, command: list[str], file: IO[bytes]) -> None:
        async with self.box.stream(command) as events:
            async for event in events:
                if isinstance(event, belljar.Output) and event.stream == "stdout":
                    await to_thread.run_sync(file.write, event.data)
        if not events.result.ok:
            raise belljar.BelljarError(
                f"{command[0]}: {events.result.cause}: {events.result.stderr}"
            )

    async def hydrate_workspace(self, data: io.IOBase) -> None:
        root = self._workspace_root_path()
        with tempfile.SpooledTemporaryFile(max_size=IN_MEMORY) as archive:
            try:
                stream = coerce_write_payload(path=root, data=data).stream
                await to_thread.run_sync(shutil.copyfileobj, stream, archive, PIECE)
                await to_thread.run_sync(_check_archive, archive)
                archive.seek(0)
                await self.box.files.mkdir(sandbox_path_str(root))
                command = ["tar", "-C", root.as_posix(), "-xf", "-"]
                result = await self.box.run(command, stdin=_pieces(archive))
            except (
                belljar.BelljarError,
                UnsafeTarMemberError,
                tarfile.TarError,
                OSError,
            ) as error:
                raise errors.WorkspaceArchiveWriteError(
                    path=posix_path_for_error(root), cause=error
                ) from error
        if not result.ok:
            raise errors.WorkspaceArchiveWriteError(
                path=posix_path_for_error(root), context=_streams(result)
            )


def _check_archive(archive: IO[bytes]) -> None:
    archive.seek(0)
    with tarfile.open(fileobj=archive, mode="r:*") as tar:
        validate_tarfile(tar, allow_external_symlink_targets=False)


async def _pieces(stream: Any) -> AsyncIterator[bytes]:
    while piece := await to_thread.run_sync(stream.read, PIECE):
        yield piece


def _streams(result: Any) -> dict[str, object]:
    return {
        "cause": result.cause,
        "exit_code": result.exit_code,
        "stdout": result.stdout,
        "stderr": result.stderr,
    }


@dataclass(frozen=True)
class _Refused:
    text: bytes
    status: int


@contextlib.contextmanager
def _refusals_are_results(command: Sequence[str | Path]) -> Iterator[list[_Refused]]:
    """What a shell would say itself (denied, not found, not executable) goes into the list; the rest is raised."""
    refused: list[_Refused] = []
    with _transported(command):
        try:
            yield refused
        except (belljar.PolicyDenied, CommandNotFound, CommandNotExecutable) as error:
            text = f"{boxes.reason(error)}\n".encode()
            refused.append(_Refused(text, error.exit_status))


@contextlib.contextmanager
def _transported(command: Sequence[str | Path]) -> Iterator[None]:
    """Our errors as the SDK's."""
    try:
        yield
    except belljar.BelljarError as error:
        raise errors.ExecTransportError(
            command=command, cause=error, retryable=False
        ) from error


class BelljarSandboxClient(BaseSandboxClient[BelljarSandboxClientOptions]):
    """Makes sandboxes for the SDK. `host`, `approve`, `audit` and `engine` are those of `belljar.Session`."""

    backend_id = "belljar"
    supports_default_options = True

    def __init__(
        self, *, instrumentation: Any = None, dependencies: Any = None, **live: Any
    ) -> None:
        known(live, {"host", *boxes.LIVE}, "BelljarSandboxClient")
        self._instrumentation = instrumentation or Instrumentation()
        self._dependencies = dependencies
        self._live = live

    async def create(
        self,
        *,
        snapshot: Any = None,
        manifest: Manifest | None = None,
        options: BelljarSandboxClientOptions | None = None,
    ) -> SandboxSession:
        manifest = self._validate_manifest_for_create(
            manifest if manifest is not None else Manifest()
        )
        number = uuid.uuid4()
        state = BelljarSandboxSessionState(
            session_id=number,
            manifest=manifest,
            snapshot=resolve_snapshot(snapshot, str(number)),
            options=options or BelljarSandboxClientOptions(),
            exposed_ports=options.exposed_ports if options else (),
        )
        return self._wrapped(state, await self._open(state))

    async def resume(self, state: SandboxSessionState) -> SandboxSession:
        if not isinstance(state, BelljarSandboxSessionState):
            raise TypeError(
                "BelljarSandboxClient.resume expects a BelljarSandboxSessionState"
            )
        state.assert_path_grants_rebound()
        box = await self._entered(state)
        if box is not None:
            return self._wrapped(state, box, preserved=True)
        state.workspace_root_ready = False
        return self._wrapped(state, await self._open(state))

    async def delete(self, session: SandboxSession) -> SandboxSession:
        inner = session._inner
        if not isinstance(inner, BelljarSandboxSession):
            raise TypeError(
                "BelljarSandboxClient.delete expects a BelljarSandboxSession"
            )
        box = inner.box if inner.box.is_open else await self._entered(inner.state)
        await boxes.closed(box or inner.box)  # a lost one has a workspace to remove
        return session

    def deserialize_session_state(
        self, payload: dict[str, object]
    ) -> SandboxSessionState:
        return self._deserialize_session_state_payload(
            payload, BelljarSandboxSessionState
        )

    async def _open(self, state: BelljarSandboxSessionState) -> Any:
        options = {**state.options.sandbox, **self._live}
        options.setdefault("host", state.options.host)
        mounts = _granted(state.manifest)
        if mounts:
            options["mounts"] = {**dict(options.get("mounts") or {}), **mounts}
        box = await boxes.opened(state.options.workspace, **options)
        state.sandbox_id = box.id
        return box

    async def _entered(self, state: BelljarSandboxSessionState) -> Any:
        """The kept sandbox of this state, if it is there still."""
        if not state.options.sandbox.get("keep"):
            return None
        live = {
            **self._live,
            "host": boxes.host_of(self._live.get("host", state.options.host)),
        }
        try:
            return await belljar.Session.attach(state.sandbox_id, **live)
        except belljar.BelljarError:
            return None

    def _wrapped(
        self, state: BelljarSandboxSessionState, box: Any, *, preserved: bool = False
    ) -> SandboxSession:
        inner = BelljarSandboxSession(state, box)
        inner._set_start_state_preserved(preserved)
        return self._wrap_session(inner, instrumentation=self._instrumentation)


def _granted(manifest: Manifest) -> dict[str, str]:
    """The directories of the host that the manifest grants; Belljar mounts them read-only."""
    grants = [
        grant for grant in manifest.extra_path_grants if grant.host_path is not None
    ]
    if writable := [grant.path for grant in grants if not grant.read_only]:
        raise ValueError(
            f"Belljar mounts directories of the host read-only: read_only=True is needed for {writable}"
        )
    return {grant.path: str(grant.host_path) for grant in grants}


class BelljarShellExecutor:
    """For `ShellTool(executor=BelljarShellExecutor(box))`: the model's commands run in this open session."""

    def __init__(self, box: Any) -> None:
        self.box = box

    async def __call__(self, request: ShellCommandRequest) -> ShellResult:
        action = request.data.action
        timeout = action.timeout_ms / 1000 if action.timeout_ms else None
        output = [await self._one(command, timeout) for command in action.commands]
        return ShellResult(output, max_output_length=action.max_output_length)

    async def _one(self, command: str, timeout: float | None) -> ShellCommandOutput:
        try:
            result = await self.box.run(command, timeout=timeout)
        except belljar.PolicyDenied as denied:
            return ShellCommandOutput(
                "", f"{boxes.reason(denied)}\n", ShellCallOutcome("exit", 126), command
            )
        boxes.there(result)
        kind: Literal["timeout", "exit"] = (
            "timeout" if result.cause == "timeout" else "exit"
        )
        code = None if kind == "timeout" else result.exit_code
        return ShellCommandOutput(
            result.stdout, result.stderr, ShellCallOutcome(kind, code), command
        )
