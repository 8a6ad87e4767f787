"""`belljar run` on a real terminal: a program inside gets one too, and nothing typed for it reaches the host."""

from __future__ import annotations

import os
import shlex
import signal
import termios
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

pytestmark = pytest.mark.usefixtures("base_image")


def run(workspace: Path, *args: str, rows: int = 24, cols: int = 80) -> Terminal:
    return Terminal.belljar("run", "--workspace", workspace, *args, rows=rows, cols=cols)


def test_a_shell_inside_is_talked_to_and_what_is_typed_runs_there(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'PS1=inside: bash --norc'\n")
    shell.until("inside:")
    shell.type("touch here-$((40 + 2)); hostname; exit 5\n")
    name = shell.until("host> ")
    assert os.uname().nodename not in name
    assert (workspace / "here-42").stat().st_uid != 0
    shell.type("echo status=$?\n")
    shell.until("status=5")
    shell.until("host> ")
    shell.type("exit\n")
    assert shell.status() == 0


def test_what_the_program_did_not_read_never_reaches_the_host(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'echo up; sleep 1.5'\n")
    shell.until("up\r\n")
    shell.type("touch typed-ahead\ntouch again\n")
    shell.until("host> ")
    shell.type("echo still-'here'\n")
    assert "touch" not in shell.until("still-here\r\n").split("still-")[-1]
    assert sorted(path.name for path in workspace.iterdir()) == []
    shell.type("exit\n")
    shell.status()


def test_what_was_typed_for_a_run_that_is_refused_never_reaches_the_host(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'rm -rf /'\ntouch for-the-sandbox\n")  # as one paste
    shell.until("denied")
    shell.until("host> ")
    shell.type("echo a'b'c\n")
    shell.until("abc\r\n")
    assert list(workspace.iterdir()) == []
    shell.type("exit\n")
    shell.status()


def test_ctrl_z_stops_the_program_inside_and_not_us(workspace: Path) -> None:
    shell = Terminal.host_shell(workspace)
    shell.type("belljar run 'PS1=inside: bash --norc'\n")
    shell.until("inside:")
    shell.type("sh -c 'echo a\"b\"; exec sleep 100'\n")
    shell.until("ab\r\n")
    shell.type("\x1a")
    shell.until("Stopped")
    shell.type("jobs; exec true\n")
    shell.until("host> ")
    shell.type("jobs; echo no'jobs'\n")
    assert "belljar" not in shell.until("nojobs\r\n").replace("jobs; echo", "")
    shell.type("exit\n")
    shell.status()


def test_ctrl_c_ctrl_d_and_ctrl_backslash_go_inside(workspace: Path) -> None:
    traps = "trap 'echo got-int' INT; trap 'echo got-quit' QUIT"
    terminal = run(workspace, f"{traps}; echo up; until cat; do :; done; echo over")
    terminal.until("up\r\n")
    terminal.insist("\x03", "got-int")
    terminal.insist("\x1c", "got-quit")
    terminal.insist("\x04", "over")
    assert terminal.status() == 0


def test_the_program_learns_the_size_and_every_change_of_it(workspace: Path) -> None:
    terminal = run(
        workspace, "trap 'stty size' WINCH; stty size; echo $TERM; while :; do sleep 0.1; done", rows=31, cols=99
    )
    terminal.until("31 99\r\nxterm\r\n")
    terminal.resize(17, 45)
    terminal.until("17 45")
    terminal.signal(signal.SIGTERM)
    assert terminal.status() == 128 + signal.SIGTERM


def test_a_question_is_answered(workspace: Path) -> None:
    terminal = run(workspace, "read -p 'name? ' name; echo hello $name")
    terminal.until("name? ")
    terminal.type("Ada\r")
    terminal.until("hello Ada")
    assert terminal.status() == 0


def test_a_person_is_asked_in_place_and_may_agree(workspace: Path) -> None:
    terminal = run(workspace, "sudo id; touch asked")
    shown = terminal.until("allow it? ")
    assert "it would run as root: sudo id" in shown
    assert not (workspace / "asked").exists()
    terminal.type("y\n")
    assert terminal.status() == 0
    assert (workspace / "asked").exists()


def test_a_tool_call_by_hand_asks_too(workspace: Path) -> None:
    terminal = Terminal.belljar("call", "--workspace", workspace, "Bash", '{"command": "sudo id; touch asked"}')
    terminal.until("allow it? ")
    terminal.type("n\n")
    terminal.until("Declined by a person")
    assert terminal.status() == 126


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x04", "yesterday\n"])
def test_whatever_is_not_a_yes_is_a_no(workspace: Path, answer: str) -> None:
    terminal = run(workspace, "sudo id; touch asked")
    terminal.until("allow it? ")
    terminal.type(answer)
    terminal.until("not run: declined")
    assert terminal.status() == 126
    assert not (workspace / "asked").exists()


@pytest.mark.parametrize("forced", ["-t", "-T"])
def test_a_host_is_asked_about_while_the_program_runs(workspace: Path, forced: str) -> None:
    command = "curl -s -o /dev/null -w 'code-%{http_code}' http://b.example; read name; echo hello $name"
    terminal = run(workspace, forced, "--ask-hosts", "--allow", "a.example", command)
    assert "wants to reach b.example on port 80" in terminal.until("allow it? ")
    terminal.type("n\n")
    terminal.until("code-403")
    terminal.insist("Ada\n", "hello Ada")  # keys are the program's again
    assert terminal.status() == 0


def test_what_was_typed_before_the_question_is_no_answer_to_it(workspace: Path) -> None:
    terminal = run(workspace, "sudo id")
    terminal.type("y\n" * 3)
    terminal.until("allow it? ")
    terminal.type("n\n")
    terminal.until("declined")
    assert terminal.status() == 126


ASKS = """
import os, tty
tty.setraw(0)
def ask(query, end):
    os.write(1, query)
    said = b""
    while not said.endswith(end):
        said += os.read(0, 1)
    return said[1:].decode()
print(ask(b"\\x1b[c", b"c"), ask(b"\\x1b[999;999H\\x1b[6n", b"R"), ask(b"\\x1b[?2004h\\x1b[?2004$p", b"y"), end="!")
"""


def test_what_a_program_asks_its_terminal_is_answered_by_us(workspace: Path) -> None:
    (workspace / "asks.py").write_text(ASKS)
    terminal = run(workspace, "python3 asks.py", rows=31, cols=99)
    shown = terminal.until("!")
    assert shown.endswith("[?62;22c [31;99R [?2004;1$y")
    assert "\x1b[c" not in shown
    assert "\x1b[6n" not in shown
    assert terminal.status() == 0


def test_one_that_asks_without_end_and_reads_nothing_is_not_waited_for(workspace: Path) -> None:
    terminal = run(workspace, r"for i in {1..20000}; do printf '\033[6n'; done; echo do'ne'")
    terminal.until("done")
    assert terminal.status() == 0


def test_ctrl_p_alone_is_the_programs_without_another_key(workspace: Path) -> None:
    terminal = run(workspace, "stty raw -echo; echo up; head -c 1 | od -c")
    terminal.until("up")
    terminal.insist("\x10", "020")
    assert terminal.status() == 0


def test_a_program_is_left_running_and_its_sandbox_ends_with_it(workspace: Path) -> None:
    first = run(workspace, "echo u'p'; read -p 'say: ' x; echo got-$x; exit 7")
    first.until("say: ")
    first.type("\x10\x11")
    first.until("left running; `belljar attach ")
    id = first.until("`")
    assert first.status() == 0
    (shell,) = [each for each in belljar("shells", "--json").json if each["id"] == id]
    assert shell["status"] == "running"
    session = shell["session"]
    assert "read -p" in shell["command"]
    belljar("prune")  # its maker is gone: no reason to end it
    second = Terminal.belljar("attach", id)
    second.until("attached to ")
    second.until("say: ")  # what it showed before
    second.type("it\r")
    second.until("got-it")
    assert second.status() == 7
    assert session not in belljar("session", "list").stdout


DRAWING = r"stty raw -echo; printf '\033[?1049h\033[?25lup\n'; head -c 1 >/dev/null; exit 3"


@pytest.mark.parametrize("ending", ["the program's own", "SIGTERM", "SIGHUP", "the sandbox is lost"])
def test_the_terminal_is_as_it_was_however_it_ends(
    workspace: Path, tmp_path: Path, docker_client: Any, ending: str
) -> None:
    shell = Terminal.host_shell(workspace)
    (tmp_path / "drawing").write_text(f"belljar run {shlex.quote(DRAWING)}")
    shell.type(f"stty -g > {tmp_path}/before; source {tmp_path}/drawing\n")
    shell.until("\x1b[?1049h")
    shell.until("up")
    local = shell.settings()[3]
    assert isinstance(local, int)
    assert not local & (termios.ECHO | termios.ISIG | termios.ICANON)
    (own,) = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text().split()
    if ending == "the program's own":
        shell.type("\x03")  # a byte like others to a raw terminal
    elif ending == "the sandbox is lost":
        listed = docker_client.api.containers(filters={"label": "org.belljar.owner"})
        (id,) = [each["Id"] for each in listed if each["Labels"]["org.belljar.owner"].startswith(f"{own}:")]
        docker_client.api.kill(id)
    else:
        os.kill(int(own), getattr(signal, ending))
    shell.until("\x1b[?25h")
    shell.until("\x1b[?1049l")
    shell.until("host> ")
    shell.type(f"stty -g > {tmp_path}/after; exit\n")
    shell.status()
    assert (tmp_path / "before").read_text() == (tmp_path / "after").read_text()


def test_a_hang_up_ends_it(workspace: Path) -> None:
    terminal = run(workspace, "trap '' HUP; echo up; cat")
    terminal.until("up\r\n")
    os.close(terminal.fd)
    os.waitpid(terminal.pid, 0)


def test_a_terminal_can_be_forced_and_refused(workspace: Path) -> None:
    forced = belljar("run", "--workspace", workspace, "-t", "test -t 0 && test -t 1 && echo a terminal")
    assert (forced.status, forced.stdout) == (0, "a terminal\r\n")
    piped = belljar("run", "--workspace", workspace, "-it", "read line; echo got $line", stdin=b"typed\n")
    assert piped.stdout.splitlines()[-1] == "got typed"
    terminal = run(workspace, "-T", "test -t 1 || echo no terminal; read line; echo got $line")
    terminal.until("no terminal")
    terminal.type("typed\n")
    terminal.until("got typed")
    assert terminal.status() == 0


def test_what_attacks_the_terminal_does_not_pass(workspace: Path) -> None:
    terminal = run(
        workspace, r"printf 'a\033]52;c;aGk=\007b\033]0;title\033\\c\033[6n\033[c\033[31mred\033[2J\033P+q\033\\end'"
    )
    shown = terminal.until("end")
    assert shown == "abc\x1b[31mred\x1b[2J"
    assert terminal.status() == 0
