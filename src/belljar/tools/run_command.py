"""Family E: `run_command` ("Feature 3.3.3 Shell Execution Tool"), in an empty environment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from belljar.errors import BelljarError, Judged
from belljar.patterns import lazy_pattern
from belljar.session.result import Result
from belljar.tools.base import (
    NOT_APPROVED,
    OUT_OF_MEMORY,
    Call,
    Command,
    Fields,
    Tool,
    ToolResult,
    why_failed,
)
from belljar.tools.filters import FilterConfig
from belljar.tools.parameters import Integer, Params, Text

DEFAULT_TIMEOUT = 60_000
_ONE_WORD = lazy_pattern(r"[\w./+@%:,=-]+")


class RunCommandConfig(FilterConfig):
    environment: dict[str, str] = Field(default={})
    """The whole environment of a command."""


class RunCommandParams(Params):
    command: Text = Field(
        description="Command to execute: a program if args are given, else a line for the shell"
    )
    args: list[str] | None = Field(
        default=None, description="Command arguments, each passed on exactly as it is"
    )
    timeout: Integer = Field(
        default=DEFAULT_TIMEOUT,
        ge=1,
        description="Timeout in milliseconds (default 60000)",
    )


@dataclass
class RunCommandResult(ToolResult):
    """Always has `exit_code`, `stdout` and `stderr`; `error` if the output does not say what went wrong."""

    exit_code: int | None = None
    stderr: str = ""

    def __post_init__(self) -> None:
        if self.exit_code is None:
            self.exit_code = 0 if self.success else BelljarError.exit_status

    @property
    def stdout(self) -> str:
        return self.output or ""

    @property
    def content(self) -> str:
        return self.as_json()

    @property
    def text(self) -> str:
        return self.as_json()

    def as_dict(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "exit_code": self.exit_code,
            "stdout": self.stdout,
            "stderr": self.stderr,
        }
        more = {"error": self.error, "hints": list(self.hints)}
        return {**shape, **{name: value for name, value in more.items() if value}}


class RunCommand(Tool):
    name = "run_command"
    title = "Run command"
    description = """Runs a command in the project directory, with an empty environment.
Returns JSON: {"exit_code", "stdout", "stderr"}."""
    Params = RunCommandParams
    Config = RunCommandConfig
    Answer = RunCommandResult

    def command(self, params: RunCommandParams) -> Command:
        """A single word runs without a shell, which would add variables of its own to the environment."""
        if params.args is not None or _ONE_WORD.fullmatch(params.command):
            return [params.command, *(params.args or [])]
        return params.command

    async def execute(self, params: RunCommandParams, call: Call) -> ToolResult:
        command, environment = self.command(params), self.config.environment
        request = await self.box.admit(
            command,
            env=environment,
            clean_env=True,
            timeout=params.timeout / 1000,
            on_output=call.on_output,
        )
        self.config.check(request.verdict)
        result = await call.carry_out(self.box, request)
        return RunCommandResult(
            result.ok,
            result.stdout,
            _error(params, result, call),
            code=result.cause,
            result=result,
            exit_code=result.exit_code,
            stderr=result.stderr,
        )

    async def refused(self, params: RunCommandParams, verdict: Judged) -> ToolResult:
        why = "Command blocked" if verdict.decision == "deny" else NOT_APPROVED
        message = f"{why}: {verdict.canonical}. {verdict.reason}"
        return RunCommandResult(
            False,
            error=message,
            code="policy_denied",
            exit_code=126,
            metadata=Fields(verdict=verdict.as_dict()),
        )

    def failed(self, params: RunCommandParams, error: BelljarError) -> ToolResult:
        return RunCommandResult(
            False, error=str(error), code=error.code, exit_code=error.exit_status
        )


def _error(params: RunCommandParams, result: Result, call: Call) -> str | None:
    if result.cause in ("exited", "signalled"):
        return None
    if result.cause == "out_of_memory":
        return OUT_OF_MEMORY
    return why_failed(result, f"{params.timeout}ms", call)
