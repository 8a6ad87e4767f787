"""Family B: `Bash`, `BashOutput`, `KillShell` ("Phase 2.3 Execution Tools") and a list of the shells."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

from pydantic import Field

from belljar.errors import ShellNotFound
from belljar.layout import WORKSPACE
from belljar.session.background_shell import Shell
from belljar.session.persistent_shell import ShellResult
from belljar.session.result import Result, decode
from belljar.tools.base import (
    OUT_OF_MEMORY,
    Call,
    Fields,
    Tool,
    ToolResult,
    milliseconds,
    truncate,
    why_failed,
)
from belljar.tools.parameters import Integer, Params, Text

DEFAULT_TIMEOUT = 120_000
MIN_TIMEOUT = 1_000
MAX_TIMEOUT = 600_000
MAX_OUTPUT_SIZE = 30_000
ONE_READ = 512 << 10  # after a read of more bytes than this, there may be more to read
MOST_READS = 200  # enough for the largest ring; if a shell prints faster, the next call continues
RESTARTED = "[The shell was restarted: directory and exported variables hold; functions, options and jobs are gone.]"
EXITED = "[That ended the shell. The next command starts a new one, with directory and exports as before this one.]"
ENTERED = " || exit\n"  # ends the line that we put before a command to enter a directory outside the workspace


class BashParams(Params):
    command: Text = Field(description="The command to execute")
    description: str | None = Field(
        default=None,
        description="Clear, concise description of what this command does (5-10 words)",
    )
    timeout: Integer = Field(
        default=DEFAULT_TIMEOUT,
        ge=MIN_TIMEOUT,
        le=MAX_TIMEOUT,
        description="Timeout in milliseconds (max 600000)",
    )
    run_in_background: bool = Field(
        default=False,
        description="Run command in background, use BashOutput to read output",
    )
    yield_after: Annotated[Integer, Field(ge=0, le=MAX_TIMEOUT)] | None = Field(
        default=None,
        description="Extension: milliseconds to wait; a command that takes longer goes on in the background and the "
        "call returns its shell id and the output so far. It runs in a bash of its own, with the session's directory "
        "and exported variables.",
    )


class Bash(Tool):
    name = "Bash"
    title = "Bash"
    description = """Executes a given bash command in a persistent shell session: directory, exported variables,
functions and options hold from one call to the next.

Usage notes:
- The command argument is required
- Timeout defaults to 120000ms (2 minutes), max 600000ms (10 minutes)
- Output exceeding 30000 characters will be truncated
- Use run_in_background=true for long-running commands
- Quote file paths with spaces using double quotes
- Use && to chain dependent commands
- Use ; when you don't care if earlier commands fail"""
    Params = BashParams

    async def execute(self, params: BashParams, call: Call) -> ToolResult:
        if params.run_in_background:
            return self._background(
                params, await self.box.start(**await self._own_bash(params))
            )
        if params.yield_after is not None:
            options = await self._own_bash(params)
            seconds = params.yield_after / 1000
            outcome = await self.box.yielding(
                **options, timeout=params.timeout / 1000, yield_after=seconds
            )
            if isinstance(outcome, Shell):
                return self._background(params, outcome)
            return _shaped(params, outcome, self.box.persistent.cwd, call)
        shell = self.box.persistent
        work = shell.run(
            params.command, timeout=params.timeout / 1000, on_output=call.on_output
        )
        result = await call.watch(shell.interrupt, work)
        return _shaped(params, result, result.cwd, call, result)

    async def _own_bash(self, params: BashParams) -> dict[str, Any]:
        """Options for a separate bash that starts with the persistent shell's directory and environment."""
        shell = self.box.persistent
        await shell.settle()
        if shell.environment is None:
            return {"command": params.command}
        options = {"env": shell.environment, "clean_env": True}
        if f"{shell.cwd}/".startswith(f"{WORKSPACE}/"):
            return {"command": params.command, "cwd": shell.cwd, **options}
        return {
            "command": f"cd -- {shlex.quote(shell.cwd)}{ENTERED}{params.command}",
            **options,
        }

    def _background(self, params: BashParams, shell: Shell) -> ToolResult:
        so_far = shell.so_far.text if shell.so_far else ""
        output, truncated = truncate(so_far, MAX_OUTPUT_SIZE)
        text = "\n".join(
            filter(None, (output, f"Command running in background with ID: {shell.id}"))
        )
        ids = {"shell_id": shell.id, "bash_id": shell.id}
        return self.done(
            text,
            **ids,
            command=params.command,
            status=shell.status,
            truncated=truncated,
        )


def _shaped(
    params: BashParams,
    result: Result,
    cwd: str,
    call: Call,
    turn: ShellResult | None = None,
) -> ToolResult:
    output, truncated = truncate(result.output, MAX_OUTPUT_SIZE, result.bytes_omitted)
    restarted = turn is not None and turn.restarted
    metadata = Fields(
        command=params.command,
        exit_code=result.exit_code,
        cause=result.cause,
        working_directory=cwd,
        duration_ms=milliseconds(result.duration),
        truncated=truncated,
        restarted=restarted,
    )
    if turn is not None and restarted:
        metadata["note"] = (
            EXITED if turn.shell_ended and turn.cause == "exited" else RESTARTED
        )
    error = None
    if result.cause == "out_of_memory":
        error = OUT_OF_MEMORY
    elif not result.ok:
        error = why_failed(result, f"{params.timeout}ms", call)
    return ToolResult(
        result.ok,
        output,
        error,
        metadata,
        metadata.get("note"),
        code=result.cause,
        result=result,
    )


