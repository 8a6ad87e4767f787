"""One `tools/call`: its output goes to the client while it runs, the policy's question to the person there.

How a person is asked depends on the protocol's era. Up to 2025-11-25 the server sends `elicitation/create` in
the middle of the call. Since 2026-07-28 a server may not send requests: the call ends at once with the question
as its result, and the client makes the same call again with the answer, which a sealed state binds to the
verdict's digest. Nothing has run by then, so the second call is judged from the start.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from contextvars import ContextVar
from typing import Any

import anyio
import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from belljar.policy import Verdict
from belljar.session.result import Output
from belljar.surfaces import words
from belljar.surfaces.cli import render

PROGRESS_SECONDS = 0.05
"""Two notifications of one call are never closer together than this."""
PROGRESS_CHARACTERS = 8192
"""The newest text that one notification carries; the result has all of it."""
QUESTION = "approve"
LONGEST_SHOWN = 20_000
"""A person can't approve what they can't see."""

current: ContextVar[Call | None] = ContextVar("belljar.mcp.call", default=None)
running: list[Call] = []
"""The newest last."""


async def approve(verdict: Verdict) -> bool | None:
    """The session's `approve`: asks whoever is behind the call that led to this verdict. A host that a command wants
    to reach comes up in the middle, in a task that belongs to no call: whoever made the newest one is asked."""
    call = current.get()
    if call in running:
        return await call.approve(verdict)
    return await running[-1].ask_during_call(verdict) if running else None


class Unanswered(Exception):
    """The client has to be asked, and answers with a new call."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict

    def as_result(self) -> types.InputRequiredResult:
        asking = types.ElicitRequestFormParams(message=question(self.verdict), requested_schema=form(self.verdict))
        return types.InputRequiredResult(
            input_requests={QUESTION: types.ElicitRequest(params=asking)}, request_state=self.verdict.digest
        )


class Call:
    def __init__(self, context: ServerRequestContext[Any], params: types.CallToolRequestParams) -> None:
        self._context = context
        self._params = params

    async def approve(self, verdict: Verdict) -> bool | None:
        """None where nobody can be asked."""
        if not self._can_ask() or len(verdict.canonical) > LONGEST_SHOWN:
            return None
        if self._context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return await self._ask(verdict)
        if self._params.request_state != verdict.digest:
            raise Unanswered(verdict)
        return _yes((self._params.input_responses or {}).get(QUESTION))

    async def ask_during_call(self, verdict: Verdict) -> bool | None:
        """None in the era in which a server may not ask while a call is under way."""
        modern = self._context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return await self._ask(verdict) if self._can_ask() and not modern else None

    def _can_ask(self) -> bool:
        capabilities = self._context.session.client_capabilities
        asking = capabilities.elicitation if capabilities else None
        return asking is not None and (asking.form is not None or asking.url is None)

    async def _ask(self, verdict: Verdict) -> bool | None:
        ask = self._context.session.elicit_form
        try:
            return _yes(await ask(question(verdict), form(verdict), self._context.request_id))
        except (MCPError, ValidationError):  # no way back to the client, or an answer that is none
            return None


def _yes(answer: object) -> bool:
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return False
    return (answer.content or {}).get(QUESTION) is True


def question(verdict: Verdict) -> str:
    """What the person reads. What the agent wrote comes last: however many lines it has, it can't pose as ours."""
    about = words.QUESTIONS[verdict.about]
    effects = "".join(f"\nIt would {_visible(each)}" for each in words.would_do(verdict))
    indented = "\n".join(f"    {_visible(line)}" for line in verdict.canonical.split("\n"))
    return f"{about.wants}\nRisk: {verdict.risk}\nWhy: {words.why(verdict)}{effects}\n{about.heading}:\n{indented}"


def form(verdict: Verdict) -> dict[str, Any]:
    about = words.QUESTIONS[verdict.about]
    field = {"type": "boolean", "title": about.title, "description": about.yes}
    return {"type": "object", "properties": {QUESTION: field}, "required": [QUESTION]}


def _visible(text: str) -> str:
    """On one line; characters that don't show (bidirectional, zero width, controls) spelled out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in render.exact(text))


class Progress:
    """Output as progress notifications: gathered, cut to the newest, one every PROGRESS_SECONDS at most."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        decoder = getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._text = ""
        self._bytes = 0
        self._more = anyio.Event()

    def add(self, output: Output) -> None:
        self._bytes += len(output.data)
        self._text = (self._text + self._decoders[output.stream].decode(output.data))[-PROGRESS_CHARACTERS:]
        self._more.set()

    async def pump(self) -> None:
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            text, self._text = self._text, ""
            if text:
                await self._session.report_progress(self._bytes, message=text)
                await anyio.sleep(PROGRESS_SECONDS)
