"""The OpenHands SDK on Belljar: the workspace, the tools, and a conversation whose model is a script. No network."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.adapters import examples
from tests.adapters.losing import lost_while

os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
os.environ.setdefault("OPENHANDS_SUPPRESS_BANNER", "1")
examples.needs("openhands")

from openhands.sdk import Agent, Conversation
from openhands.sdk.git.exceptions import GitPathError, GitRepositoryError
from openhands.sdk.git.models import GitChangeStatus
from openhands.sdk.llm import Message, MessageToolCall, TextContent
from openhands.sdk.testing import TestLLM
from openhands.sdk.tool import Tool
from openhands.sdk.workspace.base import BaseWorkspace
from openhands.tools.file_editor.definition import FileEditorAction
from openhands.tools.terminal.definition import TerminalAction

import belljar
from belljar.adapters import openhands
from belljar.adapters.openhands import (
    BelljarFileEditorExecutor,
    BelljarTerminalExecutor,
    BelljarTerminalTool,
    BelljarWorkspace,
    belljar_tools,
)

pytestmark = pytest.mark.engine


def call(name: str, arguments: str) -> Message:
    tool = MessageToolCall(
        id=f"call_{name}", name=name, arguments=arguments, origin="completion"
    )
    return Message(role="assistant", content=[TextContent(text="")], tool_calls=[tool])


DONE = Message(role="assistant", content=[TextContent(text="done")])


def scripted(arguments: str) -> Agent:
    return Agent(
        llm=TestLLM.from_messages([call("terminal", arguments), DONE]),
        tools=belljar_tools(),
    )


@pytest.fixture(scope="module")
def space() -> Iterator[BelljarWorkspace]:
    with BelljarWorkspace() as made:
        yield made


@pytest.fixture
def terminal(space: BelljarWorkspace) -> Iterator[BelljarTerminalExecutor]:
    executor = BelljarTerminalExecutor(space, idle=1)
    yield executor
    executor.close()


def run(terminal: BelljarTerminalExecutor, command: str, **more: Any) -> Any:
    return terminal(TerminalAction(command=command, **more))


@pytest.mark.quick
def test_the_example_runs_a_conversation_to_its_end() -> None:
    llm = TestLLM.from_messages(
        [
            call("terminal", '{"command": "hostname; echo made > report.txt"}'),
            call("file_editor", '{"command": "view", "path": "/workspace/report.txt"}'),
            Message(role="assistant", content=[TextContent(text="report.txt")]),
        ]
    )
    names = asyncio.run(examples.run(openhands, llm=llm))
    assert names["listing"].stdout == "report.txt\n"
    told = " ".join(str(event) for event in names["conversation"].state.events)
    assert "sandbox" in told
    assert "made" in told
    assert not Path("/workspace/report.txt").exists()


def test_a_wrong_option_is_named_and_leaves_no_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(belljar.BelljarError, match="imag"):
        BelljarWorkspace(imag="python")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.quick
def test_commands_end_as_the_sdk_says(space: BelljarWorkspace, tmp_path: Path) -> None:
    seen = space.execute_command("pwd; echo err >&2; exit 3")
    assert (seen.stdout, seen.stderr, seen.exit_code, seen.timeout_occurred) == (
        "/workspace\n",
        "err\n",
        3,
        False,
    )
    late = space.execute_command("echo begun; sleep 600", timeout=0.5)
    assert (late.exit_code, late.timeout_occurred, late.stdout) == (-1, True, "begun\n")
    (tmp_path / "rm.txt").write_text("rm -rf /")
    denied = space.execute_command((tmp_path / "rm.txt").read_text())
    assert denied.exit_code == 126
    assert denied.stderr.startswith("belljar: denied: ")
    assert space.execute_command("pwd", cwd="/tmp").stdout == "/tmp\n"
    assert space.execute_command("pwd", cwd=space.working_dir).stdout == "/workspace\n"
    assert space.execute_command("true", cwd="/nowhere").exit_code != 0


def test_files_are_copied_both_ways(space: BelljarWorkspace, tmp_path: Path) -> None:
    (tmp_path / "up.bin").write_bytes(b"\x00\xff")
    up = space.file_upload(tmp_path / "up.bin", "deep/up.bin")
    assert (up.success, up.file_size, up.error) == (True, 2, None)
    down = space.file_download("deep/up.bin", tmp_path / "new/down.bin")
    assert (down.success, down.file_size) == (True, 2)
    assert (tmp_path / "new/down.bin").read_bytes() == b"\x00\xff"
    missing = space.file_download("missing", tmp_path / "x")
    assert not missing.success
    assert "missing" in (missing.error or "")
    assert not space.file_upload(tmp_path / "nothing", "x").success


def test_changes_and_diffs_are_gits(space: BelljarWorkspace) -> None:
    setup = "mkdir repo && cd repo && git init -q && git config user.email a@b && git config user.name n"
    commit = "printf 'old\\n' > a && touch b && git add . && git commit -qm x"
    assert (
        space.execute_command(
            f"{setup} && {commit} && printf 'new\\n' > a && rm b && touch c"
        ).exit_code
        == 0
    )
    changes = {str(change.path): change.status for change in space.git_changes("repo")}
    assert changes == {
        "a": GitChangeStatus.UPDATED,
        "b": GitChangeStatus.DELETED,
        "c": GitChangeStatus.ADDED,
    }
    assert space.git_diff("repo/a").model_dump() == {
        "modified": "new",
        "original": "old",
    }
    assert space.git_diff("repo/c").model_dump() == {"modified": "", "original": ""}
    assert space.git_diff("repo/b").model_dump() == {"modified": "", "original": ""}
    with pytest.raises(GitPathError):
        space.git_diff("repo/never")
    with pytest.raises(GitRepositoryError):
        space.git_changes("/tmp")


def test_a_named_directory_is_staged(workspace: Path) -> None:
    (workspace / "here.txt").write_text("here\n")
    with BelljarWorkspace(working_dir=workspace) as space:
        assert (
            space.execute_command(
                "cat here.txt; mkdir -p .openhands; echo x > .openhands/hooks.json"
            ).stdout
            == "here\n"
        )
        space.execute_command("echo new > new.txt")
        assert not (workspace / ".openhands").exists()
        space.apply(["new.txt"])
        assert (workspace / "new.txt").read_text() == "new\n"
        assert not (workspace / ".openhands").exists()


def test_without_one_openhands_sees_an_empty_directory_that_ends_with_it() -> None:
    space = BelljarWorkspace()
    place = Path(space.working_dir)
    with space:
        space.execute_command("touch planted")
        assert list(place.iterdir()) == []
        own = Path(space.box.options.workspace)
        assert (own / "planted").exists()
    assert not own.exists()
    saved = space.model_dump(mode="json")
    assert isinstance(BaseWorkspace.model_validate(saved), BelljarWorkspace)
    del space
    assert not place.exists()


def test_a_directory_can_be_mounted_where_openhands_does_not_look(
    workspace: Path,
) -> None:
    with BelljarWorkspace(workspace=str(workspace)) as space:
        space.execute_command("echo made > made.txt")
        assert (workspace / "made.txt").read_text() == "made\n"
        assert not list(Path(space.working_dir).iterdir())


def test_the_sandboxs_own_name_of_its_directory_is_understood() -> None:
    with BelljarWorkspace(working_dir="/workspace") as space:
        assert space.execute_command("pwd").stdout == "/workspace\n"
        assert space.inside("..odd") == "/workspace/..odd"
        assert space.inside("/workspace/a/../b") == space.inside("b") == "/workspace/b"


def test_a_closed_workspace_starts_no_new_sandbox() -> None:
    space = BelljarWorkspace()
    terminal = BelljarTerminalExecutor(space)
    space.close()
    terminal.close()
    terminal.interrupt()
    assert not space.is_open
    with pytest.raises(belljar.BelljarError, match="closed"):
        space.execute_command("true")


def test_a_conversation_is_saved_and_goes_on(tmp_path: Path) -> None:
    agent = scripted('{"command": "echo one > /workspace/one"}')
    with BelljarWorkspace() as space:
        first = Conversation(
            agent=agent, workspace=space, persistence_dir=str(tmp_path)
        )
        first.send_message("-")
        first.run()
        first.close()
        again = scripted('{"command": "cat /workspace/one"}')
        second = Conversation(
            agent=again,
            workspace=space,
            persistence_dir=str(tmp_path),
            conversation_id=first.id,
        )
        second.send_message("-")
        second.run()
        assert any(
            "one" in str(event) and "exit code 0" in str(event)
            for event in second.state.events
        )
        second.close()


@pytest.mark.quick
def test_a_service_far_away_has_the_sandbox(address: str) -> None:
    with BelljarWorkspace(host=address) as space:
        assert space.execute_command("pwd").stdout == "/workspace\n"
        terminal = BelljarTerminalExecutor(space, idle=1)
        run(terminal, "cd /tmp; export A=1")
        assert run(terminal, 'echo "$PWD $A"').text == "/tmp 1"
        assert run(terminal, "read line; echo got $line; sleep 600").exit_code == -1
        assert "got this" in run(terminal, "this", is_input=True).text
        assert run(terminal, "C-c", is_input=True).exit_code == 130
        assert run(terminal, 'echo "$PWD $A"').text == "/tmp 1"
        terminal.close()
        editor = BelljarFileEditorExecutor(space)
        editor(FileEditorAction(command="create", path="/workspace/a", file_text="a\n"))
        assert space.execute_command("cat a").stdout == "a\n"


@pytest.mark.quick
def test_the_terminal_is_one_shell_in_the_sandbox(
    terminal: BelljarTerminalExecutor,
) -> None:
    run(terminal, "cd /tmp && export COLOUR=green && f() { echo f; }")
    seen = run(terminal, "f; echo $COLOUR; pwd")
    assert seen.text == "f\ngreen\n/tmp"
    assert (seen.exit_code, seen.metadata.working_dir, seen.metadata.hostname) == (
        0,
        "/tmp",
        "sandbox",
    )
    assert seen.metadata.suffix == "\n[The command completed with exit code 0.]"
    assert run(terminal, "false").exit_code == 1


def test_a_denied_command_says_why(
    terminal: BelljarTerminalExecutor, tmp_path: Path
) -> None:
    (tmp_path / "rm.txt").write_text("rm -rf /")
    seen = run(terminal, (tmp_path / "rm.txt").read_text())
    assert seen.exit_code == 126
    assert seen.text.startswith("belljar: denied: ")
    assert run(terminal, "echo on").text == "on"


@pytest.mark.quick
def test_a_command_that_waits_is_polled_typed_to_and_interrupted(
    terminal: BelljarTerminalExecutor,
) -> None:
    soft = run(terminal, "echo begun; read line; echo got $line; sleep 600")
    assert (soft.text, soft.exit_code) == ("begun", -1)
    assert "has no new output after 1 seconds" in soft.metadata.suffix
    refused = run(terminal, "echo other")
    assert refused.is_error
    assert "is NOT executed" in refused.metadata.suffix
    typed = run(terminal, "this", is_input=True)
    assert (typed.text, typed.exit_code) == ("got this", -1)
    assert typed.metadata.prefix == "[Below is the output of the previous command.]\n"
    assert run(terminal, "").exit_code == -1
    stopped = run(terminal, "C-c", is_input=True)
    assert stopped.exit_code == 130
    assert "CTRL+C was sent" in stopped.metadata.suffix
    assert run(terminal, "echo free").text == "free"


def test_a_hard_timeout_leaves_the_command_running(
    terminal: BelljarTerminalExecutor,
) -> None:
    seen = run(terminal, "sleep 600", timeout=0.3)
    assert seen.exit_code == -1
    assert "timed out after 0.3 seconds" in seen.metadata.suffix
    terminal.interrupt()
    assert run(terminal, "").exit_code == 130


def test_what_cannot_be_done_is_said(terminal: BelljarTerminalExecutor) -> None:
    assert "No previous running command to retrieve logs from" in run(terminal, "").text
    assert (
        "No previous running command to interact with"
        in run(terminal, "x", is_input=True).text
    )
    assert (
        "Cannot execute multiple commands at once"
        in run(terminal, "echo 1\necho 2").text
    )
    assert "list literal" in run(terminal, '["ls"]').text


def test_a_reset_begins_a_new_shell(terminal: BelljarTerminalExecutor) -> None:
    run(terminal, "cd /tmp; X=1; sleep 600", timeout=0.3)
    seen = run(terminal, 'echo "$PWD $X"', reset=True)
    assert "has been reset" in seen.text
    assert seen.text.endswith("/workspace")
    assert run(terminal, "", reset=True).exit_code == 0


def test_secrets_reach_the_command_and_are_masked(space: BelljarWorkspace) -> None:
    llm = TestLLM.from_messages(
        [
            call(
                "terminal",
                '{"command": "echo token is $API_TOKEN; test ${#API_TOKEN} = 14 && echo whole"}',
            ),
            Message(role="assistant", content=[TextContent(text="done")]),
        ]
    )
    conversation = Conversation(
        agent=Agent(llm=llm, tools=belljar_tools()),
        workspace=space,
        secrets={"API_TOKEN": "very-secret-14"},
    )
    conversation.send_message("-")
    conversation.run()
    told = " ".join(str(event) for event in conversation.state.events)
    assert "whole" in told
    assert "very-secret-14" not in told
    conversation.close()


@pytest.mark.quick
def test_files_of_the_sandbox_are_edited(space: BelljarWorkspace) -> None:
    editor = BelljarFileEditorExecutor(space)

    def edit(command: str, path: str, **more: Any) -> Any:
        return editor(FileEditorAction(command=command, path=path, **more))

    made = edit("create", "/workspace/src/app.py", file_text="one\ntwo\n")
    assert made.text == "File created successfully at: /workspace/src/app.py"
    space.execute_command("chmod 700 src/app.py; ln -s app.py src/link")
    edit("str_replace", "/workspace/src/link", old_str="one", new_str="1")
    edit("undo_edit", "/workspace/src/link")
    assert space.execute_command("readlink src/link").stdout == "app.py\n"
    changed = edit(
        "str_replace", f"{space.working_dir}/src/app.py", old_str="two", new_str="2"
    )
    assert "/workspace/src/app.py has been edited" in changed.text
    assert changed.path == "/workspace/src/app.py"
    assert (
        space.execute_command("cat src/app.py; stat -c %a src/app.py").stdout
        == "one\n2\n700\n"
    )
    edit("insert", "/workspace/src/app.py", insert_line=0, new_str="zero")
    assert (
        "two" in edit("undo_edit", "/workspace/src/app.py").text
        or "one\n" in edit("view", "/workspace/src/app.py").text
    )
    assert "/workspace/src/app.py" in edit("view", "/workspace").text
    assert "sandbox:x:" in edit("view", "/etc/passwd", view_range=[1, 1]).text
    for command, path in (
        ("view", "/workspace/none"),
        ("create", "/workspace/src/app.py"),
        ("view", "src/app.py"),
    ):
        assert edit(command, path, file_text="x").is_error
    denied = edit("create", "/usr/bin/x", file_text="x")
    assert denied.is_error
    space.execute_command("truncate -s 11M big; cp /bin/true bin")
    assert "too large" in edit("view", "/workspace/big").text
    assert "binary" in edit("view", "/workspace/bin").text
    assert not list(Path(editor._mirror).rglob("*.py"))


def test_the_tools_need_this_workspace(tmp_path: Path) -> None:
    state = SimpleNamespace(
        workspace=SimpleNamespace(working_dir=str(tmp_path)),
        env_observation_persistence_dir=None,
    )
    with pytest.raises(ValueError, match="BelljarWorkspace"):
        BelljarTerminalTool.create(state)


def test_openhands_own_names_of_the_tools_mean_the_sandbox_with_this_workspace_alone(
    space: BelljarWorkspace, tmp_path: Path
) -> None:
    def told(workspace: Any) -> str:
        agent = Agent(
            llm=TestLLM.from_messages(
                [call("terminal", '{"command": "hostname; pwd"}'), DONE]
            ),
            tools=[Tool(name="terminal"), Tool(name="file_editor")],
        )
        conversation = Conversation(agent=agent, workspace=workspace)
        conversation.send_message("-")
        conversation.run()
        conversation.close()
        return " ".join(str(event) for event in conversation.state.events)

    assert "sandbox\n/workspace" in told(space)
    assert str(tmp_path) in told(str(tmp_path))


def test_tools_that_would_work_on_this_machine_are_refused(
    space: BelljarWorkspace,
) -> None:

    agent = Agent(
        llm=TestLLM.from_messages([DONE]), tools=[*belljar_tools(), Tool(name="grep")]
    )
    conversation = Conversation(agent=agent, workspace=space)
    with pytest.raises(Exception, match="grep: works on this machine"):
        conversation.send_message("-")


def test_the_sandbox_can_be_paused(space: BelljarWorkspace) -> None:
    space.pause()
    space.resume()
    assert space.execute_command("echo on").stdout == "on\n"


def test_a_lost_sandbox_is_an_error() -> None:
    with BelljarWorkspace() as made:
        terminal = BelljarTerminalExecutor(made, idle=60)
        session = terminal._session
        running = session._execute("sleep 600", TerminalAction(command="sleep 600"))
        with pytest.raises(belljar.SandboxLost):
            made.call(lost_while, made.box, running)
        with pytest.raises(belljar.SandboxLost):
            made.execute_command("true")
        terminal.close()


def test_links_of_a_sandbox_do_not_come_to_the_host(
    space: BelljarWorkspace, tmp_path: Path
) -> None:
    space.execute_command("mkdir -p out; ln -s / out/root; echo 1 > out/file")
    assert space.file_download("out", tmp_path / "out").success
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["file"]


def test_the_editor_looks_at_odd_files(space: BelljarWorkspace) -> None:
    editor = BelljarFileEditorExecutor(space)

    def view(path: str) -> str:
        return editor(FileEditorAction(command="view", path=path)).text

    space.execute_command("mkdir odd; touch $'odd/a\\xffb'; truncate -s 900M large")
    assert "a\ufffdb" in view("/workspace/odd")
    assert "/workspace/" in view("/")
    assert "too large (900.0MB)" in view("/workspace/large")
    assert space.execute_command("stat -c %s large").stdout == "943718400\n"
    name = "n" * 300
    made = FileEditorAction(command="create", path=f"/workspace/{name}", file_text="x")
    assert editor(made).is_error
