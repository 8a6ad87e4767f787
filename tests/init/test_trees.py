"""No process outlives its command, whatever it does, and PID 1 outlives them all."""

# ruff: noqa: E501  (commands are shown as they are sent)

from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest
from tests.init.client import (
    COMBINED,
    DEADLINE,
    EXITED,
    IN_BACKGROUND,
    KILL,
    KILLED,
    OUT_OF_MEMORY,
    SIGNALLED,
    STDIN,
    TIMEOUT,
    Box,
    Connection,
)

MakeBox = Callable[..., Box]
ESCAPE = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\nimport time; time.sleep(60)"


def commands_left(box: Box) -> list[str]:
    """Processes other than the init, its keepers and the waiting shells."""
    return [
        line
        for line in box.processes()
        if "/.belljar/init" not in line and "BASH_EXECUTION_STRING" not in line
    ]


@pytest.mark.parametrize(
    "text",
    [
        "sleep 61 & sleep 62 & echo x",
        "setsid -f sleep 63; (setsid sleep 64 &) ; nohup sleep 65 >/dev/null 2>&1 & disown",
        f"python3 -c '{ESCAPE}'",
        "(trap '' TERM HUP INT; exec -a escapee sleep 66) & exit 0",
        "for i in $(seq 50); do setsid -f bash -c 'setsid -f sleep 67; sleep 68'; done",
    ],
)
def test_what_a_finished_command_left_running_is_killed_and_counted(
    shared_box: Box, link: Connection, text: str
) -> None:
    end = link.run(text).end
    assert end is not None
    assert (end.cause, end.exit_code) == (EXITED, 0)
    assert end.survivors >= 1
    assert commands_left(shared_box) == []


def test_a_timed_out_command_leaves_no_process_behind(
    shared_box: Box, link: Connection
) -> None:
    end = link.run(
        "setsid -f sleep 60; trap '' TERM; sleep 60; sleep 60", deadline=200, grace=100
    ).end
    assert end is not None
    assert (end.cause, end.signal) == (TIMEOUT, signal.SIGKILL)
    assert commands_left(shared_box) == []


def test_a_timed_out_command_may_clean_up_within_its_grace(link: Connection) -> None:
    run = link.run(
        "trap 'echo cleaning; exit 9' TERM; sleep 60 & wait", deadline=200, grace=10_000
    )
    assert run.out == b"cleaning\n"
    assert run.end is not None
    assert (run.end.cause, run.end.exit_code) == (TIMEOUT, 9)


def test_a_stopped_command_times_out_like_any_other(link: Connection) -> None:
    end = link.run("kill -STOP $$", deadline=200, grace=10_000).end
    assert end is not None
    assert (end.cause, end.signal) == (TIMEOUT, signal.SIGTERM)


def test_a_deadline_can_be_moved_and_disarmed(link: Connection) -> None:
    run = link.shell("echo up; sleep 0.5; echo done", deadline=60_000)
    link.until(lambda: run.out)
    link.tell(DEADLINE, run, 300, 0)
    link.tell(DEADLINE, run, 0, 0)
    assert link.finish(run).out == b"up\ndone\n"
    run = link.shell("sleep 60")
    link.tell(DEADLINE, run, 50, 0)
    end = link.finish(run).end
    assert end is not None
    assert end.cause == TIMEOUT


def test_a_fork_bomb_ends_at_its_deadline(shared_box: Box, link: Connection) -> None:
    for bomb in (":(){ :|:& };:", "while :; do (while :; do sleep 60 & done) & done"):
        end = link.run(
            f"{{ {bomb} ; }} 2>/dev/null; sleep 60", COMBINED, deadline=500, grace=0
        ).end
        assert end is not None
        assert end.cause == TIMEOUT
        assert commands_left(shared_box) == []
    assert link.run("echo still here").out == b"still here\n"


