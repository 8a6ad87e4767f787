"""SWE-ReX, which SWE-agent runs on: a deployment whose runtime is a sandbox.

    from belljar.adapters.swerex import BelljarDeployment
    from swerex.runtime.abstract import BashAction, CreateBashSessionRequest

    deployment = BelljarDeployment(image="base", limits={"memory": "1g"})
    await deployment.start()
    await deployment.runtime.create_session(CreateBashSessionRequest())
    seen = await deployment.runtime.run_in_session(BashAction(command="cd /tmp; pwd"))
    await deployment.stop()

Each session is a bash of its own on a terminal. Its commands are judged one by one; a denied one ends with status 126
and the reason as its output. What is typed into a program that runs (`is_interactive_command`) is not judged: it is
that program's input.
"""

from __future__ import annotations

import asyncio
import posixpath
from pathlib import Path
from typing import Any

from anyio import to_thread
from swerex import exceptions
from swerex.deployment.abstract import AbstractDeployment
from swerex.deployment.hooks.abstract import CombinedDeploymentHook, DeploymentHook
from swerex.runtime import abstract as swe
from swerex.utils.log import get_logger

import belljar
from belljar.adapters import boxes
from belljar.adapters.terminals import INTERRUPT, SUSPEND, Seen, Terminal

PROMPT = "SHELLPS1PREFIX"
"""What `expect_string` says if the command has ended, as in SWE-ReX's own sessions."""


class BashSession:
    """A command that takes longer than its action may goes on, until it is interrupted."""

    def __init__(self, box: Any) -> None:
        self._box = box
        self._terminal = Terminal(box)

    async def start(self, request: swe.CreateBashSessionRequest) -> str:
        await self._terminal.open()
        output = ""
        for path in request.startup_source:
            action = swe.BashAction(
                command=f"source {path}",
                timeout=request.startup_timeout,
                check="silent",
            )
            output += (await self.run(action)).output
        return output

    async def run(self, action: swe.BashAction) -> swe.BashObservation:
        if not action.command.strip() and not self._terminal.is_busy:
            return swe.BashObservation(exit_code=0, expect_string=PROMPT)
        try:
            seen = await self._run(action)
        except belljar.PolicyDenied as denied:
            seen = _denied(denied, action.command)
        if action.check == "ignore":
            return seen.model_copy(update={"exit_code": None})
        if action.check == "raise" and seen.exit_code != 0:
            raise exceptions.NonZeroExitCodeError(
                _failed(action, seen.exit_code, seen.output)
            )
        return seen

    async def _run(self, action: swe.BashAction) -> swe.BashObservation:
        is_typed = action.is_interactive_command or action.is_interactive_quit
        if self._terminal.is_busy and is_typed:
            await self._terminal.type(action.command.encode() + b"\n")
        else:
            if self._terminal.is_busy:  # what still runs has this action's time to end
                await self._wait([], action.timeout, action.command)
            self._terminal.begin(action.command)
        seen = await self._wait(action.expect, action.timeout, action.command)
        output = seen.output
        if seen.result is None:
            if is_typed:
                output = output.lstrip().removeprefix(action.command).strip()
            return swe.BashObservation(
                output=output, exit_code=0, expect_string=seen.matched or ""
            )
        if "syntax error" in output and not seen.result.ok:
            await self._check_syntax(action.command)
        status = 0 if is_typed else seen.result.exit_code
        return swe.BashObservation(
            output=output, exit_code=status, expect_string=PROMPT
        )

    async def interrupt(self, action: swe.BashInterruptAction) -> swe.BashObservation:
        """Ctrl+C; if the program survives it, Ctrl+Z and SIGKILL; at last the whole shell is replaced."""
        output = ""
        for key in [INTERRUPT] * action.n_retry + [SUSPEND]:
            if not self._terminal.is_busy:
                break
            await self._terminal.type(key)
            seen = await self._terminal.wait(action.expect, timeout=action.timeout)
            output += seen.output
            if seen.matched is not None:
                return swe.BashObservation(
                    output=output.strip(), exit_code=0, expect_string=seen.matched
                )
            if seen.result is not None and key == SUSPEND:
                await self._terminal.kill_suspended()
        if self._terminal.is_busy:
            await self._terminal.interrupt()
            output += (await self._terminal.wait()).output
        return swe.BashObservation(
            output=output.strip(), exit_code=0, expect_string=PROMPT
        )

    async def close(self) -> None:
        await self._terminal.close()

    async def _wait(
        self, expect: list[str], timeout: float | None, command: str
    ) -> Seen:
        seen = await self._terminal.wait(expect, timeout=timeout)
        if seen.result is None and seen.matched is None:
            raise exceptions.CommandTimeoutError(
                f"timeout after {timeout} seconds while running command {command!r}"
            )
        return seen

    async def _check_syntax(self, command: str) -> None:
        """Only where nothing is judged: the policy refuses what does not parse."""
        checked = await self._box.run(["bash", "-n", "-c", command])
        if not checked.ok:
            raise _syntax_error(command, checked.stdout, checked.stderr)


