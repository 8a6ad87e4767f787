"""The base of all tools: parameters in, one result out.

`call` checks the parameters (and reports every wrong one), needs an open session, and calls `execute`. A refusal of the
policy (`refused`) and an error of Belljar's (`failed`) become results too, in the words of the tool's family.
"""

from __future__ import annotations

import json
import shlex
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal, TypeVar

import anyio
from anyio import to_thread

from belljar.errors import BelljarError, Judged, PolicyDenied, SandboxLost
from belljar.policy import Policy, Verdict
from belljar.records import record
from belljar.session.commands import Request
from belljar.session.judging import judged
from belljar.session.result import Event, Output, Result
from belljar.session.session import Session
from belljar.session.watched_run import Run
from belljar.tasks import beside
from belljar.tools.parameters import Config, Params, Problem, check, configured, schema

Command = str | list[str]
T = TypeVar("T")

NO_SESSION = "No active terminal session. Please open a terminal first."
OUT_OF_MEMORY = "Command ended: the sandbox's memory limit was reached"
NOT_APPROVED = "Command needs an approval that was not given"
DECLINED = "Declined by a person"
SUMMARY_LENGTH = 60
MARK_LENGTH = 50  # the longest "[... N characters truncated ...]"


class Fields(dict[str, Any]):
    """A result's data, readable as items and as attributes."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@dataclass
class ToolResult:
    """The result of a call. Families change the shape of `as_dict`, never the meaning of the fields."""

    success: bool
    output: str | None = None
    """What the command printed."""
    error: str | None = None
    """Why the call failed. A model reads this and acts on it."""
    metadata: Fields = field(default_factory=Fields)
    message: str | None = None
    problems: list[Problem] = field(default_factory=list)
    """Each wrong parameter."""
    code: str | None = None
    """The kind of failure, for machines."""
    result: Result | None = None
    """The session's result, if a command ran."""

    @property
    def content(self) -> Any:
        return self.output

    @property
    def data(self) -> Fields:
        return self.metadata

    @property
    def hints(self) -> tuple[str, ...]:
        """What hindered the command, and what a model can do about it or ask for."""
        return self.result.hints_for("agent") if self.result is not None else ()

    @property
    def message_and_output(self) -> str:
        """The family's message, and what the command printed."""
        return "\n".join(
            part for part in (self.error, self.message, self.output) if part
        )

    @property
    def text(self) -> str:
        """What a model reads."""
        return "\n".join(
            part
            for part in (
                self.message_and_output,
                *(f"Hint: {hint}" for hint in self.hints),
            )
            if part
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "success": self.success,
            "output": self.output,
            "error": self.error,
            "metadata": dict(self.metadata),
        }

    def as_json(self) -> str:
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def __getitem__(self, name: str) -> Any:
        return self.as_dict()[name]


@record
class Call:
    """What a caller may pass besides the parameters: a callback for output, and an event that aborts the call."""

    on_output: Callable[[Output], None] | None = None
    abort: anyio.Event | None = None

    @property
    def aborted(self) -> bool:
        return self.abort is not None and self.abort.is_set()

    async def watch(self, stop: Callable[[], object], work: Awaitable[T]) -> T:
        """The result of `work`. `stop` is called if the caller aborts meanwhile."""
        if self.abort is None:
            return await work
        abort = self.abort

        async def stop_on_abort() -> None:
            await abort.wait()
            with suppress(SandboxLost):
                stop()

        async with beside() as tasks:
            tasks.start_soon(stop_on_abort)
            return await work
        raise AssertionError("unreachable")

    async def carry_out(
        self,
        box: Session,
        request: Request,
        on_event: Callable[[Event], None] | None = None,
    ) -> Result:
        """Run an admitted command to its end, or until the caller aborts it."""
        if self.abort is None and on_event is None:
            return await box.run(request)
        async with box.stream(request) as run:
            await self.watch(run.kill, _follow(run, on_event or (lambda _: None)))
        assert run.result is not None
        return run.result


async def _follow(run: Run, on_event: Callable[[Event], None]) -> None:
    async for event in run:
        on_event(event)


