"""How the init starts commands, how they end, and what it reports."""

# ruff: noqa: E501  (commands are shown as they are sent)

from __future__ import annotations

import errno
import signal
import subprocess

import pytest
from tests.init.client import (
    COMBINED,
    DEFAULT_ENV,
    EXITED,
    KILL,
    KILLED,
    SHELL,
    SIGNAL,
    SIGNALLED,
    STDIN,
    Box,
    Connection,
)

CWD, EXEC, DUPLICATE, REQUEST = 2, 3, 5, 1


@pytest.mark.parametrize("first", range(0, 256, 32))
def test_every_exit_code_arrives(link: Connection, first: int) -> None:
    codes = range(first, first + 32)
    runs = [
        link.spawn("bash", "-c", f"exit {code}", flags=DEFAULT_ENV) for code in codes
    ]
    runs += [link.shell(f"exit {code}") for code in codes]
    ends = [link.finish(run).end for run in runs]
    assert [(end.cause, end.exit_code, end.signal) for end in ends if end] == [
        (EXITED, code, 0) for code in (*codes, *codes)
    ]


def test_every_signal_arrives(link: Connection) -> None:
    deadly = [
        s for s in signal.valid_signals() if s not in (17, 18, 19, 20, 21, 22, 23, 28)
    ]
    for number in deadly:
        end = link.finish(
            link.spawn(
                "sh", "-c", f"kill -{int(number)} $$; sleep 60", flags=DEFAULT_ENV
            )
        ).end
        assert end is not None
        assert (end.cause, end.signal, end.exit_code) == (
            SIGNALLED,
            number,
            128 + number,
        )


def test_a_signal_reaches_the_whole_tree(link: Connection) -> None:
    run = link.shell(
        "trap 'echo parent; wait; exit 0' USR1; (trap 'echo child; exit 0' USR1; echo up; while :; do sleep 0.01; done) & wait"
    )
    link.until(lambda: run.out == b"up\n")
    link.tell(SIGNAL, run, signal.SIGUSR1)
    link.finish(run)
    assert sorted(run.out.split()) == [b"child", b"parent", b"up"]


def test_stdout_and_stderr_are_separate_and_complete_before_the_end(
    link: Connection,
) -> None:
    run = link.run("for i in 1 2 3; do echo out$i; echo err$i >&2; done; exit 7")
    assert (run.out, run.err) == (b"out1\nout2\nout3\n", b"err1\nerr2\nerr3\n")
    assert run.end is not None
    assert (run.end.exit_code, run.end.out_total, run.end.err_total) == (7, 15, 15)


def test_combined_output_keeps_its_exact_order(link: Connection) -> None:
    run = link.run("for i in $(seq 200); do echo o$i; echo e$i >&2; done", COMBINED)
    assert run.out == b"".join(b"o%d\ne%d\n" % (i, i) for i in range(1, 201))
    assert run.err == b""


def test_what_a_command_used_is_reported(link: Connection) -> None:
    end = link.run("head -c 50000000 /dev/zero | tail -c 40000000 | wc -c").end
    assert end is not None
    assert end.utime + end.stime > 0
    assert end.wall > 0
    assert end.maxrss > 40_000_000


def test_input_is_handed_over_and_acknowledged(link: Connection) -> None:
    run = link.shell("cat; echo done", STDIN)
    data = bytes(range(256)) * 1000
    for at in range(0, len(data), 64_000):
        link.input(run, data[at : at + 64_000])
    link.until(lambda: run.acked.get(0) == len(data))
    link.input(run, b"")
    assert link.finish(run).out == data + b"done\n"


def test_input_for_a_command_that_does_not_read_is_dropped_and_acknowledged(
    link: Connection,
) -> None:
    run = link.shell("exec 0<&-; echo closed; sleep 60", STDIN)
    link.until(lambda: run.out == b"closed\n")
    link.input(run, b"x" * 100_000)
    link.until(lambda: run.acked.get(0) == 100_000)
    link.tell(KILL, run, 0)
    link.finish(run)


def test_without_input_a_command_reads_nothing(link: Connection) -> None:
    assert link.run("wc -c").out == b"0\n"


@pytest.mark.parametrize(
    ("argv", "options", "expected"),
    [
        (("no-such-program",), {}, (errno.ENOENT, EXEC)),
        (("/no/such/program",), {}, (errno.ENOENT, EXEC)),
        (("/etc/passwd",), {}, (errno.EACCES, EXEC)),
        (("/etc",), {}, (errno.EACCES, EXEC)),
        (("true",), {"cwd": b"/no/such/place"}, (errno.ENOENT, CWD)),
        (("true",), {"cwd": b"/etc/passwd"}, (errno.ENOTDIR, CWD)),
        ((), {}, (errno.EINVAL, REQUEST)),
        (("a", "b"), {"flags": SHELL}, (errno.EINVAL, REQUEST)),
        (("true",), {"flags": 1 << 20}, (errno.EINVAL, REQUEST)),
    ],
)  # fmt: skip
def test_a_command_that_cannot_start_is_refused_with_its_reason(  # type: ignore[no-untyped-def]
    link, argv, options, expected
) -> None:
    run = link.finish(link.spawn(*argv, **{"flags": DEFAULT_ENV, **options}))
    assert run.error is not None
    assert run.error[:2] == expected
    assert run.pid is None