def _failed(request: Any, status: int | None, output: str) -> str:
    message = f"Command {request.command!r} failed with exit code {status}. Here is the output:\n{output!r}"
    return f"{request.error_msg}: {message}" if request.error_msg else message


def _syntax_error(
    command: str, stdout: str, stderr: str
) -> exceptions.BashIncorrectSyntaxError:
    message = f"Error while checking bash command \n{command!r}\n---- Stderr ----\n{stderr}\n---- Stdout ----\n{stdout}"
    extra = {"bash_stdout": stdout, "bash_stderr": stderr}
    return exceptions.BashIncorrectSyntaxError(message, extra_info=extra)


def _denied(denied: belljar.PolicyDenied, command: str) -> swe.BashObservation:
    if any(rule.id == "text.unparseable" for rule in denied.verdict.rules):
        raise _syntax_error(command, "", str(denied)) from denied
    return swe.BashObservation(
        output=f"{boxes.reason(denied)}\n",
        exit_code=denied.exit_status,
        expect_string=PROMPT,
    )


class BelljarRuntime(swe.AbstractRuntime):
    """An open `belljar.Session` as SWE-ReX's runtime."""

    def __init__(self, box: Any, *, logger: Any = None) -> None:
        self.box = box
        self.logger = logger or get_logger("rex-runtime")
        self._sessions: dict[str, BashSession] = {}

    async def is_alive(self, *, timeout: float | None = None) -> swe.IsAliveResponse:
        try:
            async with asyncio.timeout(timeout):
                await self.box.ping()
        except (belljar.BelljarError, TimeoutError, RuntimeError) as error:
            return swe.IsAliveResponse(
                is_alive=False, message=str(error) or "the sandbox does not answer"
            )
        return swe.IsAliveResponse(is_alive=True)

    async def create_session(self, request: Any) -> swe.CreateBashSessionResponse:
        if request.session in self._sessions:
            raise exceptions.SessionExistsError(
                f"session {request.session} already exists"
            )
        session = BashSession(self.box)
        self._sessions[request.session] = session
        try:
            return swe.CreateBashSessionResponse(output=await session.start(request))
        except BaseException:
            del self._sessions[request.session]
            raise

    async def run_in_session(self, action: Any) -> swe.BashObservation:
        session = self._session(action.session)
        if isinstance(action, swe.BashInterruptAction):
            return await session.interrupt(action)
        return await session.run(action)

    async def close_session(self, request: Any) -> swe.CloseBashSessionResponse:
        await self._session(request.session).close()
        del self._sessions[request.session]
        return swe.CloseBashSessionResponse()

    def _session(self, name: str) -> BashSession:
        if name not in self._sessions:
            raise exceptions.SessionDoesNotExistError(
                f"session {name!r} does not exist"
            )
        return self._sessions[name]

    async def execute(self, command: swe.Command) -> swe.CommandResponse:
        words = command.command
        argv = (
            ["/bin/sh", "-c", words]
            if command.shell
            else [words]
            if isinstance(words, str)
            else words
        )
        options: dict[str, Any] = {
            "timeout": command.timeout,
            "combined": command.merge_output_streams,
        }
        if command.env is not None:
            options |= {"env": command.env, "clean_env": True}
        try:
            result, stdout, stderr = await boxes.run_whole(
                self.box, argv, cwd=command.cwd, **options
            )
        except belljar.PolicyDenied as denied:
            seen = swe.CommandResponse(
                stderr=f"{boxes.reason(denied)}\n", exit_code=denied.exit_status
            )
        else:
            if result.cause == "timeout":
                raise exceptions.CommandTimeoutError(
                    f"Timeout ({command.timeout}s) exceeded while running command"
                )
            texts = [
                stream.decode(errors="backslashreplace") for stream in (stdout, stderr)
            ]
            if result.cause == "output_limit":
                texts[1] += f"belljar: killed at {boxes.MOST_OUTPUT} bytes of output\n"
            seen = swe.CommandResponse(
                stdout=texts[0], stderr=texts[1], exit_code=result.exit_code
            )
        if command.check and seen.exit_code != 0:
            raise exceptions.NonZeroExitCodeError(
                _failed(command, seen.exit_code, seen.stdout + seen.stderr)
            )
        return seen

    async def read_file(self, request: swe.ReadFileRequest) -> swe.ReadFileResponse:
        content = await self.box.files.read(request.path)
        return swe.ReadFileResponse(
            content=content.decode(
                request.encoding or "utf-8", request.errors or "strict"
            )
        )

    async def write_file(self, request: swe.WriteFileRequest) -> swe.WriteFileResponse:
        await boxes.write(self.box, request.path, request.content)
        return swe.WriteFileResponse()

    async def upload(self, request: swe.UploadRequest) -> swe.UploadResponse:
        target = request.target_path
        is_file = await to_thread.run_sync(Path(request.source_path).is_file)
        if is_file and await self._is_directory(target):
            target = posixpath.join(target, Path(request.source_path).name)
        await self.box.files.upload(request.source_path, target)
        return swe.UploadResponse()

    async def _is_directory(self, path: str) -> bool:
        try:
            return bool((await self.box.files.stat(path)).kind == "directory")
        except FileNotFoundError:
            return False

    async def close(self) -> swe.CloseResponse:
        for name in list(self._sessions):
            await self.close_session(swe.CloseBashSessionRequest(session=name))
        return swe.CloseResponse()


