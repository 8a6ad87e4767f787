"""ACP, the Agent Client Protocol: `BelljarClient`, the editor's side, whose terminals and files are a sandbox's.

    from acp import PROTOCOL_VERSION, spawn_agent_process, text_block
    from belljar.adapters.acp import CAPABILITIES, BelljarClient

    async with BelljarClient.opened(project, image="base", updates=updates) as client:
        async with spawn_agent_process(client, *agent) as (connection, _):
            await connection.initialize(PROTOCOL_VERSION, client_capabilities=CAPABILITIES)
            session = await connection.new_session(cwd="/workspace", mcp_servers=[])
            done = await connection.prompt(session_id=session.session_id, prompt=[text_block("Fix the failing test.")])

The agent itself is a process of this machine, and so are tools of its own: only what it asks of the client
(`terminal/*`, `fs/*`) is in the sandbox. Therefore `request_permission` asks `approve`, and nothing is allowed without
it. What the policy denies is a terminal that ended with exit status 126 and says why.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from inspect import isawaitable
from typing import Any

from acp import RequestError
from acp.schema import (
    AllowedOutcome,
    ClientCapabilities,
    CreateTerminalResponse,
    DeniedOutcome,
    EnvVariable,
    FileSystemCapabilities,
    KillTerminalResponse,
    PermissionOption,
    ReadTextFileResponse,
    ReleaseTerminalResponse,
    RequestPermissionResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitResponse,
    WriteTextFileResponse,
)

import belljar
from belljar.adapters import boxes
from belljar.errors import CommandError, UsageError
from belljar.layout import WORKSPACE
from belljar.policy.verdict import Finding
from belljar.session.judging import judged

CAPABILITIES = ClientCapabilities(
    fs=FileSystemCapabilities(read_text_file=True, write_text_file=True),
    terminal=True,
)
RING_MIN, RING_MAX = 4 << 10, 64 << 20
"""How many bytes a sandbox can keep of a background shell's output."""
_LINE = re.compile(r"[^\n]*\n|[^\n]+\Z")
CONTINUES = range(0x80, 0xC0)
"""Bytes that go on with a UTF-8 character."""


