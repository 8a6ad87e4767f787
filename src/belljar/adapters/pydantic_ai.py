"""Pydantic AI: `BelljarWorkspaceBackend`, the sandbox in which an agent's tools run commands and use files.

    from pydantic_ai import Agent, RunContext
    from belljar.adapters.pydantic_ai import BelljarWorkspaceBackend, attach, destroy

    agent = Agent(model)

    @agent.tool
    async def shell(ctx: RunContext, command: str) -> str:
        done = await ctx.workspace.run(command, shell=True, timeout=60)
        return f"{done.stdout}{done.stderr}[exit {done.exit_code}]"

    backend = BelljarWorkspaceBackend(image="base", limits={"memory": "1g"})
    result = await agent.run("How many cores are there?", workspace=backend)
    again = attach(backend.ref)
    await destroy(again)

The first operation starts the sandbox. It stays until `destroy`, and without a connection for `lease` seconds. What the
policy denies is a command that failed with exit status 126 and says why.
"""

from __future__ import annotations

import asyncio
import math
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import anyio
from pydantic_ai.workspaces import (
    CommandResult,
    FileEntry,
    WorkspaceCommand,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

import belljar
from belljar.adapters import boxes
from belljar.errors import CommandError, SessionNotFound, UsageError
from belljar.layout import WORKSPACE

PROVIDER = "belljar"
LEASE = 3600.0
OUTPUT_MAX = 10 << 20
"""Bytes of both streams of a command; with more it is an error, for what is missing could be what mattered."""
SHOWN = 64 << 10


def attach(ref: WorkspaceRef, **options: Any) -> BelljarWorkspaceBackend:
    """The sandbox that `ref` names, as `Session.attach` enters it: `attach(result.workspace.ref)`."""
    return BelljarWorkspaceBackend(ref=ref, **options)


async def destroy(backend: BelljarWorkspaceBackend) -> None:
    """End the sandbox, if it is still there, and remove the workspace that was made for it."""
    try:
        box = await backend.box()
    except WorkspaceUnavailableError:
        box = backend._box  # of a lost one the workspace is left
    if box is not None:
        await boxes.closed(box)


class BelljarWorkspaceBackend:
    def __init__(
        self,
        workspace: boxes.Workspace = None,
        *,
        ref: WorkspaceRef | None = None,
        host: Any = None,
        lease: float = LEASE,
        **options: Any,
    ) -> None:
        """Nothing is started yet. With `ref` the options are those of `Session.attach`."""
        if ref is not None and ref.provider != PROVIDER:
            raise ValueError(
                f"a workspace of {ref.provider!r} is not one of {PROVIDER!r}"
            )
        boxes.options_of(options)
        self._ref = ref
        self._workspace, self._host = workspace, boxes.host_of(host)
        self._options = {**options, "lease": lease}
        self._box: Any = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._first = anyio.Lock()

    @property
    def ref(self) -> WorkspaceRef | None:
        return self._ref

    async def box(self) -> Any:
        """The `belljar.Session`, opened or entered at the first call."""
        async with self._first:
            if self._box is None or self._loop is not asyncio.get_running_loop():
                with _translated():
                    self._box = await self._opened()
                self._loop = asyncio.get_running_loop()
                self._ref = WorkspaceRef(provider=PROVIDER, id=self._box.id)
        if not self._box.is_open:
            raise WorkspaceUnavailableError("the sandbox is gone")
        return self._box

    async def _opened(self) -> Any:
        if self._ref is None:
            return await boxes.opened(
                self._workspace, host=self._host, **self._options, keep=True
            )
        live = {
            name: self._options[name]
            for name in ("policy", "env", *boxes.LIVE)
            if name in self._options
        }
        return await belljar.Session.attach(self._ref.id, host=self._host, **live)

    async def detach(self) -> None:
        """Leave the sandbox, which runs on for its lease: `await backend.detach()`."""
        box, self._box = self._box, None
        if box is not None:
            await box.close()

    async def working_dir(self) -> str:
        await self.box()
        return WORKSPACE

    # Commands.

    async def run(
        self,
        command: WorkspaceCommand,
        *,
        shell: bool = False,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
    ) -> CommandResult:
        _check(command, shell, timeout)
        box = await self.box()
        try:
            with _translated():
                result = await box.run(
                    command if isinstance(command, str) else list(command),
                    env=env,
                    timeout=timeout,
                    output_limit=OUTPUT_MAX,
                )
                boxes.there(result)
        except (belljar.PolicyDenied, CommandError) as error:
            return CommandResult(
                exit_code=error.exit_status,
                stdout="",
                stderr=f"{boxes.reason(error)}\n",
            )
        if not box.is_open:
            raise WorkspaceUnavailableError("the sandbox ended while the command ran")
        if result.cause == "timeout":
            why = f"the command was killed after {timeout:g} s"
            raise WorkspaceTimeoutError(why, stdout=result.stdout, stderr=result.stderr)
        if result.cause == "output_limit":
            raise WorkspaceOutputLimitError(
                f"the command printed over {OUTPUT_MAX >> 20} MiB; write it to a file and read parts of that",
                limit=OUTPUT_MAX,
                stdout=result.stdout[:SHOWN],
                stderr=result.stderr[:SHOWN],
            )
        return CommandResult(
            exit_code=result.exit_code, stdout=result.stdout, stderr=result.stderr
        )

    # Files.

    async def read_bytes(self, path: str) -> bytes:
        box = await self._box_for(path)
        with _translated():
            data: bytes = await box.files.read(path)
            return data

    async def write_bytes(self, path: str, data: bytes) -> None:
        box = await self._box_for(path)
        with _translated():
            await boxes.write(box, path, data)

    async def stat(self, path: str) -> FileEntry:
        box = await self._box_for(path)
        with _translated():
            return _entry(path, await box.files.stat(path))

    async def list_dir(self, path: str) -> Sequence[FileEntry]:
        box = await self._box_for(path)
        with _translated():
            found = [
                (posixpath.join(path, info.path), info)
                for info in await box.files.list(path)
            ]
            return [await _followed(box, each, info) for each, info in found]

    async def make_dir(self, path: str) -> None:
        box = await self._box_for(path)
        with _translated():
            if (
                await self.exists(path)
                and (await box.files.stat(path)).kind != "directory"
            ):
                raise FileExistsError(path)
            await box.files.mkdir(path)

    async def remove(self, path: str) -> None:
        """A link is removed itself."""
        box = await self._box_for(path)
        above, name = posixpath.split(posixpath.normpath(path))
        place = posixpath.join(await self.realpath(above), name)
        if f"{WORKSPACE}/".startswith(f"{place.rstrip('/')}/"):
            raise ValueError(
                f"{path}: the working directory and what holds it cannot be removed"
            )
        with _translated():
            await box.files.remove(path)

    async def exists(self, path: str) -> bool:
        try:
            await self.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    async def realpath(self, path: str) -> str:
        """As `os.path.realpath`: what is missing stays as it is written."""
        box = await self._box_for(path)
        rest, resolved, links = path.split("/")[::-1], "/", 0
        with _translated():
            while rest:
                part = rest.pop()
                if part in ("", ".", ".."):
                    resolved = posixpath.dirname(resolved) if part == ".." else resolved
                    continue
                place = posixpath.join(resolved, part)
                target = await boxes.link_target(box, place)
                if target is None:
                    resolved = place
                    continue
                links += 1
                if links > boxes.MOST_LINKS:
                    raise boxes.looping(path)
                rest += target.split("/")[::-1]
                resolved = "/" if target.startswith("/") else resolved
        return resolved

    async def _box_for(self, path: str) -> Any:
        if not posixpath.isabs(path):
            raise ValueError(f"path must be absolute, got {path!r}")
        return await self.box()


def _check(command: WorkspaceCommand, shell: bool, timeout: float | None) -> None:
    if isinstance(command, str) != shell:
        raise TypeError("text needs shell=True, and an argument vector shell=False")
    if timeout is not None and not (math.isfinite(timeout) and timeout > 0):
        raise ValueError("timeout must be a positive finite number or None")


def _entry(path: str, info: Any) -> FileEntry:
    is_file = info.kind == "file"
    return FileEntry(
        name=posixpath.basename(posixpath.normpath(path)),
        path=path,
        is_dir=info.kind == "directory",
        size=info.size if is_file else None,
    )


async def _followed(box: Any, path: str, info: Any) -> FileEntry:
    """An entry of a directory; where a link leads nowhere, itself."""
    try:
        return _entry(path, await box.files.stat(path) if info.kind == "link" else info)
    except OSError:
        return _entry(path, info)


@contextmanager
def _translated() -> Iterator[None]:
    """Belljar's errors as Pydantic AI's own. Those of files are already Python's."""
    try:
        yield
    except (SessionNotFound, belljar.SandboxLost) as gone:
        raise WorkspaceUnavailableError(str(gone)) from gone
    except UsageError as wrong:
        raise ValueError(str(wrong)) from wrong
