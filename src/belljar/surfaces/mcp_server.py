"""The MCP server: one session, the tool registry in front of it, and the SDK's protocol in front of that.

The session is opened by the first call and shared by all of them; each call is a task of the SDK. A call that
the client cancels is cancelled here, which kills its command. When the client is gone the SDK ends the calls,
then the server's life ends, and the sandbox goes with everything in it.
"""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import anyio
import mcp_types as types
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from belljar import Limits, Policy, Session, ToolRegistry, __version__
from belljar.errors import BelljarError
from belljar.surfaces.mcp_call import Call, Progress, Unanswered, approve, current
from belljar.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from belljar.tools import ToolResult
    from mcp.server.context import ServerRequestContext

    from belljar.spec import Network

READING = ("BashOutput", "ListShells")
ENDING = ("KillShell",)

log = logging.getLogger("belljar.mcp")

Answer = types.CallToolResult | types.InputRequiredResult


@dataclass(frozen=True)
class Settings:
    workspace: str
    policy: Policy
    image: str = "base"
    network: Network = "none"
    families: tuple[str, ...] = ("bash",)
    limits: Limits = field(default_factory=Limits)


class SharedSession:
    """The server's one session: opened when first needed, and again after its sandbox was lost."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._opening = anyio.Lock()
        self._session: Session | None = None

    async def get(self) -> Session:
        async with self._opening:
            if self._session is not None and not self._session.is_open:
                await self.close()
            if self._session is None:
                self._session = await self._open()
            return self._session

    async def _open(self) -> Session:
        wanted = self._settings
        return await Session(
            wanted.workspace,
            image=wanted.image,
            limits=wanted.limits,
            policy=wanted.policy,
            network=wanted.network,
            approve=approve,
        ).open()

    async def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()


class Service:
    """What answers a client: the list of tools, and their calls."""

    def __init__(self, settings: Settings) -> None:
        self.session = SharedSession(settings)
        self._tools = {tool.name: tool for tool in describe(settings)}
        self.server: Server[None] = Server(
            "belljar",
            version=__version__,
            title="Belljar sandbox",
            description="Runs commands in a container with the workspace mounted and a policy in front.",
            instructions=instruct(settings),
            lifespan=self._life,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        seal = RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience="belljar")
        self.server.middleware.append(seal)

    @asynccontextmanager
    async def _life(self, _: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.session.close()

    async def _list(self, _: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(self._tools.values()))

    async def _call(self, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> Answer:
        if params.name not in self._tools:
            known = ", ".join(self._tools)
            raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {params.name}; there are {known}")
        current.set(Call(context, params))
        progress = Progress(context.session)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(progress.pump)
            answer = await self._answer(params, progress)
            tasks.cancel_scope.cancel()
        return answer

    async def _answer(self, params: types.CallToolRequestParams, progress: Progress) -> Answer:
        try:
            registry = ToolRegistry(await self.session.get())
            return _reply(await registry.call(params.name, params.arguments or {}, on_output=progress.add))
        except Unanswered as question:
            return question.as_result()
        except BelljarError as failure:
            return _failed(failure)


def _reply(result: ToolResult) -> types.CallToolResult:
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=result.content)],
        structured_content=result.as_dict(),
        is_error=not result.success,
    )


def _failed(failure: BelljarError) -> types.CallToolResult:
    """Our failure, not the command's: told in the result, where the model can act on it."""
    log.error("call failed: %s: %s", failure.code, failure)
    text = types.TextContent(type="text", text=str(failure))
    return types.CallToolResult(content=[text], structured_content=failure.as_dict(), is_error=True)


def describe(settings: Settings) -> list[types.Tool]:
    schemas = ToolRegistry(None).schemas("mcp")
    return [types.Tool(**schema, annotations=annotate(schema["name"], settings)) for schema in schemas]


def annotate(name: str, settings: Settings) -> types.ToolAnnotations:
    """True of this very sandbox: the workspace is writable, and the world as open as its network."""
    if name in READING:
        return types.ToolAnnotations(read_only_hint=True, open_world_hint=False)
    return types.ToolAnnotations(
        read_only_hint=False,
        destructive_hint=True,
        idempotent_hint=name in ENDING,
        open_world_hint=settings.network != "none",
    )


def instruct(settings: Settings) -> str:
    """What the model should know before its first command."""
    limits = settings.limits
    with Workspace.open(settings.workspace) as workspace:
        directory = workspace.path
    network = "There is no network" if settings.network == "none" else "The network can be reached"
    return (
        "Commands run in a Belljar sandbox: a Linux container of its own, not the user's machine. The directory "
        f"{directory} is mounted at /workspace, the working directory: what you change there is real and "
        "stays. Everything else is read-only or gone when the session ends; /tmp and the home directory are "
        f"scratch. {network}. Limits: {limits.memory >> 20} MiB of memory, {limits.cpus:g} CPU, "
        f"{limits.pids} processes. A policy ({settings.policy.name}) judges each command before it runs. A "
        "denied command says why and what to do instead: do that, don't disguise the command. Some commands "
        "wait for the user's approval."
    )
