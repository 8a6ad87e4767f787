"""The MCP server: the SDK speaks the protocol, the tool registry makes the calls, one session runs them.

The first call opens the session, and all calls share it; each call is a task of the SDK. If the client cancels a call,
its command is killed. When the client is gone the SDK ends the calls and then the server, and the sandbox is removed.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel.server import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.shared.exceptions import MCPError

from belljar import Session, ToolRegistry, __version__
from belljar.engines.spec import Network
from belljar.errors import BelljarError, SandboxLost
from belljar.surfaces.mcp.call import Call, Calls, Progress, Unanswered, client_of
from belljar.surfaces.mcp.structured import once, output_schema
from belljar.tools import ToolResult
from belljar.tools.base import Tool, surroundings

log = logging.getLogger("belljar.mcp")


Answer = types.CallToolResult | types.InputRequiredResult


class Sandboxed:
    """The server's session and its tools. The session is opened when it is first needed, and again if it is lost. Then
    each client's next call is not made, and says what was lost: the model would go on as if it were still there."""

    def __init__(
        self,
        new_session: Callable[[], Session],
        families: tuple[str, ...],
        ended: Callable[[str], None],
    ) -> None:
        self._new_session, self._ended = new_session, ended
        self._families = families
        self._opening = anyio.Lock()
        self.session, self._id = new_session(), ""
        self._tools = ToolRegistry(families=families)
        self._loss = ""
        """What the last loss took, for who has not been told yet."""
        self._to_tell: WeakSet[Connection] = WeakSet()
        self._clients: WeakSet[Connection] = WeakSet()

    async def tools(self, client: Connection) -> ToolRegistry:
        async with self._opening:
            self._clients.add(client)
            if not self.session.is_open:
                await self._open_anew(client)
            if client in self._to_tell:
                self._to_tell.discard(client)
                raise SandboxLost(self._loss)
            return self._tools

    async def _open_anew(self, client: Connection) -> None:
        if self._id:
            self._loss = lost(self.session)
            self._to_tell.update(self._clients)
        await self.session.close()
        self._report_staged()
        self.session = await self._new_session().open()
        self._id = self.session.id
        self._tools = ToolRegistry(self.session, families=self._families)

    def failed(self, name: str, failure: BelljarError) -> ToolResult:
        """An error of Belljar's as a result of the tool, so that the model can act on it."""
        return self._tools.get(name).fail(str(failure), code=failure.code)

    def describe(self) -> list[types.Tool]:
        network = self.session.network
        return [
            types.Tool(
                **schema,
                annotations=annotate(self._tools.get(schema["name"]), network),
                output_schema=output_schema(schema["name"]),
            )
            for schema in self._tools.schemas("mcp")
        ]

    async def close(self) -> None:
        with anyio.CancelScope(shield=True):
            async with self._opening:
                await self.session.close()
                self._report_staged()

    def _report_staged(self) -> None:
        """Tell the operator, on stderr, where to find what an ended session changed."""
        if self.session.is_staged and self._id:
            self._ended(self._id)


class Service:
    """Answers a client: lists the tools and makes their calls."""

    def __init__(
        self,
        new_session: Callable[..., Session],
        project: str,
        families: tuple[str, ...],
        ended: Callable[[str], None] = lambda id: None,
    ) -> None:
        """`new_session` takes the session's `approve`; `project` says where the workspace is. `ended`: called with the
        id of a staged session that has ended, to tell the operator where its changes are."""
        self._calls = Calls()
        self.sandboxed = Sandboxed(
            partial(new_session, approve=self._calls.approve), families, ended
        )
        self._tools = {tool.name: tool for tool in self.sandboxed.describe()}
        self.server: Server[None] = Server(
            "belljar",
            version=__version__,
            title="Belljar sandbox",
            description="Runs commands in a container with the workspace mounted and a policy in front.",
            instructions=instruct(self.sandboxed.session, project),
            lifespan=self._life,
            on_list_tools=self._list,
            on_call_tool=self._call,
        )
        seal = RequestStateBoundary(
            RequestStateSecurity.ephemeral(), default_audience="belljar"
        )
        self.server.middleware.append(seal)

    @asynccontextmanager
    async def _life(self, _: Server[None]) -> AsyncIterator[None]:
        try:
            yield
        finally:
            await self.sandboxed.close()

    async def _list(
        self, _: Any, __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=list(self._tools.values()))

    async def _call(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> Answer:
        if params.name not in self._tools:
            known = ", ".join(self._tools)
            raise MCPError(
                types.INVALID_PARAMS, f"Unknown tool: {params.name}; there are {known}"
            )
        progress = Progress(context.session)
        with self._calls.begun(Call(context, params)):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(progress.pump)
                answer = await self._answer(client_of(context), params, progress)
                tasks.cancel_scope.cancel()
        return answer

    async def _answer(
        self,
        client: Connection,
        params: types.CallToolRequestParams,
        progress: Progress,
    ) -> Answer:
        try:
            tools = await self.sandboxed.tools(client)
            return _reply(
                await tools.call(params.name, params.arguments, on_output=progress.add)
            )
        except Unanswered as question:
            return question.as_result()
        except BelljarError as failure:
            log.error("call failed: %s: %s", failure.code, failure)
            return _reply(self.sandboxed.failed(params.name, failure))


def _reply(result: ToolResult) -> types.CallToolResult:
    """The text is never empty: some model APIs refuse that."""
    text = result.text or "(no output)"
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=text)],
        structured_content=once(result.as_dict(), text),
        is_error=not result.success,
    )


def annotate(tool: Tool, network: Network) -> types.ToolAnnotations:
    """MCP's hints about a tool, for this sandbox: its workspace is writable, and it may have a network."""
    return types.ToolAnnotations(
        read_only_hint=tool.does == "reads",
        destructive_hint=tool.does in ("changes", "kills"),
        idempotent_hint=tool.does in ("lists", "kills"),
        open_world_hint=network != "none" and tool.does == "changes",
    )


def lost(session: Session) -> str:
    """What a model must know after its sandbox was lost."""
    shells = [shell.id for shell in session.shells() if shell.status == "running"]
    gone = [
        "everything in /tmp and the home directory",
        "the shell's directory, variables and functions",
    ]
    gone += [f"the background shells {', '.join(shells)}"] if shells else []
    kept = "The files in /workspace are still there."
    if session.is_staged:
        kept = f"Its changes of /workspace are kept for the user, who can apply them (session {session.id})."
        gone.append("the changes of /workspace, which is the user's again")
    return (
        f"The sandbox was lost ({session.why_lost}), and a new one is running. Gone: {'; '.join(gone)}. "
        f"{kept} This call was not made: look at what is there, then repeat it if it still makes sense."
    )


def of_the_user(directory: str) -> str:
    """Quoted: whoever named the directory does not speak to the model."""
    return f"the directory {directory!r} of the user's machine"


def instruct(session: Session, project: str) -> str:
    """What the model should know before its first command. `project`: where the workspace is."""
    tools = " list_changes and diff_changes show what is kept aside, apply_changes asks the user to apply it."
    staged = tools if session.is_staged else ""
    return (
        f"{surroundings(session)} The project is {project}.{staged} A denied "
        "command says why and what to do instead: do that, don't disguise the command. Some commands wait for the "
        "user's approval."
    )
