"""Family C: `execute_command` ("Спецификация: Command Execution"): no shell, an allowlist, few calls at a time."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import anyio
from pydantic import Field

from belljar.errors import BelljarError, CommandNotFound, Judged
from belljar.policy import Policy
from belljar.session.judging import judged
from belljar.session.result import Event, Output, Result, Started, decode
from belljar.tools.base import Call, Fields, Tool, ToolResult, milliseconds
from belljar.tools.parameters import Config, Integer, Params, Problem, Text

Status = Literal["success", "error", "timeout"]

log = logging.getLogger("belljar.tools.execute_command")


class ExecuteCommandConfig(Config):
    timeout: int = Field(default=300_000, ge=1)
    """Milliseconds, if the call gives no timeout."""
    max_concurrent: int = Field(default=3, ge=1)
    max_output_bytes: int = Field(default=10 << 20, ge=1)
    kill_timeout: int = Field(default=10_000, ge=0)
    """Milliseconds between SIGTERM and SIGKILL."""
    queue: bool = False
    """Wait for a free place instead of refusing."""
    policy: str | None = "strict"
    """The family's own policy, on top of the session's; None: the session's alone."""


class ExecuteCommandParams(Params):
    command: Text = Field(
        description="Program name; it is executed directly, never through a shell"
    )
    args: list[str] = Field(
        default=[], description="Arguments, each passed on exactly as it is"
    )
    timeout: Annotated[Integer, Field(ge=1)] | None = Field(
        default=None, description="Timeout in milliseconds (default 300000)"
    )
    cwd: str | None = Field(
        default=None, description="Working directory (default: the workspace)"
    )


@dataclass
class CommandExecutionResult(ToolResult):
    exit_code: int | None = None

    @property
    def status(self) -> Status:
        if self.success:
            return "success"
        return "timeout" if self.code == "TIMEOUT" else "error"

    @property
    def text(self) -> str:
        return self.as_json()

    def as_dict(self) -> dict[str, Any]:
        shape = {
            "status": self.status,
            "output": self.output,
            "error": self.error,
            "exit_code": self.exit_code,
        }
        return {
            **shape,
            "metadata": dict(self.metadata),
            **({"code": self.code} if self.code else {}),
        }


class ExecuteCommand(Tool):
    name = "execute_command"
    title = "Execute command"
    description = """Executes a program with arguments, without a shell (no pipes, globs or redirections).

Allowed by default: ls find dir cat head tail less more mkdir touch rm rmdir cp mv git npm yarn pnpm node python python3
grep sed awk sort uniq wc pwd whoami echo date."""
    Params = ExecuteCommandParams
    Config = ExecuteCommandConfig
    Answer = CommandExecutionResult

    @cached_property
    def _slots(self) -> anyio.Semaphore:
        return anyio.Semaphore(self.config.max_concurrent)

    @cached_property
    def policy(self) -> Policy:
        if self._box is None:
            return Policy.load(self.config.policy or "default")
        return (
            self._box.policy.tighten(self.config.policy)
            if self.config.policy
            else self._box.policy
        )

    async def checked(self, given: object) -> ExecuteCommandParams | list[Problem]:
        """The document's allowlist ignores case: `LS` runs `ls`."""
        params: ExecuteCommandParams | list[Problem] = self.check(given)
        if (
            isinstance(params, list)
            or (lower := params.command.lower()) == params.command
        ):
            return params
        listed = (await self.loaded_policy()).allow_programs or ()
        return (
            params.model_copy(update={"command": lower}) if lower in listed else params
        )

    def command(self, params: ExecuteCommandParams) -> list[str]:
        return [params.command, *params.args]

    async def execute(self, params: ExecuteCommandParams, call: Call) -> ToolResult:
        log.debug("Validating command: %s", params.command)
        request = await self.box.admit(
            self.command(params),
            policy=await self.loaded_policy(),
            cwd=self.box.resolve_cwd(params.cwd),
            on_output=call.on_output,
            timeout=(params.timeout or self.config.timeout) / 1000,
            grace=self.config.kill_timeout / 1000,
            output_limit=self.config.max_output_bytes,
        )
        try:
            self._slots.acquire_nowait()
        except anyio.WouldBlock:
            if not self.config.queue:
                message = f"Concurrent limit exceeded: {self.config.max_concurrent} commands are running"
                return self.fail(message, code="CONCURRENT_LIMIT_EXCEEDED")
            await self._slots.acquire()
        try:
            log.info("Executing command: %s", " ".join(self.command(params)))
            result = await call.carry_out(self.box, request, _log_event)
        finally:
            self._slots.release()
        _log_end(params.command, result)
        return _shaped(params, result, call)

    def fail(
        self, error: str, *, code: str = "EXECUTION_FAILED", **more: Any
    ) -> ToolResult:
        """The document has a fixed set of codes, in capitals. A command that never ran has no exit code."""
        sizes = {"duration_ms": 0, "output_size_bytes": 0, "error_size_bytes": 0}
        more["metadata"] = Fields(sizes, **more.get("metadata", {}))
        return super().fail(
            error, code=code if code.isupper() else "EXECUTION_FAILED", **more
        )

    def invalid(self, problems: list[Problem]) -> ToolResult:
        log.error(
            "Command validation failed: %s",
            "; ".join(problem.message for problem in problems),
        )
        return super().invalid(problems)

    async def refused(
        self, params: ExecuteCommandParams, verdict: Judged
    ) -> ToolResult:
        log.error("Command validation failed: %s", params.command)
        # The document's denylist has "bash -c" as if it were a program's name, so judge the words separately too.
        words = params.command.split()
        split = (
            await judged(await self.loaded_policy(), [*words, *params.args])
            if len(words) > 1
            else verdict
        )
        denied_by = {
            finding.id
            for finding in (*verdict.rules, *split.rules)
            if finding.decision == "deny"
        }
        unlisted = denied_by == {NOT_LISTED}
        code = "COMMAND_NOT_WHITELISTED" if unlisted else "COMMAND_BLACKLISTED"
        message = "Command not in whitelist" if unlisted else "Command is blacklisted"
        metadata = Fields(verdict=verdict.as_dict())
        return self.fail(
            f"{message}: {verdict.canonical}. {verdict.reason}",
            code=code,
            metadata=metadata,
        )

    def failed(self, params: ExecuteCommandParams, error: BelljarError) -> ToolResult:
        log.error("Command execution error: %s", params.command)
        code = (
            "COMMAND_NOT_FOUND"
            if isinstance(error, CommandNotFound)
            else "EXECUTION_FAILED"
        )
        return self.fail(str(error), code=code)


