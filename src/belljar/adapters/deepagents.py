"""Deep Agents: `BelljarSandbox`, the backend in which an agent runs commands and has its files.

    from deepagents import create_deep_agent
    from belljar.adapters.deepagents import BelljarSandbox

    with BelljarSandbox(image="base", limits={"memory": "1g"}) as sandbox:
        agent = create_deep_agent(model=model, backend=sandbox.with_artifacts())
        result = agent.invoke({"messages": [{"role": "user", "content": "Write a haiku to /workspace/haiku.txt"}]})
        (haiku,) = sandbox.download_files(["/workspace/haiku.txt"])

`with_artifacts` lets it keep what is too long for the model in files below /tmp; else that stays in the conversation.
Deep Agents' file tools need python3, GNU find and grep in the image; ours have them. `dcode --sandbox belljar` finds
`BelljarSandboxProvider`. What the policy denies is a command that failed with exit status 126 and says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from typing import Any, Self

from deepagents.backends.composite import CompositeBackend
from deepagents.backends.protocol import (
    FILE_NOT_FOUND,
    INVALID_PATH,
    IS_DIRECTORY,
    PERMISSION_DENIED,
    ExecuteResponse,
    FileDownloadResponse,
    FileUploadResponse,
)
from deepagents.backends.sandbox import BaseSandbox

import belljar
from belljar.adapters import boxes
from belljar.errors import CommandError, SessionNotFound, UsageError
from belljar.host import default
from belljar.layout import WORKSPACE
from belljar.sync.loop import Loop

try:  # Deep Agents Code is a package of its own
    from deepagents_code.integrations.sandbox_provider import (
        SandboxInstallHint,
        SandboxNotFoundError,
        SandboxProvider,
        SandboxProviderMetadata,
    )
except ImportError:
    SandboxProvider, SandboxNotFoundError = object, SessionNotFound

TIMEOUT = 1800
LEASE = 3600.0
MISSING = """
command -v python3 >/dev/null || echo python3
find / -maxdepth 0 -printf '' 2>/dev/null || echo 'GNU find'
grep --include=x -qs x /dev/null; [ $? -le 1 ] || echo 'GNU grep'
"""
"""Prints what Deep Agents needs in an image, and is not there."""


class BelljarSandbox(BaseSandbox):
    def __init__(
        self,
        workspace: boxes.Workspace = None,
        *,
        host: Any = None,
        timeout: int = TIMEOUT,
        **options: Any,
    ) -> None:
        """Starts the sandbox. `timeout`: seconds for a command that names none."""
        self._enter(timeout, boxes.opened, workspace, host=host, **options)
        try:
            self._check_programs()
        except BaseException:
            self.close()
            raise

    def _check_programs(self) -> None:
        """Without them a listing would be empty, not an error."""
        with contextlib.suppress(belljar.PolicyDenied):
            missing = self._loop.call(self.box.run, MISSING).stdout.splitlines()
            if missing:
                raise UsageError(
                    f"the image has no {', '.join(missing)}: Deep Agents makes its file tools with them"
                )

    @classmethod
    def attach(
        cls, id: str, *, host: Any = None, timeout: int = TIMEOUT, **options: Any
    ) -> Self:
        """A sandbox that is there already, as `Session.attach` enters it."""
        sandbox = cls.__new__(cls)
        sandbox._enter(
            timeout, belljar.Session.attach, id, host=boxes.host_of(host), **options
        )
        return sandbox

    def _enter(self, timeout: int, how: Any, *arguments: Any, **options: Any) -> None:
        self._timeout = timeout
        self._loop = Loop(default())
        self.box, self._home = self._loop.call(
            boxes.entered, how, *arguments, **options
        )
        """The `belljar.Session`, and the event loop of blocking callers that it is in."""

    def close(self) -> None:
        """End the sandbox, and remove the workspace that was made for it."""
        self._loop.call(boxes.closed, self.box)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def id(self) -> str:
        return str(self.box.id)

    def with_artifacts(self, root: str = "/tmp") -> CompositeBackend:
        """This sandbox as a backend whose own files (long results, histories) are below `root`."""
        return CompositeBackend(default=self, routes={}, artifacts_root=root)

    # Commands.

    def execute(self, command: str, *, timeout: int | None = None) -> ExecuteResponse:
        return self._loop.call(self._execute, command, timeout)

    async def aexecute(
        self, command: str, *, timeout: int | None = None
    ) -> ExecuteResponse:
        """Cancelled, it kills the command."""
        return await asyncio.wrap_future(
            asyncio.run_coroutine_threadsafe(
                self._execute(command, timeout), self._home
            )
        )

    async def _execute(self, command: str, timeout: int | None) -> ExecuteResponse:
        seconds = self._timeout if timeout is None else timeout
        try:
            result = await self.box.run(command, timeout=seconds or None, combined=True)
        except (belljar.PolicyDenied, CommandError, UsageError) as error:
            return ExecuteResponse(
                output=boxes.reason(error), exit_code=error.exit_status
            )
        output = boxes.there(result).stdout
        if result.cause != "exited":
            output = f"{output}\n[{_end(result, seconds)}]".lstrip("\n")
        return ExecuteResponse(
            output=output, exit_code=result.exit_code, truncated=result.truncated
        )

    # Files.

    def upload_files(self, files: list[tuple[str, bytes]]) -> list[FileUploadResponse]:
        return [
            FileUploadResponse(
                path=path, error=self._attempt(self._upload, path, data)[1]
            )
            for path, data in files
        ]

    def download_files(self, paths: list[str]) -> list[FileDownloadResponse]:
        found = [(path, *self._attempt(self._download, path)) for path in paths]
        return [
            FileDownloadResponse(path=path, content=content, error=error)
            for path, content, error in found
        ]

    async def _upload(self, path: str, data: bytes) -> None:
        await boxes.write(self.box, path, data)

    async def _download(self, path: str) -> bytes:
        data: bytes = await self.box.files.read(path)
        return data

    def _attempt(self, what: Any, path: str, *more: Any) -> tuple[Any, str | None]:
        """What it returned, or why it could not be done."""
        if not posixpath.isabs(path):
            return None, INVALID_PATH
        try:
            return self._loop.call(what, path, *more), None
        except UsageError:
            return None, INVALID_PATH
        except OSError as error:
            known = (code for kind, code in _CODES if isinstance(error, kind))
            return None, next(known, str(error))


_CODES = (
    (FileNotFoundError, FILE_NOT_FOUND),
    (IsADirectoryError, IS_DIRECTORY),
    (NotADirectoryError, INVALID_PATH),
    (PermissionError, PERMISSION_DENIED),
)


def _end(result: belljar.Result, seconds: int) -> str:
    if result.cause == "timeout":
        return f"timed out after {seconds} s and was killed"
    return f"ended: {result.cause.replace('_', ' ')}"


class BelljarSandboxProvider(SandboxProvider):
    """For Deep Agents Code. `params` of its configuration are options of a session."""

    @property
    def metadata(self) -> Any:
        hint = SandboxInstallHint("package", "belljar-sandbox[deepagents]")
        return SandboxProviderMetadata("belljar", WORKSPACE, hint)

    def get_or_create(
        self, *, sandbox_id: str | None = None, **params: Any
    ) -> BelljarSandbox:
        if sandbox_id is None:
            return BelljarSandbox(**{"lease": LEASE, **params, "keep": True})
        try:
            return BelljarSandbox.attach(sandbox_id)
        except SessionNotFound as error:
            raise SandboxNotFoundError(str(error)) from error

    def delete(self, *, sandbox_id: str, **_: Any) -> None:
        self.get_or_create(sandbox_id=sandbox_id).close()
