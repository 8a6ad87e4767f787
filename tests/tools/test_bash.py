"""Tool family B: `Bash`, `BashOutput`, `KillShell` and `ListShells`, as their document's table requires."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import anyio
import pytest

from belljar import Output, Session, ToolRegistry, Verdict
from belljar.session.judging import judged
from belljar.tools import ToolResult
from belljar.tools.bash import RESTARTED


async def bash(tools: ToolRegistry, command: str, **params: Any) -> ToolResult:
    return await tools.call("Bash", {"command": command, **params})


async def start(tools: ToolRegistry, command: str) -> str:
    result = await bash(tools, command, run_in_background=True)
    assert result.success, result.error
    return str(result.metadata.shell_id)


async def ended(box: Session, id: str) -> None:
    await box.shell(id).wait(120)


async def test_a_command_gives_output_and_exit_code(tools: ToolRegistry) -> None:
    result = await bash(
        tools, "echo out; echo err >&2", description="Prints on both streams"
    )
    assert result.success
    assert sorted((result.output or "").split()) == ["err", "out"]
    assert result.error is None
    assert result.metadata.exit_code == 0
    assert set(result.as_dict()) == {"success", "output", "error", "metadata"}


async def test_a_failing_command_returns_its_exit_code(tools: ToolRegistry) -> None:
    result = await bash(tools, "echo before; (exit 3)")
    assert (result.success, result.output, result.metadata.exit_code) == (
        False,
        "before\n",
        3,
    )
    assert result.error == "Command failed with exit code 3"


async def test_the_session_is_persistent(tools: ToolRegistry) -> None:
    await bash(
        tools,
        "cd sub && export GREETING=hi; greet() { echo $GREETING $1; }; alias g=greet; set -o noglob",
    )
    result = await bash(tools, "pwd; greet you; g me; echo *")
    assert result.output == "/workspace/sub\nhi you\nhi me\n*\n"
    assert result.metadata.working_directory == "/workspace/sub"
    await bash(tools, "cd ..; set +o noglob")


async def test_chaining_works_as_typed(tools: ToolRegistry) -> None:
    assert (await bash(tools, "false && echo a || echo b; echo c")).output == "b\nc\n"


async def test_paths_with_spaces_work_quoted(tools: ToolRegistry) -> None:
    await bash(tools, 'mkdir "/tmp/a b"; echo x > "/tmp/a b/c d"')
    assert (await bash(tools, 'cat "/tmp/a b/c d"')).output == "x\n"


async def test_after_a_timeout_the_session_is_usable_again(tools: ToolRegistry) -> None:
    await bash(tools, "cd sub; export KEPT=yes")
    result = await bash(tools, "echo partial; sleep 60", timeout=1000)
    assert (result.success, result.output, result.error) == (
        False,
        "partial\n",
        "Command timed out after 1000ms",
    )
    assert result.metadata.restarted
    assert "restarted" in result.text
    after = await bash(tools, "echo $PWD $KEPT; cd ..")
    assert (after.output, after.metadata.restarted) == ("/workspace/sub yes\n", False)


async def test_output_of_a_cancelled_call_is_dropped_and_the_next_call_reports_the_restart(
    tools: ToolRegistry,
) -> None:
    await bash(tools, "f() { echo f; }")
    with anyio.CancelScope() as scope:
        call = {"command": "echo SECRET; sleep 60"}
        await tools.call("Bash", call, on_output=lambda output: scope.cancel())
    after = await bash(tools, "echo next; f")
    assert "SECRET" not in after.text
    assert (after.metadata.restarted, after.metadata.note) == (True, RESTARTED)


async def test_an_exit_by_the_command_is_reported_as_the_end_of_the_shell(
    tools: ToolRegistry,
) -> None:
    await bash(tools, "cd sub; export LEFT=yes")
    result = await bash(tools, "exit 3")
    assert (result.metadata.exit_code, result.error) == (
        3,
        "Command failed with exit code 3",
    )
    assert "That ended the shell. The next command starts a new one" in result.text
    after = await bash(tools, 'echo "$PWD $LEFT"; cd /workspace')
    assert after.text == "/workspace/sub yes\n"


async def test_an_abort_is_a_ctrl_c(tools: ToolRegistry) -> None:
    abort = anyio.Event()
    result = await tools.call(
        "Bash",
        {"command": "echo up; sleep 60"},
        on_output=lambda _: abort.set(),
        abort=abort,
    )
    assert (result.success, result.output, result.error) == (
        False,
        "up\n",
        "Command interrupted",
    )
    assert (await bash(tools, "echo fine")).output == "fine\n"


async def test_output_is_streamed_while_it_runs(
    tools: ToolRegistry, box: Session
) -> None:
    """The command can end only after the test has seen its first line."""
    heard = list[Output]()
    first = anyio.Event()

    def listen(output: Output) -> None:
        heard.append(output)
        first.set()

    async def answer() -> None:
        await first.wait()
        await box.run("echo go > /tmp/stream-gate")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(answer)
        command = {
            "command": "mkfifo /tmp/stream-gate; echo first; cat /tmp/stream-gate"
        }
        result = await tools.call("Bash", command, on_output=listen)
    assert result.output == "first\ngo\n"
    assert heard[0] == Output("stdout", b"first\n")


async def test_output_over_30000_characters_is_truncated(tools: ToolRegistry) -> None:
    assert (
        len((await bash(tools, "head -c 30000 /dev/zero | tr '\\0' a")).output or "")
        == 30_000
    )
    result = await bash(
        tools, "echo begin; python3 -c \"print('é' * 40000)\"; echo end"
    )
    assert result.metadata.truncated
    assert result.output is not None
    assert len(result.output) <= 30_000
    assert result.output.startswith("begin\né")
    assert result.output.endswith("é\nend\n")
    assert re.search(r"\n\[\.\.\. \d+ characters truncated \.\.\.\]\n", result.output)
    assert "�" not in result.output


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "mkfs.ext4 /dev/sda",
        "dd if=/dev/zero of=/dev/sda",
        "echo > /dev/sda",
        "chmod -R 777 /",
        ":(){ :|:& };:",
    ],
)
async def test_dangerous_commands_are_blocked(
    tools: ToolRegistry, command: str
) -> None:
    for params in ({}, {"run_in_background": True}, {"yield_after": 1000}):
        result = await bash(tools, command, **params)
        assert not result.success
        assert (result.error or "").startswith(
            f"Command blocked for security reasons: {command}"
        )
        assert result.metadata.verdict["reason"] in (result.error or "")


@pytest.mark.parametrize(
    "command",
    ["git status", "npm test", "yarn build", "pnpm run x", "docker ps", "ls", "pwd", "echo hi", "cat x", "python3 a.py",
     "node a.js", "make", "cmake .", "grep -r x .", "find . -name x", "awk '{print $1}' x", "sed -n 1p x"],
)  # fmt: skip
async def test_everyday_commands_need_no_confirmation(
    tools: ToolRegistry, command: str
) -> None:
    assert (await judged(tools.get("Bash").policy, command)).decision == "allow"


async def test_a_command_that_needs_approval_runs_only_with_a_yes(place: Path) -> None:
    asked = list[str]()

    def approve(verdict: Verdict) -> bool:
        asked.append(verdict.canonical)
        return "yes" in verdict.canonical

    async with Session(place, approve=approve) as box:
        tools = ToolRegistry(box)
        assert (await bash(tools, "sudo echo yes")).metadata.exit_code == 127, (
            "it ran, and there is no sudo inside"
        )
        refused = await bash(tools, "sudo echo no")
    assert asked == ["sudo echo yes", "sudo echo no"]
    assert (refused.error or "").startswith("Declined by a person: sudo echo no\n")


async def test_a_dry_run_says_what_would_run(box: Session) -> None:
    result = await ToolRegistry(box, dry_run=True).call(
        "Bash", {"command": "touch /workspace/never"}
    )
    assert result.success
    assert result.output == "[Dry Run] Would execute: touch /workspace/never"
    assert result.metadata == {"command": "touch /workspace/never", "dry_run": True}
    assert not (await box.run("test -e never")).ok


async def test_a_background_command_returns_its_id_at_once(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "echo begin; sleep 60")
    assert re.fullmatch(r"shell_[0-9a-f]{8}", id)
    assert (
        await tools.call("KillShell", {"shell_id": id})
    ).output == f"Shell {id} terminated"


async def test_a_background_command_starts_where_the_session_is(
    tools: ToolRegistry, box: Session
) -> None:
    await bash(tools, "cd sub; export FROM='the session'")
    id = await start(tools, 'pwd; echo "$FROM"')
    await bash(tools, "cd /tmp")
    elsewhere = await start(tools, "pwd")
    listed = (await tools.call("ListShells", {})).metadata.shells
    assert [shell["command"] for shell in listed if shell["id"] == elsewhere] == [
        "pwd"
    ], "as it was asked for"
    asked = await tools.call("Bash", {"command": "pwd", "run_in_background": True})
    assert asked.metadata.command == "pwd"
    await bash(tools, "cd /workspace")
    await ended(box, id)
    await ended(box, elsewhere)
    assert (
        await tools.call("BashOutput", {"bash_id": id})
    ).output == "/workspace/sub\nthe session\n"
    assert (await tools.call("BashOutput", {"bash_id": elsewhere})).output == "/tmp\n"


async def test_bash_output_gives_only_what_is_new(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(
        tools,
        "mkfifo /tmp/new-gate; echo one; echo e1 >&2; read < /tmp/new-gate; echo two; exit 4",
    )
    shell = box.shell(id)
    await shell.read(offset=0, wait=20)
    await box.run("until [ -p /tmp/new-gate ]; do sleep 0.01; done")
    first = await tools.call("BashOutput", {"bash_id": id})
    while "e1" not in first.metadata.stderr:
        first = await tools.call("BashOutput", {"bash_id": id})
    assert (first.metadata.status, first.metadata.exit_code) == ("running", None)
    assert (await tools.call("BashOutput", {"bash_id": id})).output == ""
    await box.run("echo > /tmp/new-gate")
    await ended(box, id)
    last = await tools.call("BashOutput", {"bash_id": id})
    assert (last.output, last.metadata.status, last.metadata.exit_code) == (
        "two\n",
        "failed",
        4,
    )
    assert (await tools.call("BashOutput", {"bash_id": id})).output == ""


async def test_bash_output_keeps_stdout_and_stderr_apart(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "echo out; echo err >&2")
    await ended(box, id)
    result = await tools.call("BashOutput", {"bash_id": id})
    assert (result.metadata.stdout, result.metadata.stderr) == ("out\n", "err\n")
    assert result.as_dict().keys() == {"success", "error", "metadata"}, (
        "sent once, and no empty field beside it"
    )
    assert (
        result.metadata.bash_id,
        result.metadata.status,
        result.metadata.exit_code,
    ) == (id, "completed", 0)


async def test_dropped_output_is_reported_with_its_size(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "head -c 3000000 /dev/zero | tr '\\0' x; echo end")
    await ended(box, id)
    result = await tools.call("BashOutput", {"bash_id": id})
    dropped = 3_000_004 - box.limits.shell_output
    assert result.metadata.dropped_bytes == dropped
    assert (result.output or "").startswith(
        f"[... {dropped} bytes of earlier output were dropped ...]\nxxx"
    )
    assert (result.output or "").endswith("x" + "end\n")
    assert len(result.output or "") < 31_000


@pytest.mark.parametrize(
    ("tool", "parameter"), [("BashOutput", "bash_id"), ("KillShell", "shell_id")]
)
async def test_an_unknown_shell_is_not_found(
    tools: ToolRegistry, tool: str, parameter: str
) -> None:
    result = await tools.call(tool, {parameter: "shell_00000000"})
    assert (result.success, result.error) == (False, "Shell not found: shell_00000000")


async def test_kill_shell_ends_the_whole_tree(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "setsid sleep 7654321 & sleep 7654321")
    result = await tools.call("KillShell", {"shell_id": id})
    assert (result.success, result.metadata.status) == (True, "killed")
    assert (await box.run("pgrep -cf 'sleep 765432[1]'")).stdout == "0\n"
    assert (await tools.call("BashOutput", {"bash_id": id})).metadata.status == "killed"


async def test_killing_an_ended_shell_is_handled_gracefully(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "true")
    await ended(box, id)
    result = await tools.call("KillShell", {"shell_id": id})
    assert (result.success, result.output) == (True, f"Shell {id} had already ended")
    assert result.metadata.status == "completed"


async def test_shells_are_listed_and_the_ended_ones_removed(
    tools: ToolRegistry, box: Session
) -> None:
    await tools.call("ListShells", {"cleanup": True})
    done, going = await start(tools, "true"), await start(tools, "sleep 60")
    await ended(box, done)
    listed = await tools.call("ListShells")
    status = {shell["id"]: shell["status"] for shell in listed.metadata.shells}
    assert (status[done], status[going]) == ("completed", "running")
    assert f"{going}  running  sleep 60" in (listed.output or "")
    removed = (await tools.call("ListShells", {"cleanup": True})).metadata.removed
    assert removed == sum(state != "running" for state in status.values())
    assert [
        shell["id"]
        for shell in (await tools.call("ListShells")).metadata.shells
        if shell["id"] in (done, going)
    ] == [going]
    await tools.call("KillShell", {"shell_id": going})


async def test_many_shells_at_once_lose_nothing(
    tools: ToolRegistry, box: Session
) -> None:
    ids = [
        await start(tools, f"for n in $(seq 100); do echo {i} $n; done")
        for i in range(20)
    ]
    for i, id in enumerate(ids):
        await ended(box, id)
        result = await tools.call("BashOutput", {"bash_id": id})
        assert result.output == "".join(f"{i} {n}\n" for n in range(1, 101))
    await box.cleanup()


async def test_a_shell_of_another_process_is_found(
    tools: ToolRegistry, box: Session
) -> None:
    id = await start(tools, "echo there")
    await ended(box, id)
    box.shells._known.clear()
    assert (await tools.call("BashOutput", {"bash_id": id})).output == "there\n"


async def test_a_call_that_yields_comes_back_as_a_shell_with_its_output_so_far(
    tools: ToolRegistry, box: Session
) -> None:
    command = "echo early; mkfifo /tmp/yield-gate; read < /tmp/yield-gate; echo late"
    result = await bash(tools, command, yield_after=1000)
    assert result.success
    id = result.metadata.shell_id
    assert result.output == f"early\n\nCommand running in background with ID: {id}"
    assert result.metadata.status == "running"
    await box.run("echo > /tmp/yield-gate")
    await ended(box, id)
    assert (await tools.call("BashOutput", {"bash_id": id})).output == "late\n"


async def test_a_call_that_ends_before_it_yields_returns_its_result(
    tools: ToolRegistry,
) -> None:
    await bash(tools, "cd sub; export HERE=1")
    result = await bash(tools, "pwd; echo $HERE", yield_after=20_000)
    assert (result.output, result.metadata.exit_code) == ("/workspace/sub\n1\n", 0)
    await bash(tools, "cd ..")


async def test_no_parameter_can_inject_a_command(tools: ToolRegistry) -> None:
    await bash(
        tools, "true", description="$(touch /tmp/injected); `touch /tmp/injected`"
    )
    await tools.call(
        "BashOutput",
        {"bash_id": "x; touch /tmp/injected", "filter": "$(touch /tmp/injected)"},
    )
    await tools.call("KillShell", {"shell_id": "$(touch /tmp/injected)"})
    assert (await bash(tools, "test -e /tmp/injected")).metadata.exit_code == 1


async def test_nothing_of_the_hosts_environment_is_inside(
    tools: ToolRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "5up3r")
    assert (
        "5up3r"
        not in (
            await bash(tools, "env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")
        ).text
    )


async def test_no_zombie_is_left(tools: ToolRegistry) -> None:
    await bash(tools, "for i in $(seq 20); do (true &) ; done; sleep 0.1 & wait")
    assert (await bash(tools, "ps -eo stat= | grep -c Z")).output == "0\n"