def test_a_thousand_orphans_are_reaped(shared_box: Box, link: Connection) -> None:
    program = "import os\nfor i in range(1000):\n  if os.fork() == 0:\n    if os.fork() == 0: os._exit(0)\n    os._exit(0)\n  os.wait()\nimport time; time.sleep(0.2)"
    run = link.run(f'python3 -c "{program}"; ps -eo stat | grep -c Z')
    assert int(run.out) <= 1
    assert [line for line in shared_box.processes() if "defunct" in line] == []


def test_kill_minus_one_from_inside_reaches_no_other_command(make_box: MakeBox) -> None:
    box = make_box()
    link = box.connect()
    bystander = link.shell("read -r x; echo $x", STDIN)
    link.until(lambda: bystander.pid)
    for signo in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        link.finish(
            link.shell(f"kill -{int(signo)} -1; kill -{int(signo)} 1", deadline=5000)
        )
    link.input(bystander, b"unharmed\n")
    assert link.finish(bystander).out == b"unharmed\n"


# Where the kernel does not scope signals, commands can signal keepers.


def test_without_landlock_kill_minus_one_hurts_only_the_commands(
    make_box: MakeBox, no_landlock: tuple[str, ...]
) -> None:
    box = make_box(options=no_landlock)
    link = box.connect()
    bystander = link.shell("sleep 60")
    background = link.shell("sleep 60", IN_BACKGROUND)
    link.until(lambda: bystander.pid and background.pid)
    for signo in (signal.SIGSTOP, signal.SIGTERM, signal.SIGKILL):
        link.finish(
            link.shell(
                f"kill -{int(signo)} -1; kill -{int(signo)} 1; sleep 0.3", deadline=5000
            )
        )
    end = link.finish(bystander).end
    assert end is not None
    assert end.cause in (KILLED, SIGNALLED)
    assert link.read(background.id, wait=5000).ended is not None
    assert commands_left(box) == []
    assert link.run("echo alive").out == b"alive\n"


def test_a_killed_keeper_takes_its_command_with_it(
    make_box: MakeBox, no_landlock: tuple[str, ...]
) -> None:
    shared_box = make_box(options=no_landlock)
    link = shared_box.connect()
    end = link.run("setsid -f sleep 60; kill -9 $PPID; sleep 60", deadline=10_000).end
    assert end is not None
    assert (end.cause, end.signal) == (KILLED, signal.SIGKILL)
    assert commands_left(shared_box) == []


def test_a_stopped_keeper_is_continued(
    make_box: MakeBox, no_landlock: tuple[str, ...]
) -> None:
    link = make_box(options=no_landlock).connect()
    run = link.run("kill -STOP $PPID; kill -STOP $PPID; echo x", deadline=10_000)
    assert run.out == b"x\n"
    assert run.end is not None
    assert run.end.cause == EXITED


def test_a_keeper_that_is_stopped_again_and_again_is_replaced(
    make_box: MakeBox, no_landlock: tuple[str, ...]
) -> None:
    shared_box = make_box(options=no_landlock)
    link = shared_box.connect()
    stopper = "import os,time\nk=os.getppid()\nwhile os.getppid()==k: os.kill(k,19)\ntime.sleep(60)"
    run = link.spawn("python3", "-c", stopper, flags=64)
    link.until(lambda: run.pid)
    link.tell(KILL, run, 0)
    end = link.finish(run).end
    assert end is not None
    assert end.cause == KILLED
    assert commands_left(shared_box) == []


def test_pid_1_cannot_be_inspected_or_deceived_from_inside(link: Connection) -> None:
    prying = "cat /proc/1/environ /proc/1/maps /proc/1/mem; ls /proc/1/fd; cat /proc/$PPID/environ /proc/$PPID/maps; ls /proc/$PPID/fd"
    run = link.run(f"{{ {prying}; }} 2>/dev/null | wc -c")
    assert run.out == b"0\n"
    forged = (
        "import ctypes,struct\n"
        "info=ctypes.create_string_buffer(struct.pack('iiiiiI',15,0,-1,0,0,0),128)\n"
        "libc=ctypes.CDLL(None,use_errno=True)\n"
        "print(libc.syscall(129,1,15,info))"
    )
    link.finish(link.spawn("python3", "-c", forged, flags=64))
    assert link.run("kill -TERM 1; echo alive").out == b"alive\n"


