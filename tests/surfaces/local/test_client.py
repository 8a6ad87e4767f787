"""With a local server the command line is what it is without one."""

from __future__ import annotations

import fcntl
import os
import select
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path

import pytest
from tests.surfaces.invoking import CLIENT, environment
from tests.surfaces.local.conftest import LONGEST, Local
from tests.surfaces.real_terminal import Terminal

from belljar.sandbox import rundir

pytestmark = pytest.mark.engine


@pytest.mark.parametrize(
    ("argv", "stdin"),
    [
        (("run", "echo out; echo err >&2; exit 7"), None),
        (("run", "--", "sh", "-c", "kill -9 $$"), None),
        (("run", "--", "nosuchprogram"), None),
        (("run", "wc -c"), b"12345"),
        (("run", "rm -rf /"), None),
        (("run", "--timeout", "0.5", "sleep 60"), None),
        (("run",), None),
        (("check", "--json", "ls | wc"), None),
        (("check", "cd / && rm -fr -- *"), None),
        (("call", "Bash", "command=echo hi"), None),
        (("ps",), None),
        (("logs", "sh-000000000000"), None),
    ],
)
def test_output_and_status_are_those_of_a_plain_run(
    local: Local, workspace: Path, argv: tuple[str, ...], stdin: bytes | None
) -> None:
    plain = local.run(*argv, cwd=workspace, stdin=stdin)
    local.start()
    assert local.run(*argv, cwd=workspace, stdin=stdin) == plain
    assert local.run(*argv, cwd=workspace, stdin=stdin) == plain


def test_json_has_the_same_fields(local: Local, workspace: Path) -> None:
    argv = ("run", "--json", "echo hi")
    plain = local.run(*argv, cwd=workspace).json
    local.start()
    served = local.run(*argv, cwd=workspace).json
    assert served.keys() == plain.keys()
    assert (served["stdout"], served["exit_code"], served["verdict"]) == (
        "hi\n",
        0,
        plain["verdict"],
    )


def test_the_second_command_finds_a_sandbox_that_waits_and_each_is_used_once(
    served: Local, workspace: Path
) -> None:
    seen = set()
    for _ in range(3):
        answer = served.run(
            "run", "--json", "touch /tmp/mark 2>&1; ls /tmp", cwd=workspace
        ).json
        assert answer["stdout"] == "mark\n"
        seen.add(answer["session"])
        served.until(lambda: len(served.waiting()) == 2)
        ready = {path.parent.name for path in served.waiting()}
        assert served.run("ps", "--json").json == []
        used = served.run("run", "--json", "ls /tmp", cwd=workspace).json
        assert used["stdout"] == ""
        assert used["session"] in ready
        seen.add(used["session"])
    assert len(seen) == 6


def test_a_sandbox_that_waited_is_listed_from_its_first_use_on(
    served: Local, workspace: Path
) -> None:
    served.warm(workspace)
    begun = time.time()
    with served.popen("run", "echo begun; sleep 600", cwd=workspace) as process:
        assert process.stdout is not None
        process.stdout.readline()
        listed = served.run("ps", "--json").json
        process.terminate()
        assert process.wait(LONGEST) == 143
        (session,) = listed
        assert session["started"] >= begun
        assert "waits" not in session


def test_a_sandbox_of_another_kind_is_not_used(served: Local, workspace: Path) -> None:
    served.warm(workspace)
    ready = {path.parent.name for path in served.waiting()}
    answer = served.run("run", "--memory", "64m", "--json", "cat /sys/fs/cgroup/memory.max /sys/fs/cgroup/memory/"
                        "memory.limit_in_bytes 2>/dev/null", cwd=workspace).json  # fmt: skip
    assert answer["stdout"] == f"{64 << 20}\n"
    assert answer["session"] not in ready


def test_a_terminal_is_passed_on_with_its_size_keys_and_detaching(
    served: Local, workspace: Path
) -> None:
    for _ in range(2):
        argv = (*CLIENT, "run", 'read -r line; stty size; tty; echo "<$line>"')
        terminal = Terminal(*argv, rows=31, cols=97, cwd=workspace, **served.env)
        before = terminal.settings()
        terminal.insist("words\r", "<words>")
        assert terminal.status() == 0
        assert before
        served.until(served.waiting)


