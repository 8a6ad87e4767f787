"""The init reports what the kernel shows it of its own sandbox, and sets the limits that no engine set."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.init.client import Box, Closed, Connection, docker

MakeBox = Callable[..., Box]
NOTHING = "0000000000000000"


def test_the_testimony_holds_what_is_in_force(link: Connection) -> None:
    files, _ = link.testify()
    status = dict(
        line.split(":\t", 1)
        for line in files["/proc/self/status"].splitlines()
        if ":\t" in line
    )
    assert status["Uid"].split() == ["1000"] * 4
    assert status["CapBnd"] == NOTHING
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"
    assert status["Pid"] == "1"
    assert "Max open files" in files["/proc/self/limits"]
    assert " / ro," in files["/proc/self/mountinfo"]
    assert len(files["/proc/net/route"].splitlines()) == 1, "a head and no route"
    first, second = (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory.max",
    )
    assert files.get(first, files.get(second, "")).strip() == str(512 << 20)


def test_the_testimony_says_of_each_path_whether_something_is_there(
    link: Connection,
) -> None:
    _, there = link.testify(
        "/proc/self", "/no/such/path", "/etc/passwd", "/proc/version"
    )
    assert there == bytes([1, 0, 1, 1])


def test_a_testimony_is_bounded_and_may_be_asked_for_again_and_again(
    link: Connection,
) -> None:
    paths = [f"/no/{number:060}" for number in range(120)]
    for _ in range(20):
        files, there = link.testify(*paths)
        assert there == bytes(120)
        assert sum(map(len, files.values())) < 256 << 10
    assert link.testify("unfinished")[1] == b"\0"


def test_the_init_sets_limits_on_itself_and_every_command_inherits_them(
    make_box: MakeBox,
) -> None:
    box = make_box(
        arguments=(
            "--limit",
            "nofile=77",
            "--limit",
            "nproc=40",
            "--limit",
            "fsize=4096",
        )
    )
    link = box.connect()
    assert (
        link.run("ulimit -Hn; ulimit -Sn; ulimit -Hu; ulimit -n 78 || echo refused").out
        == b"77\n77\n40\nrefused\n"
    )
    assert "77 " in next(
        line
        for line in link.testify()[0]["/proc/self/limits"].splitlines()
        if "open files" in line
    )


def test_a_limit_of_the_engine_s_that_is_lower_stays(make_box: MakeBox) -> None:
    box = make_box(
        options=("--ulimit", "nofile=60:60"), arguments=("--limit", "nofile=77")
    )
    assert box.connect().run("ulimit -Hn").out == b"60\n"


@pytest.mark.parametrize(
    "words", ["--limit speed=1", "--limit nofile", "--limit", "--listen", "x y"]
)
def test_an_argument_that_it_does_not_know_ends_it(
    image: str, init: Path, words: str
) -> None:
    command = [
        "docker",
        "run",
        "--rm",
        "--network",
        "none",
        "-v",
        f"{init}:/init:ro",
        "--entrypoint",
        "/init",
        image,
    ]
    done = subprocess.run(
        [*command, "--dial", "/", "--lease", "9", *words.split()],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 64
    assert "usage" in done.stderr


def test_a_bridge_of_the_commands_user_is_let_in_only_where_the_engine_has_no_other(
    make_box: MakeBox,
) -> None:
    box = make_box(bridged=True, arguments=("--same-user",))
    connection = box.bridge(user="1000:1000")
    connection.hello(box.token.encode())
    assert connection.run("echo in").out == b"in\n"
    with pytest.raises(Closed):
        box.bridge(user="1000:1000").hello(b"0" * 64)
    strict = make_box(bridged=True)
    with pytest.raises((Closed, BrokenPipeError)):
        strict.bridge(user="1000:1000").hello(strict.token.encode())


def test_an_installed_copy_can_be_run_by_others_and_not_read(
    make_box: MakeBox, init: Path
) -> None:
    box = make_box(options=("--tmpfs", "/shared:exec,mode=1777"))
    docker("exec", "-u", "0:0", box.name, "/.belljar/init", "--install", "/shared/copy")
    link = box.connect()
    assert link.run(
        "stat -c '%a %s' /shared/copy; cat /shared/copy; /shared/copy --version"
    ).out.startswith(b"711 %d\nbelljar-init " % init.stat().st_size)
    again = docker(
        "exec",
        "-u",
        "0:0",
        box.name,
        "sh",
        "-c",
        "/.belljar/init --install /shared/copy || echo refused",
    )
    assert again == "refused", "an existing file is never followed or replaced"