NOT_LISTED = "allowlist"
"""The finding of a program that is not on the allowlist."""


def _shaped(
    params: ExecuteCommandParams, result: Result, call: Call
) -> CommandExecutionResult:
    code, message = _failure(params.command, result, call)
    sizes = {
        "output_size_bytes": len(result.stdout_bytes),
        "error_size_bytes": len(result.stderr_bytes),
    }
    return CommandExecutionResult(
        result.ok,
        decode(
            result.stdout_bytes
        ),  # complete: the command is killed at `max_output_bytes`
        "\n".join(part for part in (decode(result.stderr_bytes), message) if part),
        Fields(duration_ms=milliseconds(result.duration), **sizes),
        code=code,
        result=result,
        exit_code=result.exit_code,
    )


def _log_event(event: Event) -> None:
    match event:
        case Started(pid):
            log.debug("Process spawned (pid: %s)", pid)
        case Output(_, data):
            log.debug("Received output: %s bytes", len(data))


def _failure(command: str, result: Result, call: Call) -> tuple[str | None, str]:
    if result.ok:
        return None, ""
    if result.cause == "timeout":
        return "TIMEOUT", f"Command timeout exceeded: {command}"
    if result.cause == "output_limit":
        return "OUTPUT_SIZE_EXCEEDED", f"Output size exceeded: {command}"
    return "EXECUTION_FAILED", "Command aborted" if call.aborted else ""


def _log_end(command: str, result: Result) -> None:
    """The log lines that the document asks for. The init sends the signals; they are logged after the command's end."""
    if result.cause in ("timeout", "output_limit"):
        log.debug("Signal %s sent to process", "SIGTERM")
        if result.signal == 9:
            log.debug("Signal %s sent to process", "SIGKILL")
    if result.cause == "timeout":
        log.info("Command timeout: %s (sent SIGTERM)", command)
        log.error("Command timeout exceeded: %s", command)
    elif result.cause == "output_limit":
        log.error("Output size exceeded: %s", command)
    elif result.ok:
        log.info(
            "Command executed: %s (exit: %s, duration: %s)",
            command,
            0,
            milliseconds(result.duration),
        )
    else:
        log.info("Command failed: %s (exit code: %s)", command, result.exit_code)
