"""The persistent shell: whatever a command does, the next one finds the same directory and variables."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.session.trusting import trusting

from belljar import Output, PolicyDenied, Session, host
from belljar.link import frames
from belljar.session.persistent_shell import PersistentShell


@pytest.fixture(scope="module", params=["socket", "bridge"])
async def box(
    place: Path, base_image: str, request: pytest.FixtureRequest
) -> AsyncIterator[Session]:
    """Once with a socket link, where the init can pass its pipes on, and once with a bridge, where it cannot."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BELLJAR_LINK", request.param)
        host.default().forget()
        async with Session(place) as session:
            yield session
    host.default().forget()


@pytest.fixture
async def shell(box: Session) -> AsyncIterator[PersistentShell]:
    """A new shell for each test, in the module's sandbox."""
    shell = PersistentShell(box._commands)
    yield shell
    shell.kill()


async def test_directory_variables_functions_aliases_and_options_hold(
    shell: PersistentShell,
) -> None:
    await shell.run(
        "cd sub; export A='x y'; b=2; f() { echo \"f$1\"; }; alias ll='echo aliased'; set -o pipefail; shopt -s extglob"
    )
    result = await shell.run(
        'pwd; echo "$A$b"; f 1; ll; shopt -q extglob && set -o | grep pipefail'
    )
    assert result.stdout.split() == [
        "/workspace/sub",
        "x",
        "y2",
        "f1",
        "aliased",
        "pipefail",
        "on",
    ]
    assert not result.restarted
    assert result.cwd == "/workspace/sub"


@pytest.mark.parametrize(
    ("command", "status", "out"),
    [
        ("true && echo a || echo b; echo c", 0, "a\nc\n"),
        ("exit_code() { return 7; }; exit_code", 7, ""),
        ("(exit 255)", 255, ""),
        ("printf 'a\\0b'", 0, "a\0b"),
        ("echo 'ž 日本 🎉'", 0, "ž 日本 🎉\n"),
        ("echo a\n\n# comment\necho b", 0, "a\nb\n"),
        ("cat; read x; echo $?", 0, "1\n"),
        ("for i in 1 2; do echo $i; done | tac", 0, "2\n1\n"),
        ("echo out; echo err >&2; false", 1, "out\n"),
        ("break", 0, ""),
        ("continue; echo no", 0, ""),
        ("echo $0 $#", 0, "bash 0\n"),
    ],
)
async def test_a_command_runs_as_typed(
    shell: PersistentShell, command: str, status: int, out: str
) -> None:
    result = await shell.run(command)
    assert (result.exit_code, result.stdout, result.restarted) == (status, out, False)


@pytest.mark.parametrize(
    ("command", "status", "out"),
    [
        ("if", 2, ""),
        ("echo 'open", 2, ""),
        ("cat <<X\nabc", 0, "abc\n"),
        ("a=" + "x" * 300_000 + "; echo ${#a}", 0, "300000\n"),
    ],
)
async def test_text_that_the_policy_would_refuse_does_not_break_the_shell(
    shell: PersistentShell, box: Session, command: str, status: int, out: str
) -> None:
    with trusting(box):
        result = await shell.run(command)
    assert (result.exit_code, result.stdout, result.restarted) == (status, out, False)


async def test_error_messages_have_the_commands_own_line_numbers(
    shell: PersistentShell,
) -> None:
    assert (
        await shell.run("true\nnosuch")
    ).stderr == "bash: line 2: nosuch: command not found\n"


@pytest.mark.parametrize(
    "trouble",
    [
        "read() { :; }; eval() { echo shadow; }; printf() { echo shadow; }; mapfile() { :; }",
        "builtin() { :; }",
        "command() { :; }; builtin() { return 1; }; unset() { :; }",
        "IFS=/",
        "unset PATH",
        "readonly REPLY",
        "set -u",
        "set -f; set -C; shopt -s nocasematch nullglob failglob",
        "trap 'true' DEBUG; trap 'true' ERR",
        "trap '' INT TERM",
        "alias eval=false builtin=false while=false",
        "set -o posix",
        "exec 3>/tmp/three; exec 8>/tmp/eight; exec 9</dev/null",
        "export LC_ALL=C",
        "mkdir /tmp/gone$$; cd /tmp/gone$$; rmdir /tmp/gone$$",
        "set -e",
        "cd /; export PWD=/nowhere",
    ],
)
async def test_a_shell_with_shadowed_builtins_or_odd_options_still_answers(
    shell: PersistentShell, trouble: str
) -> None:
    assert (await shell.run(trouble)).exit_code == 0
    result = await shell.run("echo 'still ä'")
    assert (result.stdout, result.exit_code, result.restarted) == (
        "still ä\n",
        0,
        False,
    )


