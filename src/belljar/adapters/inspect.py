"""Inspect AI: the sandbox provider `belljar`. Each sample has a sandbox of its own, and works in /workspace.

    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import bash
    from inspect_ai.util import SandboxEnvironmentSpec
    from belljar.adapters.inspect import BelljarConfig

    small = SandboxEnvironmentSpec("belljar", BelljarConfig(image="base", limits={"memory": "1g"}))
    samples = [Sample("Which system is this? See /etc/os-release.", target="Debian")]
    task = Task(samples, solver=[use_tools(bash(timeout=60)), generate()], scorer=includes(), sandbox=small)

`sandbox="belljar"` takes the defaults, `sandbox=("belljar", "belljar.toml")` the options of a file. Here commands are
not judged (`policy="none"`) unless a policy is named: an evaluation is to see what the model does, and the container is
the wall. What a policy denies, the model gets as a command that failed with exit status 126.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, overload

from inspect_ai.util import (
    ExecResult,
    OutputLimitExceededError,
    SandboxEnvironment,
    SandboxEnvironmentLimits,
    SandboxUnavailableError,
    SandboxUserUnsupportedError,
    sandboxenv,
)
from pydantic import BaseModel, ConfigDict, model_validator

import belljar
from belljar.adapters import boxes
from belljar.errors import CommandNotExecutable, EngineError, UsageError

POLL_SECONDS = 0.2
START_SERVER = ["start-server"]
"""How Inspect starts its tools' server, with a command that leaves it behind."""
HOLD = '"$@" 2>&1; echo $? >&2; exec sleep 2147483647 >/dev/null 2>&1'
"""Runs a command and goes on, so that what it left running does too. Its status is all that is on stderr."""
WAIT_SECONDS = 5.0


class BelljarConfig(BaseModel, frozen=True):
    """What `belljar.Session` takes, as plain data, which Inspect writes into its logs."""

    model_config = ConfigDict(extra="allow")
    workspace: str | None = None
    """A directory of this machine, the same for all samples. None: each has a new, empty one."""
    host: str | None = None
    """The address of a service; its key is BELLJAR_KEY."""
    policy: str = "none"
    user: str | None = None
    """Whom commands run as that name nobody. None: the sandbox's own user."""

    if TYPE_CHECKING:  # it takes the options of a session too

        def __init__(self, **given: Any) -> None: ...

    @model_validator(mode="after")
    def _known(self) -> BelljarConfig:
        boxes.options_of(self.model_extra or {})
        return self

    async def opened(self, **more: Any) -> Any:
        options = {"policy": self.policy, **(self.model_extra or {}), **more}
        return await boxes.opened(self.workspace, host=self.host, **options)


@sandboxenv(name="belljar")
class BelljarSandboxEnvironment(SandboxEnvironment):
    def __init__(self, box: Any, user: str | None = None) -> None:
        super().__init__()
        self.box = box
        self.user = user

    # Life.

    @classmethod
    async def task_init(cls, task_name: str, config: BaseModel | str | None) -> None:
        """Wrong options and a missing engine or image are found out once, before the first sample."""
        await boxes.closed(await _config(config).opened())

    @classmethod
    async def sample_init(
        cls, task_name: str, config: BaseModel | str | None, metadata: dict[str, str]
    ) -> dict[str, SandboxEnvironment]:
        given = _config(config)
        noted = (
            {"metadata": {"inspect_task": task_name}}
            if "metadata" not in (given.model_extra or {})
            else {}
        )
        return {"default": cls(await given.opened(**noted), given.user)}

    @classmethod
    async def sample_cleanup(
        cls,
        task_name: str,
        config: BaseModel | str | None,
        environments: dict[str, SandboxEnvironment],
        interrupted: bool,
    ) -> None:
        for environment in environments.values():
            await boxes.closed(environment.as_type(BelljarSandboxEnvironment).box)

    @classmethod
    def config_files(cls) -> list[str]:
        return ["belljar.toml", "belljar.json"]

    @classmethod
    def config_deserialize(cls, config: dict[str, Any]) -> BaseModel:
        return BelljarConfig(**config)

    def default_polling_interval(self) -> float:
        return POLL_SECONDS

    # Commands.

    async def exec(
        self,
        cmd: list[str],
        input: str | bytes | None = None,
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        user: str | None = None,
        timeout: int | None = None,
        timeout_retry: bool = True,
        concurrency: bool = True,
    ) -> ExecResult[str]:
        most = SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE
        try:
            if cmd[1:] == START_SERVER and user in (None, "root"):
                return await self._left_running(cmd)
            result = await self.box.run(
                cmd,
                stdin=input,
                cwd=cwd,
                env=env,
                user=user or self.user,
                timeout=timeout,
                output_limit=2
                * most,  # of both streams together; each is looked at below
            )
            boxes.there(result)
        except CommandNotExecutable:
            raise  # also a PermissionError
        except belljar.Unsupported as unsupported:
            raise SandboxUserUnsupportedError(str(unsupported)) from unsupported
        except (belljar.SandboxLost, EngineError) as gone:
            raise SandboxUnavailableError(str(gone)) from gone
        except belljar.BelljarError as error:  # denied, not found, no such directory …
            return ExecResult(False, error.exit_status, "", f"{boxes.reason(error)}\n")
        if result.cause == "timeout":
            raise _timed_out(timeout, result.output)
        _within(most, result.stdout_bytes)
        _within(most, result.stderr_bytes)
        return ExecResult(result.ok, result.exit_code, result.stdout, result.stderr)

    async def _left_running(self, cmd: list[str]) -> ExecResult[str]:
        shell = await self.box.start(["sh", "-c", HOLD, "sh", *cmd])
        shell.close_input()
        output = status = ""
        while not status.endswith("\n") and shell.status == "running":
            chunk = await shell.read(wait=WAIT_SECONDS)
            output, status = output + chunk.stdout, status + chunk.stderr
        number = int(status) if status.strip().isdecimal() else 1
        return ExecResult(number == 0, number, output, "")

    # Files.

    async def write_file(self, file: str, contents: str | bytes) -> None:
        await self.box.files.write(file, contents)

    @overload
    async def read_file(self, file: str, text: Literal[True] = True) -> str: ...

    @overload
    async def read_file(self, file: str, text: Literal[False]) -> bytes: ...

    async def read_file(self, file: str, text: bool = True) -> str | bytes:
        most = SandboxEnvironmentLimits.MAX_READ_FILE_SIZE
        data: bytes = await self.box.files.read(file, length=most + 1)
        if len(data) > most:
            raise OutputLimitExceededError(
                SandboxEnvironmentLimits.MAX_READ_FILE_SIZE_STR, None
            )
        return data.decode() if text else data


def _config(given: BaseModel | str | None) -> BelljarConfig:
    if isinstance(given, BelljarConfig):
        return given
    if isinstance(given, BaseModel):
        raise UsageError(
            f"the sandbox belljar is configured by a BelljarConfig, not a {type(given).__name__}"
        )
    return BelljarConfig(**(boxes.options_in(given) if given else {}))


def _timed_out(timeout: int | None, output: str) -> TimeoutError:
    error = TimeoutError(f"Command timed out after {timeout} seconds")
    if output:
        error.truncated_output = output  # type: ignore[attr-defined]  # Inspect shows it to the model
    return error


def _within(most: int, data: bytes) -> None:
    if len(data) > most:
        shown = data[:most].decode("utf-8", "replace")
        raise OutputLimitExceededError(
            SandboxEnvironmentLimits.MAX_EXEC_OUTPUT_SIZE_STR, shown
        )
