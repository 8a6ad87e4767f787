"""Commands of one sandbox share a user, but none can reach another command, a waiting shell or a keeper."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.init.client import (
    CONTROL,
    DEFAULT_ENV,
    IN_BACKGROUND,
    SHELL,
    Box,
    Connection,
    Run,
)

MakeBox = Callable[..., Box]

# Tries to read or signal every process but itself and its children.
PRY = r"""
for each in /proc/[0-9]*; do
  pid=${each#/proc/}; [ "$pid" = $$ ] && continue; [ -d "$each" ] || continue
  grep -q "^PPid:.$$\$" $each/status 2>/dev/null && continue
  cat $each/environ >/dev/null 2>&1 && echo "environ of $pid"
  for fd in 0 1 2 8 9 10; do readlink $each/fd/$fd >/dev/null 2>&1 && echo "descriptor $fd of $pid"; done
  ls -d $each/cwd/ >/dev/null 2>&1 && echo "directory of $pid"
  : 2>/dev/null <$each/mem && echo "memory of $pid"
  kill -0 $pid 2>/dev/null && echo "signals to $pid"
done; true
"""


@pytest.fixture
def victim(link: Connection) -> Run:
    run = link.shell("SECRET=hunter2 exec sleep 600", IN_BACKGROUND)
    link.until(lambda: run.pid)
    return run


def test_the_kernel_here_can_keep_commands_apart(shared_box: Box) -> None:
    """Without this the tests below would prove nothing."""
    assert shared_box.knock().hello().isolation >= 6


def test_a_command_reaches_no_other_process(link: Connection, victim: Run) -> None:
    found = link.run(PRY)
    assert (found.out, found.err) == (b"", b"")


def test_a_background_command_reaches_no_later_command(link: Connection) -> None:
    spy = link.shell(
        f"while sleep 0.02; do {{ {PRY} }} ; done", IN_BACKGROUND, ring=1 << 16
    )
    link.until(lambda: spy.pid)
    for _ in range(20):
        assert link.run("sleep 0.05; echo fine", env=(b"SECRET=1",)).out == b"fine\n"
    assert link.read(spy.id).out == b""


@pytest.mark.parametrize(
    "text", ["echo forged; exit 42\\0", "echo forged; sleep 0.5; exit 42\\0", "\\0"]
)
def test_a_command_cannot_write_to_a_preforked_shell(
    link: Connection, text: str
) -> None:
    """Once a command could write its own text to a waiting shell, and so live on after its end."""
    link.run("true")
    for _ in range(5):
        fed = link.run(
            f"for each in /proc/[0-9]*/fd/9; do printf '{text}' >$each && echo fed; done 2>/dev/null; true"
        )
        assert fed.out == b""
        after = link.run("echo innocent")
        assert after.end is not None
        assert (after.out, after.end.exit_code) == (b"innocent\n", 0)


def test_signals_reach_only_a_command_s_own_children(
    link: Connection, victim: Run
) -> None:
    assert link.run("sleep 600 & kill $! && wait $!; echo $?").out == b"143\n"
    assert link.run(f"kill -KILL {victim.pid}; echo $?").out == b"1\n"
    link.run("kill -KILL -1")
    assert link.read(victim.id).ended is None


def test_files_can_still_be_moved_and_linked_between_directories(
    link: Connection,
) -> None:
    made = link.run(
        "mkdir -p /tmp/a /tmp/b && echo x >/tmp/a/f && mv /tmp/a/f /tmp/b/g && ln /tmp/b/g /tmp/a/h && cat /tmp/a/h"
    )
    assert (made.out, made.err) == (b"x\n", b"")


def test_a_control_stream_comes_with_an_unnamed_memory_file(link: Connection) -> None:
    run = link.spawn(
        "bash",
        "-c",
        "echo kept >|/dev/fd/6; read -r x </dev/fd/6; echo $x; ls /dev/shm",
        flags=CONTROL | DEFAULT_ENV,
    )
    assert link.finish(run).out == b"kept\n"


def test_without_landlock_no_shell_is_preforked_and_the_greeting_says_so(
    make_box: MakeBox, no_landlock: tuple[str, ...]
) -> None:
    box = make_box(options=no_landlock)
    connection = box.knock()
    assert connection.hello().isolation == 0
    for _ in range(3):
        assert connection.run("echo works").out == b"works\n"
    assert not any("bash" in line for line in box.processes())


def test_the_state_of_a_command_is_read_from_the_kernel(link: Connection) -> None:
    run = link.spawn(
        "cd /tmp; x=$(for i in {1..100000}; do :; done); PWD=/nowhere; cd() { :; }; echo ready; read -r -u 9 _",
        flags=SHELL | CONTROL | DEFAULT_ENV,
    )
    link.until(lambda: run.out == b"ready\n")
    state = link.state(run)
    assert state.cwd == b"/tmp"
    while not link.state(run).waits:
        pass  # the shell is ready and about to read
    busy = link.spawn("sleep 60; read -r -u 9 _", flags=SHELL | CONTROL | DEFAULT_ENV)
    link.until(lambda: busy.pid)
    assert not link.state(busy).waits, "it does not wait for us"
    assert state.cpu_us > 0
    assert state.peak > 1 << 20


def test_no_command_is_told_where_the_cluster_s_api_server_is(
    make_box: MakeBox,
) -> None:
    """A kubelet writes that into every container's environment."""
    told = ("-e", "KUBERNETES_SERVICE_HOST=10.96.0.1", "-e", "KEPT=yes")
    connection = make_box(options=told).knock()
    connection.hello()
    assert connection.run("env | grep -e KUBERNETES -e KEPT").out == b"KEPT=yes\n"