class _ShellTool(Tool):
    """A tool that looks at shells and runs nothing."""

    default_risk = "low"
    runs_commands = False

    async def find(self, id: str) -> Shell:
        try:
            return self.box.shells.get(id)
        except ShellNotFound:
            await self.box.refresh()  # another process may have started it
            return self.box.shells.get(id)


class BashOutputParams(Params):
    bash_id: Text = Field(
        description="The ID of the background shell to retrieve output from"
    )
    filter: str | None = Field(
        default=None, description="Optional regex to filter output lines"
    )


class BashOutputResult(ToolResult):
    """The output is in `stdout` and `stderr`, so `output` is left out."""

    def as_dict(self) -> dict[str, Any]:
        shape = super().as_dict()
        return {
            name: value
            for name, value in shape.items()
            if name != "output" or "stdout" not in self.metadata
        }


def _within_limit(stdout: str, stderr: str) -> tuple[str, str, bool]:
    """Both together within MAX_OUTPUT_SIZE. stderr is kept first: it is usually shorter and says what went wrong."""
    stderr, cut = truncate(
        stderr, MAX_OUTPUT_SIZE if not stdout else MAX_OUTPUT_SIZE // 2
    )
    stdout, cut_too = truncate(stdout, MAX_OUTPUT_SIZE - len(stderr))
    return stdout, stderr, cut or cut_too


class BashOutput(_ShellTool):
    name = "BashOutput"
    does = "reads"
    title = "Bash output"
    description = """Retrieves output from a running or completed background bash shell.

Usage:
- Takes a bash_id parameter identifying the shell
- Returns only new output: what no check has shown yet
- Returns stdout and stderr along with shell status, up to 30000 characters of each check
- Supports optional regex filtering: only lines that match are shown, the others stay new for later checks
- Use this to monitor long-running background commands"""
    summary_template = "Read output of {bash_id}"
    Params = BashOutputParams
    Answer = BashOutputResult

    async def execute(self, params: BashOutputParams, call: Call) -> ToolResult:
        shell = await self.find(params.bash_id)
        chunks = [await shell.read(params.filter)]
        while chunks[-1].looked_at > ONE_READ and len(chunks) < MOST_READS:
            chunks.append(await shell.read(params.filter))
        stdout, stderr, truncated = _within_limit(
            decode(b"".join(chunk.stdout_bytes for chunk in chunks)),
            decode(b"".join(chunk.stderr_bytes for chunk in chunks)),
        )
        dropped = sum(sum(chunk.dropped) for chunk in chunks)
        gap = (
            f"[... {dropped} bytes of earlier output were dropped ...]\n"
            if dropped
            else ""
        )
        return self.done(
            gap + stdout + stderr,
            bash_id=params.bash_id,
            status=chunks[-1].status,
            exit_code=chunks[-1].exit_code,
            stdout=stdout,
            stderr=stderr,
            dropped_bytes=dropped,
            truncated=truncated,
        )


class KillShellParams(Params):
    shell_id: Text = Field(description="The ID of the background shell to kill")


class KillShell(_ShellTool):
    name = "KillShell"
    does = "kills"
    title = "Kill shell"
    description = """Kills a running background bash shell by its ID.

Usage:
- Takes a shell_id parameter identifying the shell to kill
- Returns success or failure status
- Use this to terminate long-running commands"""
    default_risk = "medium"
    summary_template = "Kill {shell_id}"
    Params = KillShellParams

    async def execute(self, params: KillShellParams, call: Call) -> ToolResult:
        shell = await self.find(params.shell_id)
        ended = await shell.poll() != "running"
        await shell.kill()
        message = (
            f"Shell {shell.id} had already ended"
            if ended
            else f"Shell {shell.id} terminated"
        )
        return self.done(
            message, shell_id=shell.id, status=shell.status, exit_code=shell.exit_code
        )


class ListShellsParams(Params):
    cleanup: bool = Field(
        default=False,
        description="Also remove the shells that have ended; the count is returned",
    )


class ListShells(_ShellTool):
    name = "ListShells"
    does = "lists"
    title = "List shells"
    description = "Lists the background shells with their status; with cleanup=true those that ended are removed."
    summary_template = "List shells"
    Params = ListShellsParams

    async def execute(self, params: ListShellsParams, call: Call) -> ToolResult:
        shells = [_listed(shell) for shell in await self.box.refresh()]
        lines = [
            f"{shell['id']}  {shell['status']}  {shell['command']}" for shell in shells
        ]
        removed = await self.box.cleanup() if params.cleanup else 0
        return self.done(
            "\n".join(lines) or "No background shells", shells=shells, removed=removed
        )


def _own_command(shell: Shell) -> str:
    """The command without the first line that `_own_bash` may have added."""
    first, entered, rest = shell.command.partition(ENTERED)
    return (
        rest
        if entered and first.startswith("cd -- ") and "\n" not in first
        else shell.command
    )


def _listed(shell: Shell) -> dict[str, Any]:
    return {
        "id": shell.id,
        "command": _own_command(shell),
        "status": shell.status,
        "exit_code": shell.exit_code,
        "pid": shell.pid,
        "started": shell.started,
    }