def test_out_of_memory_is_distinguished_from_a_kill(make_box: MakeBox) -> None:
    link = make_box(options=("--memory", "64m", "--memory-swap", "64m")).connect()
    run = link.run(
        "head -c 500000000 /dev/zero | tail -c 400000000 >/dev/null; exit ${PIPESTATUS[1]}"
    )
    assert run.end is not None
    assert (run.end.cause, run.end.exit_code) == (OUT_OF_MEMORY, 137)
    assert run.end.ooms >= 1
    end = link.run("kill -9 $$").end
    assert end is not None
    assert (end.cause, end.ooms) == (SIGNALLED, 0)


def test_commands_die_before_pid_1_does_when_memory_is_short(make_box: MakeBox) -> None:
    link = make_box().connect()
    assert link.run("cat /proc/self/oom_score_adj").out == b"1000\n"
    assert link.run(
        "umask; ulimit -c; grep -E '^Sig(Blk|Ign)' /proc/self/status"
    ).out == (b"0022\n0\nSigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n")


def test_a_preforked_shell_is_as_clean_as_one_spawned_on_demand(
    make_box: MakeBox,
) -> None:
    box = make_box()
    link = box.connect()
    look = "ls -l /proc/self/fd | sed 's/.* \\([0-9]* -> [a-z/]*\\).*/\\1/'; env | sort; ulimit -a; pwd -P; umask; cat /proc/self/oom_score_adj; trap; jobs"
    while sum("BASH_EXECUTION_STRING" in line for line in box.processes()) < 2:
        time.sleep(0.01)
    for _ in range(6):  # each shell comes after a command that tried to leave traces
        ahead = link.run(look)
        demand = link.finish(link.shell(look, cwd=b"/workspace"))
        assert ahead.out == demand.out
        assert ahead.err == demand.err == b""
        link.run(
            "export X=1; cd /tmp; umask 0; ulimit -n 10; exec 5</dev/null; trap 'echo x' EXIT"
        )


def test_preforked_shells_that_were_tampered_with_are_not_used(
    make_box: MakeBox,
) -> None:
    box = make_box()
    link = box.connect()
    tamper = "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p != $$ ] && [ $p != 1 ] && kill -%s $p; done 2>/dev/null; sleep 0.2"  # a signal takes a moment to arrive
    for how in ("STOP", "KILL", "TERM", "STOP"):
        link.finish(link.shell(tamper % how, cwd=b"/workspace", deadline=5000))
        for i in range(5):
            assert link.run(f"echo {i}", deadline=5000).out == b"%d\n" % i
    (box.workspace / "inner").mkdir()
    assert link.run("ls").out == b"inner\n"


def test_a_stop_signal_to_a_preforked_shell_does_not_stop_its_later_command(
    make_box: MakeBox,
) -> None:
    """No pause: when the next command comes, some signals are still on their way and some shells still start."""
    link = make_box().connect()
    stop = "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p != $$ ] && [ $p != 1 ] && kill -STOP $p; done 2>/dev/null"
    for _ in range(150):
        link.run("true")
        link.finish(link.shell(stop, cwd=b"/workspace", deadline=5000))
        for i in range(3):
            assert link.run(f"echo {i}", deadline=5000).out == b"%d\n" % i


@pytest.mark.parametrize("number", range(20))
def test_the_init_still_works_after_the_tests_above(
    link: Connection, number: int
) -> None:
    assert link.run(f"echo {number}").out == b"%d\n" % number