def test_a_new_size_of_the_terminal_and_its_keys_reach_the_command(
    served: Local, workspace: Path
) -> None:
    script = "trap 'stty size' WINCH; trap 'echo interrupted; exit 5' INT; stty size; while :; do sleep 0.1; done"
    terminal = Terminal(
        *CLIENT, "run", script, rows=31, cols=97, cwd=workspace, **served.env
    )
    terminal.until("31 97")
    terminal.resize(17, 45)
    terminal.until("17 45")
    terminal.type("\x1a")  # Ctrl+Z is the command's: nobody is stopped by it
    terminal.resize(18, 46)
    terminal.until("18 46")
    terminal.type("\x03")
    terminal.until("interrupted")
    assert terminal.status() == 5


def test_approvals_are_asked_for_on_the_client_s_terminal(
    served: Local, workspace: Path
) -> None:
    for answer, status in (("n", 126), ("y", 1)):
        terminal = Terminal(
            *CLIENT, "run", "sudo -n false || exit 1", cwd=workspace, **served.env
        )
        terminal.until("allow it?")
        terminal.type(f"{answer}\r")
        assert terminal.status() == status


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)],
)
def test_signals_end_the_command_as_in_a_plain_run(
    served: Local, workspace: Path, number: int, status: int
) -> None:
    heeded = partial(signal.signal, number, signal.SIG_DFL)  # nohup may run the tests
    with served.popen(
        "run", "echo begun; sleep 600", cwd=workspace, preexec_fn=heeded
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(number)
        assert process.wait(LONGEST) == status


def test_a_stopped_client_stops_its_worker(served: Local, workspace: Path) -> None:
    with served.popen("run", "echo begun; sleep 600", cwd=workspace) as process:
        assert process.stdout is not None
        process.stdout.readline()
        worker = _worker_of(served)
        process.send_signal(signal.SIGTSTP)
        served.until(lambda: _state(worker) == "T" and _state(process.pid) == "T")
        process.send_signal(signal.SIGCONT)
        served.until(lambda: _state(worker) != "T")
        process.terminate()
        assert process.wait(LONGEST) == 143


def test_a_client_that_dies_takes_its_command_with_it(
    served: Local, workspace: Path
) -> None:
    served.env["BELLJAR_STATE"] = str(served.root / "state")
    served.stop()
    served.start()
    with served.popen("run", "echo begun; sleep 600", cwd=workspace) as process:
        assert process.stdout is not None
        process.stdout.readline()
        worker = _worker_of(served)
        process.kill()
    served.until(lambda: not Path(f"/proc/{worker}").exists())
    records = served.run("audit", "show", "--json").json
    assert [each["cause"] for each in records if each["kind"] == "end"] == ["killed"]
    assert {each["client"] for each in records} == {process.pid}, (
        "the trail records the peer"
    )


def test_the_client_s_descriptors_stay_outside_and_blocking(
    served: Local, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "host-file").write_text("line\n")
    options = ("--policy", "none")
    served.warm(workspace, *options)
    script = "echo begun; ls -l /proc/[0-9]*/fd 2>&1; until [ -e go ]; do sleep 0.05; done; read -r line; echo $line"
    with (
        open(tmp_path / "host-file") as stdin,
        open(tmp_path / "output", "wb") as stdout,
        served.popen(
            "run", *options, script, cwd=workspace, stdin=stdin, stdout=stdout
        ) as process,
    ):
        served.until(
            lambda: (
                "begun" in (tmp_path / "output").read_text()
                or process.poll() is not None
            )
        )
        for descriptor in (stdin.fileno(), stdout.fileno()):
            assert not fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_NONBLOCK
        (workspace / "go").touch()
        assert process.wait(LONGEST) == 0
    text = (tmp_path / "output").read_text()
    assert text.startswith("begun\n")
    assert text.endswith("\nline\n")
    assert "pipe:" in text, "the sandbox's own"
    assert not [
        line
        for line in text.splitlines()
        if str(tmp_path) in line or str(served.root) in line
    ]


@pytest.mark.parametrize("is_served", [False, True])
def test_output_is_whole_also_where_a_descriptor_does_not_block(
    local: Local, workspace: Path, is_served: bool
) -> None:
    if is_served:
        local.start()
    read, write = os.pipe()
    os.set_blocking(write, False)
    size = 1_000_000
    with (
        local.popen(
            "run", f"head -c {size} /dev/zero", cwd=workspace, stdout=write
        ) as process,
        open(read, "rb") as output,
    ):
        os.close(write)
        assert select.select([output], [], [], LONGEST)[0]
        assert len(output.read()) == size
        assert process.wait(LONGEST) == 0


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_client_with_a_closed_stream_runs_its_command_itself(
    served: Local, workspace: Path, number: int
) -> None:
    script = f'exec "$0" check -v ls {number}<&-'
    told = subprocess.run(
        ["bash", "-c", script, *CLIENT],
        cwd=workspace,
        env=environment(**served.env),
        capture_output=True,
        text=True,
    )
    assert told.returncode == 0
    assert number == 1 or told.stdout == "allow (low)\n"
    assert number == 2 or "a standard stream is closed" in told.stderr


def test_what_a_client_writes_has_the_mode_that_its_umask_leaves(
    local: Local, workspace: Path
) -> None:
    def modes() -> list[int]:
        found = []
        for mask in (0o077, 0o002):
            with local.popen(
                "run", "--report", "report.json", "true", cwd=workspace, umask=mask
            ) as process:
                assert process.wait(LONGEST) == 0
            report = workspace / "report.json"
            found.append(report.stat().st_mode & 0o777)
            report.unlink()
        return found

    plain = modes()
    assert plain[0] != plain[1]
    local.start()
    local.warm(workspace, "--report", "report.json")
    (workspace / "report.json").unlink()
    assert modes() == plain


def test_many_clients_at_once_are_all_answered(served: Local, workspace: Path) -> None:
    processes = [served.popen("check", "ls", cwd=workspace) for _ in range(120)]
    for process in processes:
        with process:
            assert process.communicate(timeout=LONGEST) == (b"allow (low)\n", b"")
            assert process.returncode == 0
    assert "not by the local server" not in served.run("check", "-v", "ls").stderr


HELD = """
import anyio, os
from belljar.session.session import Session
close = Session.close
async def held(self):
    while not os.path.exists({path!r}):
        await anyio.sleep(0.01)
    await close(self)
Session.close = held
"""


def test_a_client_need_not_wait_for_the_end_of_a_throwaway_sandbox(
    local: Local, workspace: Path, tmp_path: Path
) -> None:
    over = tmp_path / "over"
    local.start(f"exec({HELD.format(path=str(over))!r})")
    read, write = os.pipe()
    with local.popen("run", "echo hi; exit 3", cwd=workspace, stdout=write) as process:
        os.close(write)
        assert process.wait(LONGEST) == 3
    with open(read) as output:
        assert output.read() == "hi\n", "nobody else holds it"
    assert len(local.ending()) == 1, "it is still there"
    assert local.run("ps", "--json").json == [], "but nobody's session"
    with local.popen("run", "--name", "x", "echo named", cwd=workspace) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"named\n"
        assert process.poll() is None, "the next command may want the name"
        over.touch()
        assert process.wait(LONGEST) == 0
    local.until(lambda: local.ending() == [])


def test_a_worker_that_cannot_end_its_sandbox_does_not_stay(
    local: Local, workspace: Path, tmp_path: Path
) -> None:
    held = HELD.format(path=str(tmp_path / "never"))
    local.start(f"worker.LEFT_SECONDS = 1.0; exec({held!r})")
    assert local.run("run", "echo hi", cwd=workspace).stdout == "hi\n"
    (left,) = local.ending()
    local.until(lambda: not rundir.owned(left.parent))


def test_a_worker_that_is_lost_is_told(served: Local, workspace: Path) -> None:
    with served.popen("run", "echo begun; sleep 600", cwd=workspace) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        os.kill(_worker_of(served), signal.SIGKILL)
        assert process.wait(LONGEST) == 125
        assert b"worker was lost while the command ran" in process.stderr.read()


def test_a_client_that_is_killed_at_any_moment_leaves_nothing(
    served: Local, workspace: Path
) -> None:
    served.warm(workspace)
    for milliseconds in (0, 1, 2, 4, 8, 16, 32, 64):
        with served.popen("run", "sleep 600", cwd=workspace) as process:
            time.sleep(milliseconds / 1000)
            process.kill()
    served.until(lambda: served.run("ps", "--json").json == [])
    assert served.run("run", "echo hi", cwd=workspace).stdout == "hi\n"


def test_a_client_without_its_python_says_so(tmp_path: Path) -> None:
    alone = tmp_path / "belljar"
    shutil.copy(CLIENT[0], alone)
    ran = subprocess.run([alone, "check", "ls"], capture_output=True, text=True)
    assert ran.returncode == 125
    assert ran.stderr == f"belljar: {alone}-python: No such file or directory\n"


def test_the_directory_is_the_one_the_client_is_in_whatever_its_path_leads_to_now(
    served: Local, workspace: Path
) -> None:
    here, moved = workspace / "here", workspace / "moved"
    here.mkdir()
    (here / "mine").touch()
    script = f"mv {here} {moved}; mkdir {here}; {CLIENT[0]} run ls"
    ran = subprocess.run(
        ["bash", "-c", script],
        cwd=here,
        env=environment(**served.env),
        capture_output=True,
        check=True,
    )
    assert ran.stdout == b"mine\n"


# Without a server that can be trusted.


def test_without_a_server_nothing_is_said(local: Local, workspace: Path) -> None:
    answer = local.run("run", "echo hi", cwd=workspace)
    assert (answer.stdout, answer.stderr) == ("hi\n", "")


def _fallen_back(local: Local, workspace: Path) -> str:
    """What -v says of a plain run; without it nothing is said."""
    quiet = local.run("check", "ls", cwd=workspace)
    assert (quiet.status, quiet.stderr) == (0, "")
    told = local.run("check", "-v", "ls", cwd=workspace).stderr.splitlines()[0]
    assert told.startswith("belljar: not by the local server: ")
    return told


@contextmanager
def _impostor(local: Local, answer: bytes | None) -> Iterator[None]:
    local.place.mkdir(mode=0o700)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(local.place / "socket"))
    listener.listen()
    held: list[socket.socket] = []

    def serve() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            held.append(caller)
            if answer is not None:
                caller.send(answer)
                caller.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    listener.shutdown(socket.SHUT_RDWR)
    thread.join()
    for each in (listener, *held):
        each.close()