@pytest.mark.parametrize(
    ("end", "cause", "status"),
    [
        ("exit 3", "exited", 3),
        ("set -e; false; echo not reached", "exited", 1),
        ("set -u; echo $nope", "exited", 127),
        ("exec echo replaced", "exited", 0),
        ("kill -9 $$", "signalled", 137),
        ("kill $$", "signalled", 143),
        ("break 9", "exited", 0),
        ("enable -n printf", "exited", 1),
        ("exec >&- 2>&-", "exited", 0),
    ],
)
async def test_a_shell_that_ended_is_replaced_with_its_directory_and_variables(
    shell: PersistentShell, end: str, cause: str, status: int
) -> None:
    await shell.run("cd sub; export KEPT='a \"b\" $c \\ \n`d`' NAME=$'\\x01\\e'")
    ended = await shell.run(end)
    assert (ended.cause, ended.exit_code, ended.restarted) == (cause, status, True)
    after = await shell.run("pwd; declare -p KEPT NAME")
    assert (
        after.stdout
        == "/workspace/sub\ndeclare -x KEPT=$'a \"b\" $c \\\\ \\n`d`'\ndeclare -x NAME=$'\\001\\E'\n"
    )
    assert not after.restarted, "it was told already"


async def test_exported_variables_survive_a_command_that_closes_the_shells_output(
    shell: PersistentShell,
) -> None:
    assert (await shell.run("export KEPT=1; exec >&-")).restarted
    result = await shell.run("echo $KEPT")
    assert (result.stdout, result.restarted) == ("1\n", False)


async def test_thousands_of_exports_survive_a_command_that_closes_the_shells_output(
    shell: PersistentShell,
) -> None:
    """Bash needs a while to report so many, and only then may the shell be replaced."""
    many = "for i in {1..2000}; do export many_$i=${i}xxxxxxxxxxxxxxxx; done"
    assert (await shell.run(f"{many}; exec >&-")).restarted
    assert (await shell.run("echo $many_2000")).stdout == "2000xxxxxxxxxxxxxxxx\n"


async def test_a_timed_out_command_leaves_a_usable_shell(
    shell: PersistentShell,
) -> None:
    await shell.run("cd sub; export KEPT=1")
    result = await shell.run("echo partial; sleep 60", timeout=3)
    assert (result.cause, result.exit_code, result.stdout, result.restarted) == (
        "timeout",
        124,
        "partial\n",
        True,
    )
    assert (
        await shell.run("echo $PWD $KEPT; pgrep -c sleep")
    ).stdout == "/workspace/sub 1\n0\n"


async def test_a_command_that_ignores_sigterm_is_killed_after_the_grace(
    shell: PersistentShell,
) -> None:
    result = await shell.run(
        "trap '' TERM; while :; do sleep 0.1; done", timeout=0.2, grace=0.2
    )
    assert (result.cause, result.signal) == ("timeout", 9)


async def test_the_deadline_of_one_call_does_not_hit_the_next(
    shell: PersistentShell,
) -> None:
    await shell.run("f() { echo kept; }", timeout=3)
    result = await shell.run("sleep 3.2; f")
    assert (result.stdout, result.restarted) == ("kept\n", False)


@pytest.mark.parametrize(
    "command", ["sleep 60", "trap '' INT; sleep 60 & wait; sleep 60"]
)
async def test_ctrl_c_ends_the_command_and_the_shell_is_usable_again(
    shell: PersistentShell, command: str
) -> None:
    await shell.run("cd sub; export KEPT=1")

    def on_output(_: Output) -> None:
        shell.interrupt()

    result = await shell.run(f"echo running; {command}; sleep 60", on_output=on_output)
    assert (result.cause, result.exit_code, result.restarted) == (
        "interrupted",
        130,
        True,
    )
    assert (await shell.run("echo $PWD $KEPT")).stdout == "/workspace/sub 1\n"


