"""One `tools/call`: sends its output to the client while it runs, and asks the client's user for approvals.

How the user is asked depends on the protocol version. Up to 2025-11-25 the server sends `elicitation/create` during the
call. Since 2026-07-28 a server may not send requests: the call ends with the question as its result, and the client
repeats the call with the answer. A sealed state binds the answer to the verdict's digest. Nothing has run by then, so
the second call is judged from the start.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any
from weakref import WeakSet

import anyio
import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from belljar.policy import Verdict
from belljar.session.result import Output
from belljar.surfaces import words
from belljar.surfaces.terminal import render

PROGRESS_SECONDS = 0.05
"""The shortest time between two notifications of one call."""
PROGRESS_CHARACTERS = 8192
"""One notification carries at most the newest so many characters; the result has all of them."""
QUESTION = "approve"
LONGEST_SHOWN = 20_000
"""Longer commands are not offered for approval: nobody can approve what they cannot see."""

_current: ContextVar[Call | None] = ContextVar("belljar.mcp.call", default=None)


def client_of(context: ServerRequestContext[Any]) -> Connection:
    """Stays the same for all calls of one client; its `session` is another one for each. Since 2026-07-28 HTTP knows no
    clients, only calls."""
    return context.session._connection


class Calls:
    """The running calls of one server, the newest last. Each question goes to the client whose call it is about."""

    def __init__(self) -> None:
        self._running: list[Call] = []
        self._clients: WeakSet[Connection] = WeakSet()

    @contextmanager
    def begun(self, call: Call) -> Iterator[None]:
        _current.set(call)
        self._running.append(call)
        self._clients.add(call.client)
        try:
            yield
        finally:
            self._running.remove(call)

    async def approve(self, verdict: Verdict) -> bool | None:
        """The session's `approve`: asks the client of the call that led to this verdict; None if nobody can be asked.
        The question about a network host comes from a task that belongs to no call. With several clients nobody knows
        whose program it is, so nobody is asked."""
        call = _current.get()
        if call in self._running:
            return await call.approve(verdict)
        if not self._running or len(self._clients) > 1:
            return None
        return await self._running[-1].ask_during_call(verdict)


class Unanswered(Exception):
    """The client must be asked, and answers with a new call."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict

    def as_result(self) -> types.InputRequiredResult:
        params = types.ElicitRequestFormParams(
            message=question(self.verdict), requested_schema=form(self.verdict)
        )
        return types.InputRequiredResult(
            input_requests={QUESTION: types.ElicitRequest(params=params)},
            request_state=self.verdict.digest,
        )


class Call:
    def __init__(
        self, context: ServerRequestContext[Any], params: types.CallToolRequestParams
    ) -> None:
        self._context = context
        self._params = params
        self.client = client_of(context)

    async def approve(self, verdict: Verdict) -> bool | None:
        """None if nobody can be asked."""
        if not self._can_ask() or len(verdict.canonical) > LONGEST_SHOWN:
            return None
        if self._context.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return await self._ask(verdict)
        if self._params.request_state != verdict.digest:
            raise Unanswered(verdict)
        return _yes((self._params.input_responses or {}).get(QUESTION))

    async def ask_during_call(self, verdict: Verdict) -> bool | None:
        """None if the protocol version does not allow a server to ask during a call."""
        modern = self._context.protocol_version in MODERN_PROTOCOL_VERSIONS
        return await self._ask(verdict) if self._can_ask() and not modern else None

    def _can_ask(self) -> bool:
        capabilities = self._context.session.client_capabilities
        elicitation = capabilities.elicitation if capabilities else None
        return elicitation is not None and (
            elicitation.form is not None or elicitation.url is None
        )

    async def _ask(self, verdict: Verdict) -> bool | None:
        ask = self._context.session.elicit_form
        try:
            return _yes(
                await ask(question(verdict), form(verdict), self._context.request_id)
            )
        except (
            MCPError,
            ValidationError,
        ):  # the client is gone, or its answer is malformed
            return None


def _yes(answer: object) -> bool:
    if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
        return False
    return (answer.content or {}).get(QUESTION) is True


def question(verdict: Verdict) -> str:
    """What the user reads. The agent's text comes last: however many lines it has, it cannot look like ours."""
    about = words.QUESTIONS[verdict.about]
    effects = "".join(
        f"\nIt would {_visible(effect)}" for effect in words.would_do(verdict)
    )
    indented = "\n".join(
        f"    {_visible(line)}" for line in verdict.canonical.split("\n")
    )
    return f"{about.wants}\nRisk: {verdict.risk}\nWhy: {words.why(verdict)}{effects}\n{about.heading}:\n{indented}"


def form(verdict: Verdict) -> dict[str, Any]:
    about = words.QUESTIONS[verdict.about]
    field = {"type": "boolean", "title": about.title, "description": about.yes}
    return {"type": "object", "properties": {QUESTION: field}, "required": [QUESTION]}


def _visible(text: str) -> str:
    """`text` on one line, with invisible characters (bidirectional, zero width, controls) escaped."""
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape").decode()
        for c in render.exact(text)
    )


class Progress:
    """Sends output as progress notifications: the newest text, at most once every PROGRESS_SECONDS."""

    def __init__(self, session: ServerSession) -> None:
        self._session = session
        decoder = getincrementaldecoder("utf-8")
        self._decoders = {"stdout": decoder("replace"), "stderr": decoder("replace")}
        self._text = ""
        self._bytes = 0
        self._more = anyio.Event()

    def add(self, output: Output) -> None:
        self._bytes += len(output.data)
        self._text = (self._text + self._decoders[output.stream].decode(output.data))[
            -PROGRESS_CHARACTERS:
        ]
        self._more.set()

    async def pump(self) -> None:
        while True:
            await self._more.wait()
            self._more = anyio.Event()
            text, self._text = self._text, ""
            if text:
                await self._session.report_progress(self._bytes, message=text)
                await anyio.sleep(PROGRESS_SECONDS)
