"""An agent of Pydantic AI in a Belljar sandbox: a scripted model, no network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters import examples
from tests.adapters.losing import lost_while

examples.needs("pydantic_ai")

from pydantic_ai import Agent, RunContext
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.workspaces import (
    Workspace,
    WorkspaceOutputLimitError,
    WorkspaceRef,
    WorkspaceTimeoutError,
    WorkspaceUnavailableError,
)

import belljar
from belljar.adapters import pydantic_ai as adapter
from belljar.adapters.pydantic_ai import BelljarWorkspaceBackend
from belljar.errors import UsageError

pytestmark = pytest.mark.engine


@pytest.fixture
async def backend() -> AsyncIterator[BelljarWorkspaceBackend]:
    made = BelljarWorkspaceBackend(lease=60)
    yield made
    if made.ref is not None:
        await adapter.destroy(made)


def scripted(*commands: str) -> FunctionModel:
    """A model that calls the tool `shell` with these commands, and then repeats all that came back."""

    async def answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        returned = [
            part.content
            for each in messages
            for part in each.parts
            if isinstance(part, ToolReturnPart)
        ]
        if len(returned) < len(commands):
            return ModelResponse(
                [ToolCallPart("shell", {"command": commands[len(returned)]})]
            )
        return ModelResponse([TextPart("".join(map(str, returned)))])

    return FunctionModel(answer)


@pytest.mark.quick
async def test_the_example_runs_an_agent() -> None:
    names = await examples.run(
        adapter, model=scripted("echo to_file > it; nproc", "cat it", "rm -rf /")
    )
    output: str = names["result"].output
    assert output.startswith(tuple("123456789"))
    assert "to_file\n[exit 0]belljar: denied: " in output
    assert output.endswith("[exit 126]")
    kept = [each.id for each in await belljar.Session.list()]
    assert names["backend"].ref.id not in kept
    with pytest.raises(WorkspaceUnavailableError):
        await names["backend"].run(["true"])


@pytest.mark.quick
async def test_two_runs_share_an_environment_and_a_ref_continues_it(
    backend: BelljarWorkspaceBackend,
) -> None:
    agent: Any = Agent(scripted("cat seen || echo nothing; echo again >> seen"))

    async def shell(ctx: RunContext[None], command: str) -> str:
        return (await ctx.workspace.run(command, shell=True)).stdout

    agent.tool(shell)
    first = await agent.run("look", workspace=backend)
    second = await agent.run("look", workspace=adapter.attach(backend.ref))
    assert (first.output, second.output) == ("nothing\n", "again\n")
    assert await Workspace(backend).read_text("seen") == "again\nagain\n"


def test_it_works_in_one_event_loop_after_another() -> None:
    made = BelljarWorkspaceBackend(lease=60)
    first = anyio.run(made.run, ["sh", "-c", "echo $$ > pid"])
    second = anyio.run(made.read_bytes, "/workspace/pid")
    assert first.exit_code == 0
    assert second.strip().isdigit()
    anyio.run(adapter.destroy, made)


async def test_a_detached_environment_runs_on(backend: BelljarWorkspaceBackend) -> None:
    await backend.write_bytes("/tmp/kept", b"kept")
    ref = backend.ref
    await backend.detach()
    assert await backend.read_bytes("/tmp/kept") == b"kept"
    assert backend.ref == ref


async def test_too_much_output_is_an_error_and_not_half_an_answer(
    backend: BelljarWorkspaceBackend,
) -> None:
    with pytest.raises(WorkspaceOutputLimitError) as error:
        await backend.run("yes", shell=True)
    assert error.value.stdout.startswith("y\ny\n")
    assert (
        len((await backend.run("head -c 10000000 /dev/zero", shell=True)).stdout)
        == 10_000_000
    )


async def test_a_timeout_has_what_was_printed(backend: BelljarWorkspaceBackend) -> None:
    with pytest.raises(WorkspaceTimeoutError) as error:
        await backend.run("echo out; echo err >&2; sleep 600", shell=True, timeout=1)
    assert (error.value.stdout, error.value.stderr) == ("out\n", "err\n")


async def test_a_file_keeps_its_mode(backend: BelljarWorkspaceBackend) -> None:
    await backend.write_bytes("/workspace/run.sh", b"false")
    await backend.run(["chmod", "755", "run.sh"])
    await backend.write_bytes("/workspace/run.sh", b"#!/bin/sh\necho ran")
    assert (await backend.run(["./run.sh"])).stdout == "ran\n"
    assert (await backend.run(["/etc/passwd"])).exit_code == 126


async def test_wrong_arguments_are_pythons_own_errors(
    backend: BelljarWorkspaceBackend,
) -> None:
    with pytest.raises(ValueError, match="absolute"):
        await backend.read_bytes("relative")
    with pytest.raises(ValueError, match="variable"):
        await backend.run("true", shell=True, env={"A": "\0"})
    for timeout in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="timeout"):
            await backend.run(["true"], timeout=timeout)
    with pytest.raises(UsageError, match="imag"):
        BelljarWorkspaceBackend(imag="base")


async def test_a_ref_of_another_provider_or_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="local"):
        adapter.attach(WorkspaceRef(provider="local", id="/"))
    with pytest.raises(WorkspaceUnavailableError):
        await adapter.attach(
            WorkspaceRef(provider="belljar", id="bj-000000000000")
        ).working_dir()
    await adapter.destroy(
        adapter.attach(WorkspaceRef(provider="belljar", id="bj-000000000000"))
    )


async def test_a_sandbox_that_is_lost_is_unavailable(
    backend: BelljarWorkspaceBackend,
) -> None:
    box = await backend.box()
    with pytest.raises(WorkspaceUnavailableError):
        await lost_while(box, backend.run("sleep 600", shell=True))
    with pytest.raises(WorkspaceUnavailableError):
        await backend.read_bytes("/workspace/x")
    assert Path(box.options.workspace).exists()
    await adapter.destroy(backend)
    assert not Path(box.options.workspace).exists()