async def test_a_program_may_take_ctrl_c_and_end_well(shell: PersistentShell) -> None:
    # Until bash waits for its child it takes SIGINT for its own. The pause gives it the time.
    program = (
        "trap 'echo bye; exit 5' INT; sleep 0.3; echo up; while :; do sleep 0.05; done"
    )
    result = await shell.run(
        f"bash -c {program!r}; echo $?",
        on_output=lambda o: shell.interrupt() if o.data == b"up\n" else None,
    )
    assert result.stdout == "up\nbye\n5\n"
    assert (result.cause, result.restarted) == ("interrupted", False)


async def test_ctrl_c_with_nothing_running_does_nothing(shell: PersistentShell) -> None:
    shell.interrupt()
    await shell.run("f() { echo kept; }")
    shell.interrupt()
    assert (await shell.run("f")).stdout == "kept\n"


async def test_a_background_job_does_not_delay_its_call_and_its_output_comes_later(
    shell: PersistentShell, box: Session
) -> None:
    result = await shell.run(
        "mkfifo /tmp/gate; (read < /tmp/gate; echo late) & echo prompt"
    )
    assert result.stdout == "prompt\n"
    await box.run("echo > /tmp/gate")
    heard: list[bytes] = []
    result = await shell.run(
        "wait; echo now; rm /tmp/gate",
        on_output=lambda output: heard.append(output.data),
    )
    assert result.stdout == "late\nnow\n"
    assert b"".join(heard) == b"late\nnow\n"


async def test_jobs_stay_between_calls(shell: PersistentShell) -> None:
    await shell.run("sleep 60 &")
    assert (await shell.run("jobs -r | wc -l; kill %1")).stdout == "1\n"


async def test_a_background_job_that_floods_stdout_does_not_block_the_next_call(
    shell: PersistentShell,
) -> None:
    await shell.run("yes >&1 & pid=$!")
    result = await shell.run("echo here; kill $pid", timeout=60)
    assert "here\n" in result.stdout
    assert result.cause == "exited"


async def test_traces_show_the_command_and_not_our_loop(
    shell: PersistentShell, box: Session
) -> None:
    await shell.run("set -x")
    assert (await shell.run("echo a")).stderr == "++ echo a\n"
    with trusting(box):
        assert "syntax error" in (await shell.run("if")).stderr
    assert (await shell.run("break")).stderr == "++ break\n"
    assert (await shell.run("set +x; echo b")).stderr == "++ set +x\n"
    assert (await shell.run("echo c")).stderr == ""


async def test_large_output_is_kept_head_and_tail(
    shell: PersistentShell, box: Session
) -> None:
    result = await shell.run(
        "echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last"
    )
    assert result.truncated
    assert result.bytes_produced == 20_000_012
    assert result.bytes_kept <= box.limits.output
    assert result.stdout.startswith("first\nxxx")
    assert result.stdout.endswith("xxx\nlast\n")


async def test_a_large_command_runs(shell: PersistentShell) -> None:
    text = "x" * 20_000
    assert (await shell.run(f"a={text}; echo ${{#a}}")).stdout == "20000\n"
    assert (await shell.run(f"a=ž{text}; echo ${{#a}}")).stdout == "20001\n"


async def test_the_shells_pipes_are_used_directly_over_a_socket_link(
    shell: PersistentShell, request: pytest.FixtureRequest
) -> None:
    for _ in range(
        100
    ):  # the init passes the pipes only when it has nothing else to send
        await shell.run("true")
        assert shell._bash is not None
        if direct := shell._bash.process._inputs[frames.CONTROL].feed is not None:
            break
    assert direct == ("socket" in request.node.callspec.id)


async def test_calls_take_turns(shell: PersistentShell) -> None:
    results: list[str] = []

    async def call(n: int) -> None:
        results.append((await shell.run(f"x={n}; sleep 0.05; echo {n} $x")).stdout)

    async with anyio.create_task_group() as tasks:
        for n in range(5):
            tasks.start_soon(call, n)
    assert sorted(results) == [f"{n} {n}\n" for n in range(5)]


async def test_a_cancelled_call_ends_its_command(shell: PersistentShell) -> None:
    await shell.run("export KEPT=1")
    with anyio.move_on_after(0.2) as scope:
        await shell.run("sleep 61")
    assert scope.cancelled_caught
    assert (await shell.run("pgrep -cf 'sleep 6[1]'; echo $KEPT")).stdout == "0\n1\n"


