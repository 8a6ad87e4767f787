"""Family A: `terminal-run` (AIntern, "Terminal Command Tool")."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from pydantic import Field

from belljar.errors import Judged
from belljar.policy import Verdict
from belljar.session.judging import judged
from belljar.session.result import Output
from belljar.tools.base import (
    NOT_APPROVED,
    Call,
    Fields,
    Tool,
    ToolResult,
    shorten,
    why_failed,
)
from belljar.tools.parameters import Integer, Params, Problem, Text, check

DEFAULT_TIMEOUT_SECONDS = 120
MAX_TIMEOUT_SECONDS = 600
MAX_OUTPUT_LENGTH = 100_000
TRUNCATED = "\n\n[Output truncated...]"
DANGEROUS = "Potentially dangerous command detected and blocked for safety."
TOO_SHORT = "Timeout must be at least 1 second"
_CONTINUATION = bytes(range(0x80, 0xC0))

log = logging.getLogger("belljar.tools.terminal_run")


class TerminalRunParams(Params):
    command: Text = Field(description="The command to execute")
    working_directory: str | None = Field(
        default=None, description="Working directory (default: workspace root)"
    )
    timeout_seconds: Integer = Field(
        default=DEFAULT_TIMEOUT_SECONDS,
        ge=1,
        description="Timeout in seconds (default: 120, max: 600; more counts as 600)",
    )
    capture_output: bool = Field(
        default=True,
        description="Capture output instead of streaming to terminal (default: true)",
    )
    environment: dict[str, str] | None = Field(
        default=None, description="Additional environment variables"
    )


@dataclass
class TerminalResult(ToolResult):
    @property
    def message_and_output(self) -> str:
        return "\n".join(part for part in (self.output, self.message) if part)

    def as_dict(self) -> dict[str, Any]:
        shape: dict[str, Any] = {
            "success": self.success,
            "content": self.output,
            "message": self.message,
        }
        return {
            **shape,
            "data": dict(self.metadata),
            "errors": [problem.as_dict() for problem in self.problems],
        }


class TerminalRun(Tool):
    name = "terminal-run"
    title = "Run Command"
    description = """Execute a shell command, each in a new bash.
Returns the command output (stdout and stderr combined).
Commands run in the workspace directory by default.

Use this to run builds, tests, scripts and tools of the project."""
    category = "terminal"
    tags = ("terminal", "command", "shell", "execute")
    Params = TerminalRunParams
    Answer = TerminalResult

    def check(self, given: object) -> TerminalRunParams | list[Problem]:
        params = check(TerminalRunParams, given)
        if not isinstance(params, list):
            return params
        return [
            Problem(p.parameter, TOO_SHORT, p.code) if p.code == "INVALID_RANGE" else p
            for p in params
        ]

    async def checked(self, given: object) -> TerminalRunParams | list[Problem]:
        """The document wants a dangerous command and a bad timeout reported together."""
        params = self.check(given)
        command = given.get("command") if isinstance(given, dict) else None
        if (
            not isinstance(params, list)
            or not isinstance(command, str)
            or not command.strip()
        ):
            return params
        if (await judged(await self.loaded_policy(), command)).decision == "deny":
            params.insert(0, Problem("command", DANGEROUS, "DANGEROUS_COMMAND"))
        return params

    def risk_of(self, verdict: Verdict) -> str:
        """In this family the risk is high or worse, whatever the command; critical if somebody has to agree."""
        return {"deny": "blocked", "ask": "critical"}.get(
            verdict.decision, self.default_risk
        )

    async def execute(self, params: TerminalRunParams, call: Call) -> ToolResult:
        cwd = self.box.resolve_cwd(params.working_directory)
        log.info("Executing command: %s in %s", shorten(params.command), cwd)
        if not params.capture_output:
            return await self._send(params, cwd)
        timeout, length = min(params.timeout_seconds, MAX_TIMEOUT_SECONDS), 0

        def count(output: Output) -> None:
            """All characters, since a result keeps only a part of them."""
            nonlocal length
            length += len(output.data.translate(None, _CONTINUATION))
            if call.on_output is not None:
                call.on_output(output)

        request = await self.box.admit(
            params.command,
            cwd=params.working_directory,
            env=params.environment,
            timeout=timeout,
            combined=True,
            on_output=count,
        )
        result = await call.carry_out(self.box, request)
        text = result.output
        truncated = result.truncated or len(text) > MAX_OUTPUT_LENGTH
        content = text[:MAX_OUTPUT_LENGTH] + TRUNCATED if truncated else text
        length = length if result.truncated else len(text)
        data = _data(
            params,
            cwd,
            result.exit_code,
            result.duration,
            output_length=length,
            was_truncated=truncated,
        )
        if result.cause == "timeout":
            log.warning(
                "Command timed out after %ss: %s", timeout, shorten(params.command)
            )
        log.info(
            "Command completed: exitCode=%s, duration=%.1fs",
            result.exit_code,
            result.duration,
        )
        error = None if result.ok else why_failed(result, f"{timeout} seconds", call)
        message = error or f"Command succeeded ({data.formatted_duration})"
        return TerminalResult(
            result.ok,
            content,
            error,
            data,
            message=message,
            code=result.cause,
            result=result,
        )

    async def _send(self, params: TerminalRunParams, cwd: str) -> ToolResult:
        shell = await self.box.start(
            params.command, cwd=params.working_directory, env=params.environment
        )
        data = _data(params, cwd, was_streamed=True, shell_id=shell.id)
        return TerminalResult(
            True,
            message=f"Command sent to terminal: {shorten(params.command)}",
            metadata=data,
        )

    def fail(self, error: str, **more: Any) -> ToolResult:
        return TerminalResult(False, error=error, message=error, **more)

    async def refused(self, params: Any, verdict: Judged) -> ToolResult:
        log.warning("Dangerous command blocked: %s", shorten(verdict.canonical))
        message = DANGEROUS if verdict.decision == "deny" else f"{NOT_APPROVED}."
        refusal = self.invalid([Problem("command", message, "DANGEROUS_COMMAND")])
        refusal.error = refusal.message = f"{message} {verdict.reason}"
        refusal.code, refusal.metadata = (
            "policy_denied",
            Fields(refusal.metadata, verdict=verdict.as_dict()),
        )
        return refusal


def _human(duration: float) -> str:
    """`45ms`, `1.2s`."""
    return f"{duration * 1000:.0f}ms" if duration < 0.9995 else f"{duration:.1f}s"


def _data(
    params: TerminalRunParams,
    cwd: str,
    exit_code: int = 0,
    duration: float = 0.0,
    **more: Any,
) -> Fields:
    data = {
        "command": params.command,
        "exit_code": exit_code,
        "duration": duration,
        "formatted_duration": _human(duration),
        "output_length": 0,
        "was_truncated": False,
        "working_directory": cwd,
        "was_streamed": False,
        "succeeded": exit_code == 0,
    }
    return Fields(data, **more)
