"""What the server refuses, what it survives, when it ends (server.py, worker.py, meeting.py)."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from tests.surfaces.invoking import CLIENT, environment
from tests.surfaces.local.conftest import LONGEST, Local

import belljar
from belljar import resources
from belljar.options import SandboxOptions
from belljar.surfaces.local import meeting, worker
from belljar.surfaces.local.server import MOST_CALLERS, Guess

pytestmark = pytest.mark.engine


def dialled(local: Local) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(LONGEST)
    connection.connect(str(local.place / "socket"))
    return connection


LAUNCHER = CLIENT[0] + "-python"
NO_LAUNCHERS = ("", "/dev/zero", "/proc/self/mem", "/bin/sh", "/nowhere")


def request(
    *argv: str, protocol: bytes = meeting.PROTOCOL, launcher: str = LAUNCHER
) -> bytes:
    variables = [name + b"=" + value for name, value in os.environb.items()]
    own = [protocol, b"000", os.fsencode(launcher)]
    return meeting.packed(own, [word.encode() for word in argv], variables)


def answer_to(local: Local, data: bytes) -> bytes:
    with dialled(local) as connection:
        connection.sendall(data)
        return connection.recv(4096)


@pytest.mark.parametrize(
    "data",
    [
        b"x" * 100, b"00000000", b"ffffffff" + b"x" * 10, b"-0000001x", b"00000003abc", b"00000005" + b"9\0a\0\0",
        b"00000006" + b"99999\0", b"00000004" + b"-1\0\0", request(), request("serve", "--local"), request("shell"),
        request("run", "true", protocol=b"another"),
        *(request("run", "true", launcher=path) for path in NO_LAUNCHERS), b"00000004stop" + b"more",
    ],
)  # fmt: skip
def test_nonsense_is_refused_and_the_server_lives(served: Local, data: bytes) -> None:
    assert answer_to(served, data).startswith(b"refused ")
    assert served.run("check", "-v", "ls").stdout == "allow (low)\n"
    assert served.server is not None
    assert served.server.poll() is None


def test_callers_that_say_nothing_keep_nobody_out(served: Local) -> None:
    silent: list[socket.socket] = []
    try:
        while len(silent) < MOST_CALLERS + 10:
            silent.append(socket.socket(socket.AF_UNIX))
            served.until(
                lambda: silent[-1].connect_ex(str(served.place / "socket")) == 0
            )
        silent[0].sendall(b"0000")
        served.until(
            lambda: (
                "not by the local server" not in served.run("check", "-v", "ls").stderr
            )
        )
    finally:
        for each in silent:
            each.close()


def test_descriptors_that_come_with_a_request_are_not_kept(served: Local) -> None:
    assert served.server is not None
    count = lambda: len(os.listdir(f"/proc/{served.server.pid}/fd"))  # type: ignore[union-attr]  # noqa: E731
    before = count()
    with dialled(served) as connection, open(os.devnull) as null:
        socket.send_fds(connection, [b"0000ffff"], [null.fileno()] * 200)
        served.until(lambda: count() == before + 1)
    served.until(lambda: count() == before)


def test_nothing_runs_before_the_client_says_go(served: Local, workspace: Path) -> None:
    served.warm(workspace)
    for goodbye in (b"", b"no\n", b"go\n"):  # without descriptors
        with dialled(served) as connection:
            connection.sendall(request("check", "ls"))
            pid = int(connection.recv(64).removeprefix(b"taken "))
            connection.sendall(goodbye)
            if goodbye:
                assert connection.recv(64) == b""
        served.until(lambda pid=pid: not Path(f"/proc/{pid}").exists())
    assert len(served.waiting()) == 2


def confined() -> None:
    assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS


def limited() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))


@pytest.mark.parametrize(
    ("make", "which"), [(confined, "NoNewPrivs"), (limited, "limits")]
)
def test_a_client_with_less_rights_than_the_server_is_refused(
    served: Local, make: Callable[[], None], which: str
) -> None:
    argv = [*CLIENT, "check", "-v", "ls"]
    ran = subprocess.run(
        argv,
        env=environment(**served.env),
        preexec_fn=make,
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    assert ran.stdout == "allow (low)\n"
    assert (
        f"not by the local server: it was started with other rights ({which})"
        in ran.stderr
    )


@pytest.mark.root
def test_another_user_is_refused(served: Local) -> None:
    connection = socket.socket(socket.AF_UNIX)
    served.root.chmod(0o777)
    served.place.chmod(0o777)
    (served.place / "socket").chmod(0o777)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setresuid(1000, 1000, 1000)
        connection.connect(str(served.place / "socket"))
        connection.sendall(request("check", "ls"))
        os.write(write, connection.recv(200))
        os._exit(0)
    os.waitpid(pid, 0)
    assert b"another user" in os.read(read, 200)
    connection.close()
    os.close(read)
    os.close(write)


def test_nothing_of_one_client_is_left_in_the_next(
    served: Local, workspace: Path
) -> None:
    served.run("run", "-e", "SECRET", "echo", cwd=workspace, env={"SECRET": "word"})
    answer = served.run("run", "-e", "SECRET", "echo", cwd=workspace)
    assert answer.status == 2
    assert "SECRET is not set here" in answer.stderr
    assert served.server is not None
    for each in [served.server.pid, *_children(served)]:
        with suppress(ProcessLookupError, FileNotFoundError):  # it has ended meanwhile
            assert b"SECRET" not in Path(f"/proc/{each}/environ").read_bytes()


def test_a_client_below_make_is_served(served: Local, workspace: Path) -> None:
    """make leaves signals of libc's own ignored, which no program can set."""
    rule = f"all:\n\t@{' '.join(CLIENT)} run 'echo hi'\n"
    made = subprocess.run(
        ["make", "-f", "-"], input=rule.encode(), cwd=workspace, env=environment(**served.env), capture_output=True,
    )  # fmt: skip
    assert made.stdout == b"hi\n", made.stderr