class BelljarDeployment(AbstractDeployment):
    """Starts and stops the sandbox. The options are those of `belljar.Session`, and `host`."""

    def __init__(self, *, logger: Any = None, **options: Any) -> None:
        self.logger = logger or get_logger("rex-deploy")
        self._options = options
        self._hooks = CombinedDeploymentHook()
        self._runtime: BelljarRuntime | None = None

    def add_hook(self, hook: DeploymentHook) -> None:
        self._hooks.add_hook(hook)

    async def is_alive(self, *, timeout: float | None = None) -> swe.IsAliveResponse:
        if self._runtime is None:
            raise exceptions.DeploymentNotStartedError
        return await self._runtime.is_alive(timeout=timeout)

    async def start(self) -> None:
        if self._runtime is not None:
            return
        self._hooks.on_custom_step("Starting a sandbox")
        try:
            box = await boxes.opened(**self._options)
        except belljar.BelljarError as error:
            raise exceptions.DeploymentStartupError(str(error)) from error
        self._runtime = BelljarRuntime(box, logger=get_logger("rex-runtime"))

    async def stop(self) -> None:
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await boxes.closed(runtime.box)

    @property
    def runtime(self) -> BelljarRuntime:
        if self._runtime is None:
            raise exceptions.DeploymentNotStartedError
        return self._runtime
