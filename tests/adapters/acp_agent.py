"""An agent for the tests of the ACP adapter, as a process of its own: it does what its prompt says, line by line.

run WORD…     a terminal with these arguments; says its output and its end
text LINE     a terminal with a whole line
write PATH TEXT, read PATH, ask COMMAND
"""

from __future__ import annotations

import asyncio
from typing import Any

from acp import (
    Agent,
    InitializeResponse,
    NewSessionResponse,
    PromptResponse,
    RequestError,
    run_agent,
)
from acp import update_agent_message_text as message
from acp.schema import PermissionOption, ToolCallUpdate

OPTIONS = [
    PermissionOption(option_id="always", name="Always", kind="allow_always"),
    PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
    PermissionOption(option_id="no", name="No", kind="reject_once"),
]


class Scripted(Agent):
    def on_connect(self, conn: Any) -> None:
        self.client = conn

    async def initialize(
        self, protocol_version: int, client_capabilities: Any = None, **_: Any
    ) -> InitializeResponse:
        assert client_capabilities.terminal
        assert client_capabilities.fs.write_text_file
        return InitializeResponse(protocol_version=protocol_version)

    async def new_session(self, cwd: str, **_: Any) -> NewSessionResponse:
        self.cwd = cwd
        return NewSessionResponse(session_id="one")

    async def prompt(
        self, session_id: str, prompt: list[Any], **_: Any
    ) -> PromptResponse:
        for line in prompt[0].text.splitlines():
            what, _, rest = line.partition(" ")
            try:
                said = await getattr(self, what)(session_id, rest)
            except RequestError as error:
                said = f"error {error.code} {error.data}"
            await self.client.session_update(session_id, message(f"{what}: {said}"))
        return PromptResponse(stop_reason="end_turn")

    async def run(self, session: str, rest: str) -> str:
        command, *args = rest.split(" ")
        return await self._terminal(session, command=command, args=args)

    async def text(self, session: str, rest: str) -> str:
        return await self._terminal(session, command=rest)

    async def _terminal(self, session: str, **what: Any) -> str:
        made = await self.client.create_terminal(
            session_id=session, cwd=self.cwd, **what
        )
        ended = await self.client.wait_for_terminal_exit(
            session_id=session, terminal_id=made.terminal_id
        )
        seen = await self.client.terminal_output(
            session_id=session, terminal_id=made.terminal_id
        )
        await self.client.release_terminal(
            session_id=session, terminal_id=made.terminal_id
        )
        return f"{seen.output}[{ended.exit_code}]"

    async def write(self, session: str, rest: str) -> str:
        path, _, text = rest.partition(" ")
        await self.client.write_text_file(
            session_id=session, path=path, content=f"{text}\n"
        )
        return "written"

    async def read(self, session: str, rest: str) -> str:
        return (await self.client.read_text_file(session_id=session, path=rest)).content

    async def ask(self, session: str, rest: str) -> str:
        call = ToolCallUpdate(
            tool_call_id="1", title="Run", kind="execute", raw_input={"command": rest}
        )
        answer = await self.client.request_permission(
            session_id=session, tool_call=call, options=OPTIONS
        )
        return getattr(answer.outcome, "option_id", "cancelled")


if __name__ == "__main__":
    asyncio.run(run_agent(Scripted()))