def test_a_client_with_other_variables_that_matter_gets_a_new_sandbox(
    served: Local, workspace: Path
) -> None:
    served.warm(workspace)
    ready = {path.parent.name for path in served.waiting()}
    env = {"BELLJAR_PATIENCE": "2"}
    assert (
        served.run("run", "--json", "true", cwd=workspace, env=env).json["session"]
        not in ready
    )


def test_settings_are_read_for_each_command(
    local: Local, workspace: Path, tmp_path: Path
) -> None:
    settings = tmp_path / "config.toml"
    settings.write_text('memory = "64m"\n')
    settings.chmod(0o600)
    local.env["BELLJAR_CONFIG"] = str(settings)
    local.start()
    for memory in ("64m", "96m"):
        settings.write_text(f'memory = "{memory}"\n')
        for _ in range(2):
            local.run("run", "--report", "report.json", "true", cwd=workspace)
            assert (
                f'"memory": {int(memory[:-1]) << 20}'
                in (workspace / "report.json").read_text()
            )
            local.until(local.waiting)


def test_what_the_operator_enforces_meanwhile_holds_for_the_next_command(
    local: Local, workspace: Path, tmp_path: Path
) -> None:
    operator = tmp_path / "operator.toml"
    local.start(
        f"from pathlib import Path; from belljar import enforcement; enforcement.OPERATOR = Path({str(operator)!r})"
    )
    local.warm(workspace, "--json")
    ready = {path.parent.name for path in local.waiting()}
    operator.write_text('[enforce]\nmemory = "64m"\n')
    operator.chmod(0o644)
    for _ in range(2):
        made = local.run("run", "--json", "true", cwd=workspace).json
        assert made["session"] not in ready
        local.run("run", "--report", "report.json", "true", cwd=workspace)
        report = (workspace / "report.json").read_text()
        assert f'"memory": {64 << 20}' in report
        local.until(local.waiting)
    more = local.run("run", "--memory", "65m", "true", cwd=workspace)
    assert more.status == 2
    assert "may be at most 64m" in more.complaint
    operator.write_text("[enforce]\nmemory = [\n")
    assert local.run("run", "true", cwd=workspace).status == 2


KEYRING = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
KEYCTL, ADD = {'x86_64': (250, 248), 'aarch64': (219, 217)}[os.uname().machine]
def keyring(*arguments): return libc.syscall(KEYCTL, *arguments)
def found(): return keyring(10, -3, b'user', b'belljar-test', 0)
assert keyring(1, None) > 0
assert libc.syscall(ADD, b'user', b'belljar-test', b'secret', 6, -3) > 0
assert found() > 0
status_of = worker.status_of
def told(argv):
    print('key', found() > 0, flush=True)
    return status_of(argv)