@pytest.mark.parametrize(
    "answer",
    [b"", b"refused nonsense\n", b"taken 999999999\n", b"taken x\n", b"\xff\0\n", None],
)
def test_a_server_that_answers_nonsense_or_nothing_is_not_used(
    local: Local, workspace: Path, answer: bytes | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _impostor(local, answer):
        _fallen_back(local, workspace)


def test_a_meeting_place_that_others_can_enter_is_not_used(
    local: Local, workspace: Path
) -> None:
    with _impostor(local, b"status 0\n"):
        local.place.chmod(0o755)
        assert "only you can enter" in _fallen_back(local, workspace)
        local.place.chmod(0o700)
        local.place.rename(local.root / "elsewhere")
        local.place.symlink_to(local.root / "elsewhere")
        _fallen_back(local, workspace)


@pytest.mark.root
def test_a_server_of_another_user_is_not_used(local: Local, workspace: Path) -> None:
    local.place.mkdir(mode=0o700)
    place = os.open(local.place, os.O_PATH)
    ready, say = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.chmod(local.place, 0o777)
        os.chmod(local.root, 0o777)
        os.setresuid(1000, 1000, 1000)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(local.place / "socket"))
        listener.listen()
        os.write(say, b"+")
        while True:
            caller, _ = listener.accept()
            with suppress(OSError):  # the client has hung up
                caller.send(b"status 0\n")
    try:
        os.read(ready, 1)
        os.chmod(local.place, 0o700)
        os.chmod(local.root, 0o700)
        assert "another user" in _fallen_back(local, workspace)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        for descriptor in (place, ready, say):
            os.close(descriptor)


def _worker_of(local: Local) -> int:
    """The only worker that does not wait."""
    assert local.server is not None
    children = (
        Path(f"/proc/{local.server.pid}/task/{local.server.pid}/children")
        .read_text()
        .split()
    )
    waiting = {str(_owner(path)) for path in local.waiting()}
    (pid,) = (int(each) for each in children if each not in waiting)
    return pid


def _owner(facts: Path) -> int:
    """The process that holds the lock of a sandbox's directory."""
    inode = (facts.parent / "owner").stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return next(
        int(line.split()[4]) for line in lines if line.split()[5].endswith(f":{inode}")
    )


def _state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
