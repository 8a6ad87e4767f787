"""Family D: `shell_execute` ("Shell Execute Tool"), with results in MCP's shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pydantic import Field

from belljar.session.result import Result
from belljar.tools.base import Call, Fields, Tool, ToolResult, milliseconds, why_failed
from belljar.tools.filters import FilterConfig
from belljar.tools.parameters import Integer, Params, Text

DEFAULT_TIMEOUT = 300
MAX_TIMEOUT = 1800


class ShellExecuteParams(Params):
    command: Text = Field(
        description='Shell command to execute (e.g., "ls -la", "cargo test")'
    )
    working_directory: str | None = Field(
        default=None, description="Path where the command should be executed"
    )
    timeout: Integer = Field(
        default=DEFAULT_TIMEOUT,
        ge=1,
        le=MAX_TIMEOUT,
        description="Maximum seconds to wait for command completion",
    )
    environment: dict[str, str] | None = Field(
        default=None, description="Additional environment variables to set"
    )


@dataclass
class ShellExecuteResult(ToolResult):
    @property
    def is_error(self) -> bool:
        return not self.success

    @property
    def content(self) -> list[dict[str, str]]:
        texts = (self.message or self.error or self.output, self.error)
        return [{"type": "text", "text": text} for text in dict.fromkeys(texts) if text]

    @property
    def message_and_output(self) -> str:
        printed = (
            self.metadata.get(name)
            for name in ("stdout", "stderr", "partial_stdout", "partial_stderr")
        )
        return "\n".join(
            part
            for part in (*(block["text"] for block in self.content), *printed)
            if part
        )

    def as_dict(self) -> dict[str, Any]:
        return {
            "content": self.content,
            "is_error": self.is_error,
            "metadata": dict(self.metadata),
        }


class ShellExecute(Tool):
    name = "shell_execute"
    title = "Shell execute"
    description = "Execute shell commands with timeout controls and proper output handling for interactive AI workflows."
    Params = ShellExecuteParams
    Config = FilterConfig
    Answer = ShellExecuteResult

    async def execute(self, params: ShellExecuteParams, call: Call) -> ToolResult:
        environment, filtered = self.config.sift(params.environment or {})
        cwd = self.box.resolve_cwd(params.working_directory)
        request = await self.box.admit(
            params.command,
            cwd=params.working_directory,
            env=environment,
            timeout=params.timeout,
            on_output=call.on_output,
        )
        self.config.check(request.verdict)
        result = await call.carry_out(self.box, request)
        metadata = Fields(
            _printed(params, result),
            command=params.command,
            working_directory=cwd,
            cpu_time_ms=milliseconds(result.cpu_time),
            peak_memory_bytes=result.peak_memory,
        )
        if filtered:
            metadata["filtered_environment"] = filtered
        failure = why_failed(result, f"{params.timeout} seconds", call)
        message = "Command executed successfully" if result.ok else failure
        detail = self._detail(result)
        return ShellExecuteResult(
            result.ok, None, detail, metadata, message, code=result.cause, result=result
        )

    def _detail(self, result: Result) -> str | None:
        """The reason for a failure, if there is more to say than the exit code."""
        if result.cause == "out_of_memory" or result.oom_kills:
            limit, peak = self.box.limits.memory >> 20, result.peak_memory >> 20
            return f"Resource exhaustion: the memory limit of {limit} MiB was reached (largest process: {peak} MiB)"
        last = result.stderr.strip().rpartition("\n")[2]
        reason = {127: "Command not found", 126: "Permission denied"}.get(
            result.exit_code
        )
        return f"{reason}: {last}" if reason and result.cause == "exited" else None


def _printed(params: ShellExecuteParams, result: Result) -> dict[str, Any]:
    out, err = result.stdout, result.stderr
    if result.cause == "timeout":
        return {
            "timeout_seconds": params.timeout,
            "partial_stdout": out,
            "partial_stderr": err,
        }
    took = milliseconds(result.duration)
    return {
        "exit_code": result.exit_code,
        "stdout": out,
        "stderr": err,
        "execution_time_ms": took,
    }