class Tool(ABC):
    """What an agent may call. `admit` asks the policy, so nothing runs and no file is touched that it denies:

    class CountWords(Tool):
        name = "count_words"
        title = "Count words"
        description = "Counts the words of a file."
        does = "reads"
        Params = CountParams  # class CountParams(Params): path: Text = Field(description="The file")

        def command(self, params):
            return ["wc", "-w", params.path]

        async def execute(self, params, call):
            request = await self.box.admit(self.command(params))
            result = await call.carry_out(self.box, request)
            return self.done(result.stdout) if result.ok else self.fail(result.stderr)
    """

    name: ClassVar[str]
    title: ClassVar[str]
    description: ClassVar[str]
    category: ClassVar[str] = "execution"
    tags: ClassVar[tuple[str, ...]] = ()
    default_risk: ClassVar[str] = "high"
    runs_commands: ClassVar[bool] = True
    does: ClassVar[Literal["changes", "reads", "lists", "kills"]] = "changes"
    """What it does to the sandbox. A tool that lists may also forget what has ended."""
    summary_template: ClassVar[str] = "Run: {command}"
    """A short description of a call, with `{parameter}` placeholders."""
    Params: ClassVar[type[Params]]
    Config: ClassVar[type[Config]] = Config
    Answer: ClassVar[type[ToolResult]] = ToolResult

    def __init__(
        self,
        box: Session | None = None,
        config: Mapping[str, Any] | None = None,
        *,
        dry_run: bool = False,
    ) -> None:
        self._box = box
        self.config: Any = configured(self.name, self.Config, config or {})
        self.dry_run = dry_run

    @property
    def is_available(self) -> bool:
        return self._box is not None and self._box.is_open

    @property
    def box(self) -> Session:
        assert self._box is not None
        return self._box

    @cached_property
    def policy(self) -> Policy:
        return self._box.policy if self._box is not None else Policy.load("default")

    async def loaded_policy(self) -> Policy:
        """The policy. The first call loads it in a thread, since loading checks the policy's examples."""
        return (
            self.policy
            if "policy" in vars(self)
            else await to_thread.run_sync(lambda: self.policy)
        )

    def described(self) -> str:
        """The description that a model gets: of the tool, and of the sandbox it runs in."""
        if self.runs_commands:
            return f"{self.description}\n\n{surroundings(self._box)}"
        return self.description

    @classmethod
    def schema(cls) -> dict[str, Any]:
        return schema(cls.Params)

    async def call(self, given: object, call: Call | None = None) -> ToolResult:
        params = await self.checked(given)
        if isinstance(params, list):
            return self.invalid(params)
        if not self.is_available and not self.dry_run:
            return self.fail(NO_SESSION, code="no_session")
        try:
            command = self.command(params) if self.dry_run else None
            result = await (
                self.rehearse(params, command)
                if command
                else self.execute(params, call or Call())
            )
        except PolicyDenied as denial:
            refusal = await self.refused(params, denial.verdict)
            return _declined(refusal) if denial.declined else refusal
        except BelljarError as error:
            return self.failed(params, error)
        if hints := result.hints:
            result.metadata["hints"] = list(hints)
        return result

    async def checked(self, given: object) -> Any:
        """The parameters, or a list of problems. Families that need a verdict to check parameters override this."""
        return self.check(given)

    def check(self, given: object) -> Any:
        return check(self.Params, given)

    @abstractmethod
    async def execute(self, params: Any, call: Call) -> ToolResult: ...

    def command(self, params: Any) -> Command | None:
        """The command that a call runs; None for a tool that runs nothing."""
        return str(params.command) if self.runs_commands else None

    async def rehearse(self, params: Any, command: Command) -> ToolResult:
        """A dry run: check and judge the command, but do not run it."""
        verdict = await judged(await self.loaded_policy(), command)
        if verdict.decision == "deny":
            return await self.refused(params, verdict)
        shown = command if isinstance(command, str) else shlex.join(command)
        return self.done(
            f"[Dry Run] Would execute: {shown}", command=shown, dry_run=True
        )

    def summary(self, given: Mapping[str, Any]) -> str:
        values = {name: shorten(str(value or "")) for name, value in given.items()}
        return self.summary_template.format_map(defaultdict(str, values))

    def risk(self, given: object) -> str:
        """The policy's risk of a call. Blocking: in an event loop call it from a thread."""
        params = self.check(given)
        command = None if isinstance(params, list) else self.command(params)
        return (
            self.default_risk
            if command is None
            else self.risk_of(self.policy.judge(command))
        )

    def risk_of(self, verdict: Verdict) -> str:
        """What this family calls the risk of a verdict."""
        return str(verdict.risk)

    def done(
        self, output: str | None = None, message: str | None = None, **metadata: Any
    ) -> ToolResult:
        return self.Answer(True, output, message=message, metadata=Fields(metadata))

    # Results of calls that did not run; families override these for their own wording.

    def fail(self, error: str, **more: Any) -> ToolResult:
        return self.Answer(False, error=error, **more)

    def invalid(self, problems: list[Problem]) -> ToolResult:
        messages = "; ".join(problem.message for problem in problems)
        errors = [problem.as_dict() for problem in problems]
        return self.fail(
            f"Invalid parameters: {messages}",
            code="invalid",
            problems=problems,
            metadata=Fields(errors=errors),
        )

    async def refused(self, params: Any, verdict: Judged) -> ToolResult:
        why = (
            "Command blocked for security reasons"
            if verdict.decision == "deny"
            else NOT_APPROVED
        )
        message = f"{why}: {verdict.canonical}\n{verdict.reason}"
        return self.fail(
            message, code="policy_denied", metadata=Fields(verdict=verdict.as_dict())
        )

    def failed(self, params: Any, error: BelljarError) -> ToolResult:
        return self.fail(str(error), code=error.code)