async def test_output_of_a_cancelled_call_is_dropped_and_the_next_call_reports_the_restart(
    shell: PersistentShell,
) -> None:
    await shell.run("cd /tmp; export KEPT=1; f() { echo f; }; (sleep 0.1; echo job) &")
    with anyio.CancelScope() as scope:
        await shell.run(
            "echo SECRET; echo E >&2; sleep 61", on_output=lambda output: scope.cancel()
        )
    assert scope.cancelled_caught
    heard: list[bytes] = []
    after = await shell.run(
        "pwd; echo $KEPT; f", on_output=lambda output: heard.append(output.data)
    )
    assert (after.stdout, after.restarted, after.shell_ended) == (
        "/tmp\n1\n",
        True,
        False,
    )
    assert b"SECRET" not in b"".join(heard)
    assert not (await shell.run("true")).restarted


async def test_after_an_on_output_that_raises_the_next_call_reports_the_restart(
    shell: PersistentShell,
) -> None:
    with pytest.raises(ZeroDivisionError):
        await shell.run("echo; sleep 61", on_output=lambda _: 1 // 0)
    assert (await shell.run("true")).restarted


async def test_a_command_is_judged_where_the_shell_is_and_nothing_denied_runs(
    shell: PersistentShell,
) -> None:
    await shell.run(
        "cd /; export DIR=/; plain=/; gone() { rm -rf \"$1\"; }; alias away='rm -rf'"
    )
    for command in ("rm -rf *", 'rm -rf "$DIR"', 'rm -rf "$plain"', "gone /", "away /"):
        with pytest.raises(PolicyDenied):
            await shell.run(command)
    assert (await shell.run("pwd")).stdout == "/\n"


async def test_the_same_command_is_judged_anew_when_the_shell_has_changed(
    shell: PersistentShell,
) -> None:
    await shell.run("export DIR=/tmp/scratch; mkdir -p $DIR")
    for _ in range(3):
        assert (await shell.run('rm -rf "$DIR"')).exit_code == 0
    await shell.run("export DIR=/")
    with pytest.raises(PolicyDenied):
        await shell.run('rm -rf "$DIR"')


async def test_a_shell_that_cannot_report_its_variables_still_runs_commands(
    shell: PersistentShell,
) -> None:
    await shell.run("true")
    await shell.run("head -c 1G /dev/zero > /dev/shm/full; kill $$")
    try:
        for n in range(3):
            assert (await shell.run(f"echo {n}", timeout=60)).stdout == f"{n}\n"
    finally:
        await shell.run("rm -f /dev/shm/full")


async def test_settle_returns_at_once_while_a_command_runs(
    shell: PersistentShell,
) -> None:
    await shell.run("export A=1")
    await shell.settle()
    runs = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(
            lambda: shell.run(
                "export A=2; echo up; sleep 60", on_output=lambda _: runs.set()
            )
        )
        await runs.wait()
        await shell.settle()
        assert shell.environment is not None
        assert shell.environment["A"] == "1"
        tasks.cancel_scope.cancel()


async def test_the_shells_exported_variables_are_known_after_settle(
    shell: PersistentShell,
) -> None:
    assert shell.environment is None
    await shell.run("export A=1; unset LC_CTYPE")
    await shell.settle()
    assert shell.environment is not None
    assert shell.environment["A"] == "1"
    assert shell.environment["HOME"] == "/home/sandbox"
    assert "LC_CTYPE" not in shell.environment


@pytest.mark.parametrize("options", ["", "set -x", "set -E; trap 'echo trapped' ERR"])
async def test_the_exit_status_of_a_call_is_seen_by_the_next(
    shell: PersistentShell, options: str
) -> None:
    """And a trap on errors does not run because of it."""
    await shell.run(f":; {options}")
    for status in (0, 1, 7, 0):
        await shell.run(f"f() {{ return {status}; }}; f")
        after = await shell.run("echo $?")
        assert (after.stdout, after.restarted) == (f"{status}\n", False)


async def test_a_shell_that_exports_thousands_of_variables_is_replaced(
    shell: PersistentShell,
) -> None:
    """With so many variables bash needs seconds for each program and for each report."""
    await shell.run("export KEPT=1")
    await shell.settle()
    flooded = await shell.run("for i in {1..5000}; do export v$i=1; done")
    after = await shell.run("echo $KEPT$v1")
    assert after.restarted
    assert (
        flooded.stderr
        == "belljar: the shell was ended: it had exported more than 4096 variables\n"
    )
    after = await shell.run("echo $KEPT$v1")
    assert (after.stdout, after.stderr, after.restarted) == ("1\n", "", False)
