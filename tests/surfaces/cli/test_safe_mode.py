"""Safe mode, through a pipe and on a real terminal."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

import pytest
from tests.surfaces.invoking import Answer, Started, belljar, start
from tests.surfaces.real_terminal import Terminal


def piped(workspace: Path, *lines: str, args: tuple[str, ...] = ()) -> Answer:
    return belljar(
        "shell",
        "--workspace",
        workspace,
        *args,
        stdin="\n".join(lines).encode() + b"\n",
    )


def say(process: Started, line: str, answer: str) -> None:
    assert process.stdin
    assert process.stdout
    process.stdin.write(f"{line}\n".encode())
    process.stdin.flush()
    assert process.stdout.readline() == f"{answer}\n".encode()


def test_lines_run_in_one_shell_and_the_last_status_is_returned(
    workspace: Path,
) -> None:
    answer = piped(
        workspace,
        "cd /tmp",
        "x=5",
        "pwd; echo $x",
        "",
        "exit_with() { return $1; }",
        "exit_with 4",
    )
    assert (answer.status, answer.stdout, answer.stderr) == (4, "/tmp\n5\n", "")


def test_commands_may_span_lines(workspace: Path) -> None:
    loop = ["for i in 1 2", "do", "echo n$i", "done"]
    here = ["cat <<EOF", "it's a text (", "EOF"]
    rest = ["echo a \\", "b", "true &&", "echo and", "f() {", "echo f", "}", "f"]
    assert (
        piped(workspace, *loop, *here, *rest).stdout
        == "n1\nn2\nit's a text (\na b\nand\nf\n"
    )


def test_an_unfinished_command_at_the_end_is_still_bash_s_to_judge(
    workspace: Path,
) -> None:
    answer = piped(workspace, "echo first", "if true; then")
    assert answer.stdout == "first\n"
    assert answer.status != 0


def test_a_denied_line_is_explained_and_the_rest_goes_on(workspace: Path) -> None:
    answer = piped(workspace, "rm -rf /", "sudo ls", "echo after")
    assert (answer.status, answer.stdout) == (0, "after\n")
    denied, asked = answer.stderr.splitlines()
    assert "denied:" in denied
    assert "[delete.root" in denied
    assert "needs approval (high)" in asked


def test_the_status_of_a_denied_last_line_is_126(workspace: Path) -> None:
    assert piped(workspace, "rm -rf /").status == 126


def test_exit_ends_safe_mode_with_its_status(workspace: Path) -> None:
    answer = piped(workspace, "echo a", "exit 7", "echo b")
    assert (answer.status, answer.stdout) == (7, "a\n")


def test_empty_input_is_no_failure(workspace: Path) -> None:
    answer = belljar("shell", "--workspace", workspace, stdin=b"")
    assert (answer.status, answer.stdout, answer.stderr) == (0, "", "")


def test_nothing_runs_on_the_host(workspace: Path, tmp_path: Path) -> None:
    marker = tmp_path / "on-the-host"
    answer = piped(workspace, f"touch {marker}", "hostname", "id -u")
    host, uid = answer.stdout.split()
    assert not marker.exists()
    assert host != os.uname().nodename
    assert uid != "0"


def test_a_timeout_holds_for_each_line(workspace: Path) -> None:
    answer = piped(workspace, "sleep 60", "echo after", args=("--timeout", "0.5"))
    assert (answer.status, answer.stdout) == (0, "after\n")
    assert "timed out" in answer.stderr


def test_a_broken_pipe_ends_safe_mode(workspace: Path) -> None:
    with start("shell", "--workspace", workspace, stdin=-1) as process:
        say(process, "yes", "y")
        process.stdout.close()
        assert process.wait(120) == 141


def test_a_signal_ends_safe_mode_and_its_sandbox(workspace: Path) -> None:
    with start("shell", "--workspace", workspace, stdin=-1) as process:
        say(process, "echo ready", "ready")
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM


def test_a_signal_ends_safe_mode_while_its_output_is_not_read(workspace: Path) -> None:
    with start("shell", "--workspace", workspace, stdin=-1) as process:
        say(process, "yes", "y")
        time.sleep(0.5)  # until the pipe and the queue are full
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 128 + signal.SIGTERM


@pytest.fixture(params=["prompt_toolkit", "readline"])
def editor(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    if request.param == "prompt_toolkit":
        return {}
    hidden = tmp_path / "hidden" / "prompt_toolkit"
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('not installed')")
    return {"PYTHONPATH": str(hidden.parent)}


@pytest.fixture
def terminal(workspace: Path, tmp_path: Path) -> Terminal:
    return Terminal.belljar(
        "shell", "--workspace", workspace, BELLJAR_STATE=str(tmp_path / "state")
    )


def test_a_prompt_with_state_history_and_a_status_line(
    workspace: Path, tmp_path: Path, editor: dict[str, str]
) -> None:
    terminal = Terminal.belljar(
        "shell",
        "--workspace",
        workspace,
        BELLJAR_STATE=str(tmp_path / "state"),
        **editor,
    )
    terminal.line("cd /tmp; word=kept")
    terminal.until("exit 0")
    terminal.until("belljar:/tmp")
    terminal.line("echo my-$word; false")
    terminal.until("my-kept")
    terminal.until("exit 1")
    terminal.line(":quit")
    assert terminal.status() == 1
    assert "echo my-$word" in (tmp_path / "state" / "history").read_text()
    assert (tmp_path / "state" / "history").stat().st_mode & 0o077 == 0


def test_a_denial_is_explained_with_its_rule(terminal: Terminal) -> None:
    terminal.line("rm -rf /")
    terminal.until("denied:")
    terminal.until("delete.root")
    terminal.until("$")
    terminal.type("\x04")
    assert terminal.status() == 126


def test_an_ask_shows_risk_and_effects_and_takes_no_yes_or_always(
    terminal: Terminal, workspace: Path
) -> None:
    terminal.line("sudo true; touch no")
    shown = terminal.until("[a]lways:")
    assert "high" in shown
    assert "it would run as root: sudo true" in shown
    assert "privilege.sudo" not in shown  # a plain phrase, not the policy's term
    terminal.type("n\r")
    terminal.until("you declined")
    terminal.line("sudo true; touch no")
    terminal.until("[a]lways:")
    terminal.type("\x04")
    assert terminal.until("belljar: not run: you declined").endswith("\n")
    terminal.line("sudo true; touch yes")
    terminal.until("[a]lways:")
    terminal.type("y\r")
    terminal.until("exit 0")
    terminal.line("sudo true; touch yes")
    terminal.until("[a]lways:")
    terminal.type("always\r")
    terminal.until("exit 0")
    terminal.line("sudo true; touch yes")
    assert "lways" not in terminal.until("exit 0")
    terminal.line(":quit")
    assert terminal.status() == 0
    assert sorted(path.name for path in workspace.iterdir()) == ["yes"]


def test_a_signal_ends_safe_mode_during_a_question(terminal: Terminal) -> None:
    terminal.line("sudo true")
    terminal.until("[a]lways:")
    terminal.signal(signal.SIGHUP)
    assert terminal.status() == 128 + signal.SIGHUP


def test_a_signal_delivered_to_another_thread_ends_safe_mode(
    terminal: Terminal,
) -> None:
    """The kernel chooses the thread, but only a signal to the main thread interrupts a wait."""
    terminal.line("echo u'p'; cat")
    terminal.until("up\r\n")
    other = next(
        int(id)
        for id in os.listdir(f"/proc/{terminal.pid}/task")
        if int(id) != terminal.pid
    )
    libc = ctypes.CDLL(None)
    assert libc.tgkill(terminal.pid, other, signal.SIGHUP) == 0
    assert terminal.status() == 128 + signal.SIGHUP


def test_safe_mode_ends_with_its_terminal_even_without_a_signal(
    workspace: Path,
) -> None:
    before = signal.pthread_sigmask(
        signal.SIG_BLOCK, [signal.SIGHUP]
    )  # the child inherits the mask
    terminal = Terminal.belljar("shell", "--workspace", workspace)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    terminal.line("echo u'p'; sleep 1000")
    terminal.until("up\r\n")
    os.close(terminal.fd)
    assert (
        os.waitstatus_to_exitcode(os.waitpid(terminal.pid, 0)[1])
        == 128 + signal.SIGTERM
    )


def test_ctrl_c_interrupts_the_line_and_the_shell_keeps_its_state(
    terminal: Terminal,
) -> None:
    terminal.line("cd /tmp; kept() { echo a'b'; }")
    terminal.until("exit 0")
    for busy in (
        "echo u'p'; sleep 60",
        "echo u'p'; while :; do :; done",
        "echo u'p'; while :; do sleep 1; done",
    ):
        terminal.line(busy)
        terminal.until("up\r\n")
        terminal.insist("\x03", "exit 130")
        terminal.line("kept")
        terminal.until("ab\r\n")
        terminal.until("belljar:/tmp")
    terminal.type("\x03")
    terminal.line("kept")
    terminal.until("ab\r\n")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_several_lines_are_edited_as_one_text(terminal: Terminal) -> None:
    terminal.line("for i in 1 2; do")
    terminal.until(">")
    terminal.type("echo n$((i + 5))\rdone\r")
    terminal.until("n6\r\nn7\r\n")
    terminal.line("\x12n$((\r\r")  # search backwards
    terminal.until("n7\r\n")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_a_directory_s_name_cannot_send_terminal_controls(
    workspace: Path, tmp_path: Path, editor: dict[str, str]
) -> None:
    terminal = Terminal.belljar(
        "shell",
        "--workspace",
        workspace,
        BELLJAR_STATE=str(tmp_path / "state"),
        **editor,
    )
    terminal.line(r"mkdir $'x\e]0;title\ay' && cd x*")
    terminal.until("exit 0")
    shown = terminal.until("$")
    terminal.type(":quit\r")
    assert terminal.status() == 0
    assert "\x1b]0;" not in shown
    assert "^[]0;title^Gy" in shown


def test_output_cannot_send_harmful_terminal_controls(terminal: Terminal) -> None:
    terminal.line(r"printf '\033]52;c;aGk=\007\033[31mred\033[2J'")
    shown = terminal.until("exit 0")
    assert "\x1b]52" not in shown
    assert "\x1b[31mred\x1b[2J\x1b[0m" in shown
    terminal.line(":quit")
    assert terminal.status() == 0


def test_the_prompt_shows_how_many_changes_are_staged(
    workspace: Path, tmp_path: Path
) -> None:
    terminal = Terminal.belljar(
        "shell",
        "--staged",
        "--workspace",
        workspace,
        BELLJAR_STATE=str(tmp_path / "state"),
    )
    terminal.line("touch one two")
    terminal.until("exit 0")
    terminal.until("belljar:/workspace ±2")
    terminal.line(":discard")
    terminal.until("2 discarded")
    assert "±" not in terminal.until("$").rpartition("belljar:")[2]
    terminal.type("exit\r")
    assert terminal.status() == 0
    assert list(workspace.iterdir()) == []


ENDS = ["set -e; false", "exec true", "f() { exit 3; }; f", "echo exit 3 >/tmp/it; . /tmp/it", "kill -9 $$",
        "trap 'exit 3' USR1; kill -USR1 $$", "alias leave=exit; eval leave", "eval 'e''xit'", "exec >&-",
        "enable -n builtin"]  # fmt: skip


def test_only_a_typed_exit_ends_safe_mode(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar shell --workspace .\n")
    for ends in ENDS:
        shell.until("belljar:/")
        shell.line(ends)
        shell.until(
            "a new one has its directory and exported variables; other variables, functions, options and jobs"
        )
        shell.until("· ")
    shell.line("cd /tmp; echo ju'st' $HOSTNAME > /workspace/where")
    shell.until("belljar:/tmp")
    shell.line("true && exit 3")
    shell.until("host> ")
    shell.type("echo left-$?\n")
    shell.until("left-3\r\n")
    shell.type("exit\n")
    shell.status()
    said, where = (workspace / "where").read_text().split()
    assert said == "just"
    assert where != os.uname().nodename


def test_keys_typed_after_exit_do_not_reach_the_host(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    for leaves in ("exit\r", ":quit\r"):
        shell.type("belljar shell --workspace .\n")
        shell.line("echo r'ea'dy")
        shell.until("ready\r\n")
        shell.until("$")
        shell.type(f"{leaves}touch typed-ahead\r")
        shell.until("host> ")
        shell.type("echo a'b'c\n")
        shell.until("abc\r\n")
    assert list(workspace.iterdir()) == []
    shell.type("exit\n")
    shell.status()


def test_ctrl_backslash_does_not_leave_safe_mode(
    workspace: Path, tmp_path: Path, editor: dict[str, str]
) -> None:
    terminal = Terminal.belljar(
        "shell",
        "--workspace",
        workspace,
        BELLJAR_STATE=str(tmp_path / "state"),
        **editor,
    )
    terminal.line("echo u'p'")
    terminal.until("up\r\n")
    terminal.until("$")
    terminal.type("\x1c")
    terminal.signal(signal.SIGQUIT)
    terminal.type("\x03")
    terminal.line("echo st'ill'")
    terminal.until("still\r\n")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_setting_an_editing_mode_does_not_break_the_shell(terminal: Terminal) -> None:
    """In an interactive bash it would make bash read the keyboard in the middle of our text."""
    for mode in ("vi", "emacs"):
        terminal.line(f"x=kept; set -o {mode}")
        terminal.until("· ")
        terminal.line("echo $x; set -o | grep -w " + mode)
        shown = terminal.until("· ")
        assert "kept\r\n" in shown
        assert "on\r\n" in shown
    terminal.line(":quit")
    assert terminal.status() == 0


def test_the_status_of_a_line_is_known_to_the_next(terminal: Terminal) -> None:
    for line, status in (
        ("false", 1),
        ("(exit 7)", 7),
        ("true", 0),
        ("set -x; false", 1),
        ("set +x; sleep 1000", 148),
    ):
        terminal.line(line)
        if "sleep" in line:
            terminal.insist("\x1a", "Stopped")
        terminal.until(f"exit {status} ·")
        terminal.line("echo was-$?-'it'")
        terminal.until(f"was-{status}-it\r\n")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_the_history_is_the_person_s_own(terminal: Terminal) -> None:
    terminal.line(
        "export x=1; exec true"
    )  # the new shell first gets a text of Belljar's own
    terminal.until("· ")
    terminal.line("echo one")
    terminal.until("· ")
    terminal.line("history")
    shown = terminal.until("exit 0")
    assert "echo one\r\n" in shown
    assert "builtin" not in shown
    terminal.line("fc -s echo")
    terminal.until("run it?")  # it asks, because the command was not visible
    terminal.type("y\r")
    terminal.until("\none\r\n")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_the_peak_memory_shown_is_the_line_s_own(terminal: Terminal) -> None:
    terminal.line("python3 -c \"x=b'y'*(100<<20); import time; time.sleep(1.5)\"")
    terminal.until("peak at least 1")
    assert len(terminal.until(" MiB").split(".")[0]) == 2
    terminal.line(":quit")
    assert terminal.status() == 0


def test_the_start_line_says_what_can_be_reached(workspace: Path) -> None:
    terminal = Terminal.belljar(
        "shell",
        "--workspace",
        workspace,
        "--allow-preset",
        "python",
        "--allow",
        "a.example",
    )
    terminal.until("network none but preset python, a.example")
    terminal.line(":quit")
    assert terminal.status() == 0


def test_a_port_already_forwarded_is_not_offered(terminal: Terminal) -> None:
    terminal.line(":open 8000")
    terminal.until("http://127.0.0.1:")
    serve = "python3 -m http.server {0} >/tmp/log 2>&1 & until curl -s localhost:{0} >/dev/null; do :; done"
    terminal.line(serve.format(8000))
    terminal.until("· ")
    terminal.line(serve.format(8001))
    shown = terminal.until("· ")
    while (
        "a server listens on port 8001" not in shown
    ):  # reported as soon as a check costs nothing
        terminal.line("sleep 0.1")
        shown += terminal.until("· ")
    assert "port 8000" not in shown
    terminal.line(":quit")
    assert terminal.status() == 0


def test_a_question_mark_explains_the_answers(terminal: Terminal) -> None:
    terminal.line("sudo true")
    terminal.until("[a]lways:")
    terminal.type("?\r")
    terminal.until("a - run it, and do not ask again")
    terminal.until("[a]lways:")
    terminal.type("n\r")
    terminal.until("you declined")
    terminal.line(":quit")
    assert terminal.status() == 126