def _declined(refusal: ToolResult) -> ToolResult:
    """Say that a person declined. A model that takes it for a rule looks for another way to do the same."""
    refusal.error = (refusal.error or "").replace(NOT_APPROVED, DECLINED) or None
    refusal.message = (refusal.message or "").replace(NOT_APPROVED, DECLINED) or None
    refusal.metadata["declined"] = True
    return refusal


def surroundings(box: Session | None) -> str:
    """What a model should know about the sandbox, so that it need not find out by trial and error."""
    text = (
        "Commands run in a sandbox: a Linux container of its own, not the user's machine. The project is mounted at "
        "/workspace, the working directory; what you change there {}. The rest of the system is read-only, /tmp "
        "and the home directory are scratch, and there is no root, sudo or docker."
    )
    staged = box is not None and box.is_staged
    text = text.format(
        "is kept aside until the user applies it" if staged else "is real"
    )
    if box is None:
        return f"{text} By default there is no network."
    limits = box.limits
    network = (
        "There is no network."
        if box.network == "none"
        else "The network can be reached."
    )
    return (
        f"{text} Image: {box.image}. {network} Limits: {limits.memory >> 20} MiB of memory, {limits.cpus:g} CPUs, "
        f"{limits.pids} processes. The policy {box.policy.name!r} judges each command before it runs."
    )


def why_failed(result: Result, timeout: str, call: Call) -> str:
    """The message that most families use. `timeout` has its unit."""
    if result.cause == "killed" and call.aborted:
        return "Command aborted"
    return {
        "timeout": f"Command timed out after {timeout}",
        "interrupted": "Command interrupted",
        "sandbox_lost": "The sandbox was lost while the command ran",
    }.get(result.cause, f"Command failed with exit code {result.exit_code}")


def shorten(command: str) -> str:
    return (
        command
        if len(command) <= SUMMARY_LENGTH
        else command[: SUMMARY_LENGTH - 3] + "..."
    )


def truncate(text: str, limit: int, missing: int = 0) -> tuple[str, bool]:
    """Head and tail of `text` within `limit` characters, and whether anything is missing. The mark between says how
    much; `missing` characters were lost before."""
    if len(text) <= limit:
        return text, missing > 0
    room = max(0, limit - MARK_LENGTH)
    mark = f"\n[... {len(text) - room + missing} characters truncated ...]\n"
    return text[: room - room // 2] + mark + text[len(text) - room // 2 :], True


def milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