def test_an_id_is_never_run_twice(link: Connection, shared_box: Box) -> None:
    run = link.run("echo once >> /workspace/ran")
    for connection in (link, shared_box.connect()):
        again = connection.finish(
            connection.shell("echo twice >> /workspace/ran", id=run.id)
        )
        assert again.error is not None
        assert again.error[:2] == (errno.EEXIST, DUPLICATE)
    assert (shared_box.workspace / "ran").read_text() == "once\n"


def test_the_environment_is_exactly_what_was_given(link: Connection) -> None:
    assert link.finish(link.spawn("/usr/bin/env")).out == b""
    assert (
        link.finish(link.spawn("/usr/bin/env", env=(b"A=1", b"B=x y"))).out
        == b"A=1\nB=x y\n"
    )
    added = link.finish(
        link.spawn(
            "env", flags=DEFAULT_ENV, env=(b"HOME=/elsewhere", b"A=1"), cwd=b"/tmp"
        )
    ).out
    assert sorted(added.split(b"\n")) == [
        b"", b"A=1", b"HOME=/elsewhere", b"LC_CTYPE=C.UTF-8", b"LOGNAME=sandbox",
        b"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", b"PWD=/tmp", b"SHELL=/bin/bash", b"TERM=dumb",
        b"USER=sandbox",
    ]  # fmt: skip


def test_ten_thousand_variables_and_a_mebibyte_of_text_go_through(
    link: Connection,
) -> None:
    env = tuple(b"V%d=%d" % (i, i) for i in range(10_000))
    assert link.run("echo $V9999; env | grep -c ^V", env=env).out == b"9999\n10000\n"
    text = b"echo start\n" + b": " + b"x" * (1 << 20) + b"\necho end"
    assert link.run(text).out == b"start\nend\n"


def test_arguments_and_invalid_utf8_pass_as_bytes(link: Connection) -> None:
    odd = b"\xff\xfe'\"\\ \n$x*"
    assert link.finish(link.spawn("printf", "%s", odd, flags=DEFAULT_ENV)).out == odd
    assert link.run(b"printf %s '\xff\xc3('").out == b"\xff\xc3("
    assert link.run(b"printf %s '\xff\xc3('\n").out == b"\xff\xc3("


def test_a_kill_is_immediate_or_gives_a_grace_period(link: Connection) -> None:
    for grace, signo in ((0, signal.SIGKILL), (5000, signal.SIGTERM)):
        run = link.shell("echo up; sleep 60")
        link.until(lambda run=run: run.out)
        link.tell(KILL, run, grace)
        end = link.finish(run).end
        assert end is not None
        assert (end.cause, end.signal) == (KILLED, signo)


TEXTS = [
    "", " ", "#", "echo hi", "echo a; echo b >&2", "exit 3", "false", "echo $0 $# $-", 'echo "$@" | wc -c', "echo a \\", "echo 'a\nb'",
    "cat <<E\nx $((1+2))\nE", "cat <<'E'\n$x\nE", "echo one\n\n\necho $LINENO\nnope\n", "set -e; false; echo no", "set -x; echo hi", "-x", "--", "! true",
    "if", "if fi", "echo 'unterminated", "(exit 9)", "exec sh -c 'exit 4'", "echo $BASH_EXECUTION_STRING", "trap 'echo bye' EXIT; exit 5", "type read",
    "echo \"$REPLY|$IFS|$OPTIND|$PPID\" | tr -d 0-9", "kill -TERM $$", "echo ${BASH_SOURCE[0]-none} $BASH_SUBSHELL", "f() { return 6; }; f", "return 3", "jobs", "umask", "ulimit -c",
    "echo $?", "read x; echo [$x]", "no-such-command", "echo \\\\ \\n '\\'", "printf '%s' $'\\x01\\xff'", "exec 2>&1; echo x >&2", "shopt -p | head -3", "[[ -e /proc/self/fd/9 ]]; echo $?", "ls /proc/self/fd",
    "for i in {1..3}; do echo $i; done", "echo tilde ~", "cd /tmp; pwd; echo $OLDPWD", "x=$(echo sub); echo $x", "sleep 0.01 & wait; echo $?", "echo \"a  b\"  '  '",
]  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_text_runs_as_bash_c_would_run_it(
    link: Connection, shared_box: Box, text: str
) -> None:
    ours = link.run(text)
    told = link.finish(
        link.spawn("bash", "--noprofile", "--norc", "-c", "--", text, flags=DEFAULT_ENV)
    )
    assert ours.end is not None
    assert told.end is not None
    assert (ours.out, ours.end.exit_code) == (told.out, told.end.exit_code)
    # For one line of text a syntax error names eval. Nothing else may differ.
    assert ours.err.replace(b"bash: eval: line", b"bash: -c: line") == told.err


def test_the_init_prints_its_version_and_runs_only_as_pid_1(init) -> None:  # type: ignore[no-untyped-def]
    assert subprocess.run(
        [init, "--version"], capture_output=True, text=True, check=True
    ).stdout.startswith("belljar-init ")
    refused = subprocess.run(
        [init, "--dial", "/nonexistent", "--lease", "1"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused.returncode == 64
    assert refused.stderr == "belljar-init: refusing to run: not PID 1 of a sandbox\n"