class BelljarClient:
    def __init__(
        self, box: Any, updates: Callable[[str, Any], Any] | None = None
    ) -> None:
        """`updates(session_id, update)` gets what the agent says and does; it may be a coroutine function."""
        self.box = box
        self._updates = updates
        self._terminals: dict[tuple[str, str], Terminal] = {}

    @classmethod
    @asynccontextmanager
    async def opened(
        cls,
        workspace: boxes.Workspace = None,
        *,
        host: Any = None,
        updates: Callable[[str, Any], Any] | None = None,
        **options: Any,
    ) -> AsyncIterator[BelljarClient]:
        """A client with a sandbox of its own: the options of `belljar.Session`, `approve=` among them."""
        box = await boxes.opened(workspace, host=host, **options)
        try:
            yield cls(box, updates)
        finally:
            await boxes.closed(box)

    def on_connect(self, conn: Any) -> None: ...

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        told = self._updates(session_id, update) if self._updates is not None else None
        if isawaitable(told):
            await told

    async def request_permission(
        self,
        session_id: str,
        tool_call: ToolCallUpdate,
        options: list[PermissionOption],
        **_: Any,
    ) -> RequestPermissionResponse:
        try:
            await self.box.ask(await self._question(tool_call))
        except belljar.PolicyDenied:
            return _answered(options, "reject_once")
        return _answered(options, "allow_once")

    async def _question(self, call: ToolCallUpdate) -> belljar.Verdict:
        """What the agent wants to do, as the policy sees it. PolicyDenied if it may not, whoever is asked."""
        given = call.raw_input if isinstance(call.raw_input, dict) else {}
        command = given.get("command")
        reason = f"The agent asks for permission: {call.title or call.kind or 'a tool call'}."
        if command and isinstance(command, str | list):
            verdict = await judged(self.box.policy, command)
            if verdict.decision == "deny":
                raise belljar.PolicyDenied(verdict)
            return replace(verdict, decision="ask", reason=f"{reason} {verdict.reason}")
        what = f"{call.title or call.kind or 'tool call'}\n{json.dumps(given, indent=2, default=str)}"
        finding = Finding("acp.permission", "ask", "high", reason)
        digest = hashlib.sha256(what.encode("utf-8", "surrogateescape")).hexdigest()
        return belljar.Verdict(
            "ask", "high", reason, (finding,), what, digest, self.box.policy.name
        )

    # Terminals.

    async def create_terminal(
        self,
        session_id: str,
        command: str,
        args: list[str] | None = None,
        env: list[EnvVariable] | None = None,
        cwd: str | None = None,
        output_byte_limit: int | None = None,
        **_: Any,
    ) -> CreateTerminalResponse:
        """Without arguments the command is text for bash: agents put whole lines there."""
        most = RING_MAX if output_byte_limit is None else output_byte_limit
        ring = None if output_byte_limit is None else min(max(most, RING_MIN), RING_MAX)
        variables = {each.name: each.value for each in env or ()}
        words = [command, *args] if args else command
        try:
            place = None if cwd is None else self._place(cwd)
            shell = await self.box.start(
                words, ring=ring, cwd=place, env=variables, combined=True
            )
        except (belljar.PolicyDenied, CommandError) as error:
            terminal = Terminal(
                None, most, f"{boxes.reason(error)}\n", error.exit_status
            )
        except UsageError as error:
            raise RequestError.invalid_params({"message": str(error)}) from error
        else:
            shell.close_input()
            terminal = Terminal(shell, most)
        id = (
            shell.id if terminal.shell is not None else f"denied_{len(self._terminals)}"
        )
        self._terminals[session_id, id] = terminal
        return CreateTerminalResponse(terminal_id=id)

    async def terminal_output(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> TerminalOutputResponse:
        return await self._terminal(session_id, terminal_id).output()

    async def wait_for_terminal_exit(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> WaitForTerminalExitResponse:
        ended = await self._terminal(session_id, terminal_id).ended()
        return WaitForTerminalExitResponse(
            exit_code=ended.exit_code, signal=ended.signal
        )

    async def kill_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> KillTerminalResponse:
        await self._terminal(session_id, terminal_id).kill()
        return KillTerminalResponse()

    async def release_terminal(
        self, session_id: str, terminal_id: str, **_: Any
    ) -> ReleaseTerminalResponse:
        terminal = self._terminal(session_id, terminal_id)
        await terminal.kill()
        terminal.forget()
        del self._terminals[session_id, terminal_id]
        return ReleaseTerminalResponse()

    def _terminal(self, session_id: str, terminal_id: str) -> Terminal:
        try:
            return self._terminals[session_id, terminal_id]
        except KeyError:
            raise RequestError.resource_not_found(terminal_id) from None

    # Files.

    async def read_text_file(
        self,
        session_id: str,
        path: str,
        line: int | None = None,
        limit: int | None = None,
        **_: Any,
    ) -> ReadTextFileResponse:
        place = self._place(path)
        with _translated(path):
            await self.box.admit(["cat", "--", place])
            text = (await self.box.files.read(place)).decode()
        if line is None and limit is None:
            return ReadTextFileResponse(content=text)
        lines = _LINE.findall(text)[max((line or 1) - 1, 0) :]
        return ReadTextFileResponse(content="".join(lines[:limit]))

    async def write_text_file(
        self, session_id: str, path: str, content: str, **_: Any
    ) -> WriteTextFileResponse:
        place = self._place(path)
        with _translated(path):
            await self.box.admit(
                ["tee", "--", place], question=f"write {place}:\n{content}"
            )
            await boxes.write(self.box, place, content)
        return WriteTextFileResponse()

    def _place(self, path: str) -> str:
        """Where it is in the sandbox. An agent may know the workspace by its path on this machine."""
        if not posixpath.isabs(path):
            raise RequestError.invalid_params(
                {"message": f"{path!r} is not an absolute path"}
            )
        plain, here = (
            posixpath.normpath(path),
            posixpath.normpath(self.box.options.workspace),
        )
        return (
            posixpath.join(WORKSPACE, plain[len(here) + 1 :])
            if f"{plain}/".startswith(f"{here}/")
            else plain
        )

    async def ext_method(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        raise RequestError.method_not_found(method)

    async def ext_notification(self, method: str, params: dict[str, Any]) -> None: ...


class Terminal:
    """A command in the background, or one that never ran: then its text says why."""

    def __init__(self, shell: Any, most: int, text: str = "", status: int = 0) -> None:
        self.shell = shell
        self._most = most
        self._text = text
        self._status = status

    async def output(self) -> TerminalOutputResponse:
        """The newest of what it printed."""
        if self.shell is None:
            return TerminalOutputResponse(
                output=self._text, truncated=False, exit_status=await self.ended()
            )
        data, position, is_cut = bytearray(), 0, False
        while True:
            chunk = await self.shell.read(offset=position)
            if chunk.dropped[0]:
                data, is_cut = bytearray(), True
            data += chunk.stdout_bytes
            if not chunk.stdout_bytes:
                break
            position = chunk.next[0]
        over = max(len(data) - self._most, 0)
        is_cut = is_cut or over > 0
        while is_cut and over < len(data) and data[over] in CONTINUES:
            over += 1
        return TerminalOutputResponse(
            output=data[over:].decode("utf-8", "replace"),
            truncated=is_cut,
            exit_status=None if self.shell.status == "running" else await self.ended(),
        )

    async def ended(self) -> TerminalExitStatus:
        if self.shell is None:
            return TerminalExitStatus(exit_code=self._status)
        result = boxes.there(await self.shell.wait())
        if result.signal is None:
            return TerminalExitStatus(exit_code=result.exit_code)
        return TerminalExitStatus(signal=signal.Signals(result.signal).name)

    async def kill(self) -> None:
        if self.shell is not None:
            await self.shell.kill()

    def forget(self) -> None:
        if self.shell is not None:
            self.shell.forget()


def _answered(options: list[PermissionOption], kind: str) -> RequestPermissionResponse:
    """The option of this kind; "always" is never chosen, for then the agent would not ask again."""
    for option in options:
        if option.kind == kind:
            return RequestPermissionResponse(
                outcome=AllowedOutcome(outcome="selected", option_id=option.option_id)
            )
    return RequestPermissionResponse(outcome=DeniedOutcome(outcome="cancelled"))


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise RequestError.resource_not_found(path) from None
    except (belljar.PolicyDenied, OSError, UsageError, UnicodeDecodeError) as error:
        message = (
            boxes.reason(error)
            if isinstance(error, belljar.BelljarError)
            else f"{path}: {error}"
        )
        raise RequestError.invalid_params({"message": message}) from error
