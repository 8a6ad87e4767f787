"""Evaluations with Inspect in Belljar's sandboxes: a scripted model, no network."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.adapters import examples

examples.needs("inspect_ai")

import inspect_ai
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ModelOutput, get_model
from inspect_ai.scorer import includes
from inspect_ai.solver import generate, solver, use_tools
from inspect_ai.tool import bash, bash_session, text_editor
from inspect_ai.util import (
    OutputLimitExceededError,
    SandboxEnvironmentSpec,
    SandboxUnavailableError,
    override_sandbox_output_limit,
)
from inspect_ai.util import sandbox as sandbox_of_sample

from belljar.adapters import inspect as adapter
from belljar.adapters.inspect import BelljarConfig, BelljarSandboxEnvironment
from belljar.errors import ImageMissing, UsageError

pytestmark = pytest.mark.engine
KIBIBYTE = 1024


@pytest.fixture
async def sandbox() -> AsyncIterator[BelljarSandboxEnvironment]:
    made = await BelljarSandboxEnvironment.sample_init("test", None, {})
    yield made["default"].as_type(BelljarSandboxEnvironment)
    await BelljarSandboxEnvironment.sample_cleanup("test", None, made, False)


def scripted(*commands: str) -> Any:
    """A model that runs these commands with the tool `bash`, and then repeats what the last one printed."""
    return calling(*(("bash", {"command": command}) for command in commands))


def calling(*calls: tuple[str, dict[str, Any]]) -> Any:
    def answer(messages: Any, *_: Any) -> ModelOutput:
        results = [
            message for message in messages if isinstance(message, ChatMessageTool)
        ]
        if len(results) < len(calls):
            return ModelOutput.for_tool_call("mockllm/model", *calls[len(results)])
        return ModelOutput.from_content("mockllm/model", results[-1].text)

    model = get_model("mockllm/model", custom_outputs=answer)
    model.api.count_text_tokens = _words  # its own downloads a table
    return model


async def _words(text: str) -> int:
    return len(text.split())


def evaluated(task: inspect_ai.Task, model: Any, logs: Path) -> Any:
    (log,) = inspect_ai.eval(
        task, model=model, log_dir=str(logs), display="none", max_samples=20
    )
    assert log.status == "success", log.error
    return log


@pytest.mark.quick
def test_the_example_is_evaluated(tmp_path: Path) -> None:
    task = anyio.run(lambda: examples.run(adapter))["task"]
    assert task.sandbox.config.image == "base"
    log = evaluated(task, scripted("cat /etc/os-release"), tmp_path)
    assert log.results.scores[0].metrics["accuracy"].value == 1


@pytest.mark.quick
def test_twenty_samples_at_once_have_a_sandbox_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    samples = [
        Sample(
            f"sample {number}",
            target=f"count {number}",
            files={"numbers.txt": "\n" * number},
            setup="touch ready",
        )
        for number in range(20)
    ]
    solver = [use_tools(bash(timeout=30)), generate()]
    task = inspect_ai.Task(samples, solver=solver, scorer=includes(), sandbox="belljar")
    model = scripted(
        "pwd; ls", 'rm numbers.txt -v; echo "count $(ls | wc -l)"', "cat /etc/shadow"
    )
    log = evaluated(task, model, tmp_path / "logs")
    tools = [
        [message.text for message in sample.messages if message.role == "tool"]
        for sample in log.samples
    ]
    assert len(tools) == 20
    assert all(first == "/workspace\nnumbers.txt\nready\n" for first, _, _ in tools)
    assert all("removed 'numbers.txt'\ncount 1" in second for _, second, _ in tools)
    assert all("denied" in third for _, _, third in tools)
    assert list(tmp_path.glob("belljar-workspace-*")) == []


@pytest.mark.quick
def test_a_policy_that_denies_tells_the_model_why(tmp_path: Path) -> None:
    sandbox = SandboxEnvironmentSpec(
        "belljar", BelljarConfig(policy="default", image="base")
    )
    task = inspect_ai.Task(
        [Sample("tidy up")], solver=[use_tools(bash()), generate()], sandbox=sandbox
    )
    log = evaluated(task, scripted("rm -rf /"), tmp_path)
    (sample,) = log.samples
    assert sample.output.completion.startswith("belljar: denied: ")
    again = SandboxEnvironmentSpec.model_validate(log.eval.sandbox.model_dump())
    assert again.config == BelljarConfig(policy="default", image="base")


def remotely() -> Any:
    async def solve(state: Any, generate: Any) -> Any:
        found = await sandbox_of_sample().exec_remote(
            ["sh", "-c", "echo remotely; exit 3"], stream=False
        )
        assert (found.stdout, found.returncode) == ("remotely\n", 3)
        return state

    return solve


@pytest.mark.parametrize("where", ["near", "far"])
def test_inspects_tools_that_keep_a_server_in_the_sandbox_work(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    config = (
        BelljarConfig(host=request.getfixturevalue("address"))
        if where == "far"
        else BelljarConfig()
    )
    sandbox = SandboxEnvironmentSpec("belljar", config)
    tools = [bash_session(timeout=210), text_editor(timeout=60)]
    model = calling(
        ("bash_session", {"action": "type_submit", "input": "cd /tmp; NUMBER=6"}),
        (
            "bash_session",
            {"action": "type_submit", "input": "echo $PWD $((NUMBER * 7))"},
        ),
        (
            "text_editor",
            {"command": "create", "path": "/tmp/a", "file_text": "one\ntwo\n"},
        ),
        (
            "text_editor",
            {
                "command": "str_replace",
                "path": "/tmp/a",
                "old_str": "one",
                "new_str": "1",
            },
        ),
        ("text_editor", {"command": "undo_edit", "path": "/tmp/a"}),
    )
    task = inspect_ai.Task(
        [Sample("edit")],
        solver=[solver(remotely)(), use_tools(tools), generate()],
        sandbox=sandbox,
    )
    (sample,) = evaluated(task, model, tmp_path).samples
    said = [message.text for message in sample.messages if message.role == "tool"]
    assert "/tmp 42" in said[1]
    assert "edited" in said[3]
    assert "one" in said[4]


def test_options_of_a_file_are_the_sandboxs(tmp_path: Path) -> None:
    (tmp_path / "belljar.toml").write_text(
        'env = { COLOUR = "green" }\nlimits = { memory = "256m" }\n'
    )
    solver = [use_tools(bash()), generate()]
    task = inspect_ai.Task(
        [Sample("which colour?", target="green")],
        solver=solver,
        scorer=includes(),
        sandbox=("belljar", str(tmp_path / "belljar.toml")),
    )
    log = evaluated(task, scripted("echo $COLOUR"), tmp_path / "logs")
    assert log.results.scores[0].metrics["accuracy"].value == 1


async def test_wrong_options_are_found_before_the_first_sample() -> None:
    with pytest.raises(UsageError, match="image"):
        BelljarConfig(imag="base")
    with pytest.raises(ImageMissing):
        await BelljarSandboxEnvironment.task_init(
            "test", BelljarConfig(image="no-such-image-anywhere")
        )


async def test_a_timeout_keeps_what_was_printed(
    sandbox: BelljarSandboxEnvironment,
) -> None:
    with pytest.raises(TimeoutError) as timed_out:
        await sandbox.exec(["sh", "-c", "echo begun; sleep 600"], timeout=1)
    assert timed_out.value.truncated_output == "begun\n"


async def test_each_stream_may_be_as_long_as_the_limit(
    sandbox: BelljarSandboxEnvironment,
) -> None:
    flood = "head -c {} /dev/zero | tr '\\0' x"
    with override_sandbox_output_limit(64 * KIBIBYTE):
        both = await sandbox.exec(
            ["sh", "-c", f"{flood.format(65536)}; ({flood.format(65536)}) >&2"]
        )
        assert [len(both.stdout), len(both.stderr)] == [65536, 65536]
        for size in (65537, 1 << 20):
            with pytest.raises(OutputLimitExceededError) as error:
                await sandbox.exec(["sh", "-c", flood.format(size)])
            assert error.value.truncated_output == "x" * 65536
        assert (await sandbox.exec(["true"])).success


async def test_what_cannot_run_is_a_failed_command(
    sandbox: BelljarSandboxEnvironment,
) -> None:
    missing = await sandbox.exec(["no-such-program"])
    assert (missing.success, missing.returncode) == (False, 127)
    assert "no-such-program" in missing.stderr
    nowhere = await sandbox.exec(["true"], cwd="no/such/directory")
    assert not nowhere.success
    assert nowhere.stderr
    assert not (await sandbox.exec(["echo", "NUL \0 byte"])).success


async def test_only_a_servers_command_leaves_something_running(
    sandbox: BelljarSandboxEnvironment,
) -> None:
    await sandbox.write_file(
        "serve", "#!/bin/sh\nsleep 601 &\necho started; echo $1 >&2; exit 3"
    )
    await sandbox.exec(["chmod", "+x", "serve"])
    started = await sandbox.exec(["./serve", "start-server"])
    assert (started.success, started.returncode, started.stdout) == (
        False,
        3,
        "started\nstart-server\n",
    )
    other = await sandbox.exec(["sh", "-c", "sleep 602 & echo started"])
    assert other.stdout == "started\n"
    left = await sandbox.exec(
        ["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' ' | grep -o 'sleep 60[12]'"]
    )
    assert left.stdout == "sleep 601\n"


async def test_a_lost_sandbox_is_unavailable(
    sandbox: BelljarSandboxEnvironment,
) -> None:
    await sandbox.box.sandbox.destroy()
    with pytest.raises(SandboxUnavailableError):
        await sandbox.exec(["true"])