worker.status_of = told
"""


def test_no_key_of_who_started_the_server_is_in_a_worker(
    local: Local, workspace: Path
) -> None:
    local.start(f"exec({KEYRING!r}, {{'worker': worker}})")
    for _ in range(2):
        ran = local.run("run", "echo hi", cwd=workspace)
        assert ran.stdout == "key False\nhi\n"
        local.until(local.waiting)


def test_another_or_a_changed_belljar_is_not_served(
    local: Local, tmp_path: Path
) -> None:
    copy = tmp_path / "belljar"
    shutil.copytree(
        Path(belljar.__file__).parent,
        copy,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for name in ("policies", "sandbox-images"):
        shutil.copytree(resources.directory(name), copy / name)
    uncounted = {
        "COVERAGE_PROCESS_CONFIG": "",
        "COVERAGE_PROCESS_START": "",
    }  # the copy is not what is tested
    same = {"PYTHONPATH": str(tmp_path), **uncounted}
    local.start(setup="pass", **same)
    assert "other variables for Python" in local.run("check", "-v", "ls").stderr
    assert "not by" not in local.run("check", "-v", "ls", env=same).stderr
    (copy / "policies" / "default.toml").touch()
    answer = local.run("check", "-v", "ls", env=same)
    assert "its files have changed" in answer.stderr
    assert local.server is not None
    assert local.server.wait(LONGEST) == 0


def test_an_idle_server_ends_with_all_that_waits(local: Local, workspace: Path) -> None:
    local.start("server.KIND_SECONDS = 1.0; server.IDLE_SECONDS = 2.0")
    local.run("run", "true", cwd=workspace)
    assert local.server is not None
    assert local.server.wait(LONGEST) == 0
    assert list(local.root.glob("bj-*")) == []
    assert not (local.place / "socket").exists()


def test_sandboxes_that_wait_end_with_a_killed_server(
    served: Local, workspace: Path
) -> None:
    served.warm(workspace)
    assert served.server is not None
    served.server.kill()
    served.until(lambda: not list(served.root.glob("bj-*")))
    assert served.run("run", "echo hi", cwd=workspace).stdout == "hi\n"


def test_a_command_that_runs_outlives_the_end_of_the_server(
    served: Local, workspace: Path
) -> None:
    with served.popen(
        "run",
        "echo begun; until [ -e go ]; do sleep 0.05; done; echo done",
        cwd=workspace,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        assert served.run("serve", "--stop").status == 0
        (workspace / "go").touch()
        assert process.stdout.read() == b"done\n"
        assert process.wait(LONGEST) == 0


def test_a_workspace_that_was_moved_gets_a_new_sandbox(
    served: Local, workspace: Path
) -> None:
    served.warm(workspace)
    ready = {path.parent.name for path in served.waiting()}
    moved = workspace.with_name("moved")
    workspace.rename(moved)
    assert served.run("run", "--json", "true", cwd=moved).json["session"] not in ready


def test_a_sandbox_that_died_while_it_waited_is_not_used(
    served: Local, workspace: Path, docker_client: Any
) -> None:
    served.warm(workspace)
    for path in served.waiting():
        docker_client.containers.get(json.loads(path.read_text())["container"]).kill()
    assert served.run("run", "echo hi", cwd=workspace).stdout == "hi\n"


@pytest.mark.parametrize(
    "more",
    [
        {"changes": "staged"},
        {"name": "x"},
        {"keep": True},
        {"cache": (("pip", "~/.cache/pip"),)},
    ],
)
def test_sandboxes_with_something_of_their_own_are_not_started_ahead(
    more: dict[str, Any],
) -> None:
    assert worker.can_wait(SandboxOptions("."))
    assert not worker.can_wait(SandboxOptions(".", **more))


def test_a_guess_rests_on_the_options_before_the_command() -> None:
    def of(*argv: str) -> tuple[str, ...]:
        return Guess.of(argv, (1, 2), b"000").options

    assert of("run", "ls") == of("run", "make test") == ("run",)
    assert of("run", "--memory", "1g", "ls") != of("run", "ls")
    assert of("run", "--", "ls", "-l") == ("run", "--")


@pytest.mark.parametrize(
    "parts", [([],), ([b"", b"a"], [], [b"x=\xff"]), ([b"a b\n"],) * 3]
)
def test_what_was_packed_is_unpacked(parts: tuple[list[bytes], ...]) -> None:
    packed = meeting.packed(*parts)
    assert int(packed[:8], 16) == len(packed) - 8
    assert meeting.unpacked(packed[8:]) == list(parts)


def _children(local: Local) -> list[str]:
    assert local.server is not None
    pid = local.server.pid
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def test_the_server_s_children_are_in_sessions_of_their_own(
    served: Local, workspace: Path
) -> None:
    served.warm(workspace)
    assert served.server is not None
    for child in _children(served):
        assert os.getsid(int(child)) == int(child)
        held = set()
        for each in Path(f"/proc/{child}/fd").iterdir():
            with suppress(FileNotFoundError):  # closed meanwhile
                held.add(os.readlink(each))
        assert not any(str(served.place) in name for name in held), (
            "the lock or the listener of the server"
        )
    served.server.send_signal(signal.SIGTERM)
    assert served.server.wait(LONGEST) == 0
    assert list(served.root.glob("bj-*")) == []
