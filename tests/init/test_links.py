"""The link: who may connect, what garbage does, how bytes flow and wait, what is kept, and when the link ends."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import socket
import struct
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.init.client import (
    BACKGROUND,
    CLOCK,
    CONTROL,
    DIRECT,
    ERROR,
    EXITED,
    FORGET,
    HELLO,
    IN_BACKGROUND,
    INPUT,
    KILL,
    KILLED,
    LEASE,
    PING,
    PTY,
    READ,
    RESIZE,
    SHUTDOWN,
    SIGNAL,
    SPAWN,
    STDIN,
    TIMEOUT,
    VERSION,
    Box,
    Closed,
    Connection,
    docker,
    frame,
)

MakeBox = Callable[..., Box]


def closed(connection: Connection) -> bool:
    try:
        while True:
            connection.next()
    except (Closed, ConnectionError):
        return True


def gone(box: Box) -> None:
    """Wait until the container has ended. It may already be removed."""
    with contextlib.suppress(subprocess.CalledProcessError):
        box.wait()
    assert docker("ps", "-q", "--no-trunc", "--filter", f"id={box.name}") == ""


# Who may connect.


def test_a_greeting_has_the_version_and_one_boot_id_for_all_connections(
    shared_box: Box,
) -> None:
    first, second = shared_box.knock().hello(), shared_box.knock().hello()
    assert first[:2] == second[:2] == (VERSION, 1)
    assert first.boot == second.boot != 0


def test_nothing_is_done_before_a_proper_hello(shared_box: Box) -> None:
    for bad in (frame(PING, 0, bytes(8)), frame(HELLO, 0, b"\x01")):
        connection = shared_box.knock()
        connection.send(bad)
        assert closed(connection)


@pytest.mark.parametrize(
    "garbage",
    [
        b"\0" * 64,
        b"GET / HTTP/1.1\r\nHost: init\r\n\r\n",
        frame(99),
        frame(65),
        struct.pack("<IBBHQ", 8, PING, 0, 1, 0) + bytes(8),
        struct.pack("<IBBHQ", 0xFFFFFFFF, SPAWN, 0, 0, 1),
        struct.pack("<IBBHQ", 9 << 20, SPAWN, 0, 0, 1),
        frame(PING, 0, b"short"),
        frame(READ, 1, bytes(23)),
        frame(INPUT, 1, b"x", stream=1),
        frame(SPAWN, 1, bytes(40)),
        frame(
            SPAWN,
            1,
            struct.pack("<IIIIQHHIII", 64, 0, 0, 0, 0, 0, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0)
            + b"\0a\0",
        ),
        frame(
            SPAWN,
            1,
            struct.pack("<IIIIQHHIII", 64, 0, 0, 0, 0, 0, 0, 1, 0, 0xFFFFFFFF)
            + b"\0a\0",
        ),
        frame(
            SPAWN, 1, struct.pack("<IIIIQHHIII", 64, 0, 0, 0, 0, 0, 0, 1, 0, 0) + b"\0a"
        ),
        frame(
            SPAWN,
            1,
            struct.pack("<IIIIQHHIII", 64, 0, 0, 0, 0, 0, 0, 1, 0, 0) + b"\0a\0more\0",
        ),
    ],
)
def test_garbage_costs_only_the_connection_that_sent_it(
    shared_box: Box, link: Connection, garbage: bytes
) -> None:
    running = link.shell("sleep 0.05; echo unharmed")
    other = shared_box.connect()
    other.send(garbage)
    assert closed(other)
    assert link.finish(running).out == b"unharmed\n"


def test_random_bytes_never_crash_the_init(shared_box: Box, link: Connection) -> None:
    chance = random.Random(1)
    for _ in range(100):
        other = shared_box.connect()
        kind = chance.choice(
            [
                INPUT,
                4,
                SIGNAL,
                RESIZE,
                7,
                KILL,
                READ,
                10,
                FORGET,
                PING,
                BACKGROUND,
                SPAWN,
            ]
        )
        try:
            other.send(
                frame(
                    kind,
                    chance.getrandbits(64),
                    chance.randbytes(chance.randrange(60)),
                    chance.randrange(4),
                )
                + chance.randbytes(40)
            )
        finally:
            other.close()
    link.ping()


def test_frames_may_arrive_in_pieces(link: Connection) -> None:
    whole = frame(PING, 0, b"12345678") * 3
    for byte in whole:
        link.send(bytes([byte]))
    for _ in range(3):
        assert link.next()[3] == b"12345678"


def test_unknown_commands_are_named_in_the_answer(link: Connection) -> None:
    for kind, payload in (
        (SIGNAL, bytes(4)),
        (KILL, bytes(4)),
        (READ, bytes(24)),
        (RESIZE, bytes(4)),
    ):
        link.send(frame(kind, 12345, payload))
        got = link.wait_for(ERROR)
        assert got[2] == 12345
        assert struct.unpack_from("<I", got[3]) == (errno.ENOENT,)


# How bytes flow.


def test_a_gibibyte_goes_through_with_flat_memory(
    shared_box: Box, link: Connection
) -> None:
    link.keep = False
    run = link.run("head -c 1073741824 /dev/zero")
    assert run.counted[1] == 1 << 30
    assert shared_box.memory() < 2 << 20


def test_256_mebibytes_over_the_frames_alone_need_little_memory(
    make_box: MakeBox,
) -> None:
    box = make_box(bridged=True)
    link = box.bridge()
    link.hello(box.token.encode())
    link.keep = False
    run = link.run("head -c 268435456 /dev/zero; head -c 1000000 /dev/zero >&2")
    assert (run.counted[1], run.counted[2]) == (256 << 20, 1_000_000)
    assert run.end is not None
    assert (run.end.out_total, run.end.err_total) == (256 << 20, 1_000_000)
    assert box.memory() < 8 << 20


def test_output_that_is_never_read_stalls_only_its_own_command(
    link: Connection,
) -> None:
    flood = link.shell("yes", credit=1000)
    link.until(lambda: len(flood.out) == 1000)
    for i in range(20):
        assert link.run(f"echo {i}").out == b"%d\n" % i
    assert len(flood.out) == 1000
    link.credit(flood, 1, 5000)
    link.until(lambda: len(flood.out) == 5000)
    link.tell(KILL, flood, 0)
    link.credit(flood, 1, 1 << 62)
    link.finish(flood)


def test_stdout_without_credit_does_not_hold_back_stderr(link: Connection) -> None:
    run = link.shell("yes | head -c 10000; echo told >&2", credit=100)
    link.until(lambda: run.err == b"told\n")
    assert len(run.out) == 100
    link.credit(run, 1, 1 << 20)
    assert len(link.finish(run).out) == 10_000


def test_a_host_that_stops_reading_does_not_stop_another(
    shared_box: Box, link: Connection
) -> None:
    deaf = shared_box.connect()
    deaf.shell("yes | head -c 400000000", COMBINED_AND_CONTROL)
    for i in range(20):
        assert link.run(f"echo {i}").out == b"%d\n" % i
    deaf.close()


COMBINED_AND_CONTROL = (
    4 | CONTROL
)  # with a control channel the init does not pass the pipe to the host


def test_control_messages_come_after_the_output_written_before_them(
    link: Connection,
) -> None:
    text = "for i in $(seq 100); do head -c $((i * 100)) /dev/zero; echo >&2; echo $i >&8; done"
    run = link.run(text, CONTROL)
    seen, words = 0, b""
    for stream, data in run.order:
        if stream == 1:
            seen += len(data)
        elif stream == 3:
            words += data
            last = int(words.split()[-1])
            assert seen >= sum(i * 100 for i in range(1, last + 1))
    assert words.split() == [b"%d" % i for i in range(1, 101)]


def test_a_command_is_driven_over_its_control_channel(link: Connection) -> None:
    run = link.shell(
        'while read -r -u9 line; do echo "got $line"; echo "status of $line" >&8; done',
        CONTROL,
    )
    for word in (b"one", b"two"):
        link.input(run, word + b"\n", 3)
        link.until(
            lambda word=word: bytes(run.streams[3]).endswith(
                b"status of " + word + b"\n"
            )
        )
        assert run.out.endswith(b"got " + word + b"\n")
    link.input(run, b"", 3)
    end = link.finish(run).end
    assert end is not None
    assert end.exit_code == 0 or end.cause == EXITED


def test_a_shell_is_driven_past_pid_1_by_a_host_that_asks_for_its_pipes(
    link: Connection,
) -> None:
    text = 'while read -r -u9 line; do echo "got $line"; echo "status of $line" >&8; done; exit 3'
    run = link.shell(text, CONTROL | DIRECT)
    link.input(run, b"one\n", 3)
    link.until(lambda: run.stdin_pipe is not None)
    assert run.stdin_pipe is not None
    os.write(run.stdin_pipe, b"two\n")
    os.close(run.stdin_pipe)
    link.input(run, b"", 3)  # PID 1 had kept its own end; now all ends are closed
    end = link.finish(run).end
    assert end is not None
    assert end.exit_code == 3
    assert (run.out, bytes(run.streams[3])) == (
        b"got one\ngot two\n",
        b"status of one\nstatus of two\n",
    )


def test_a_terminal_command_has_a_terminal_that_can_be_resized(
    link: Connection,
) -> None:
    run = link.shell(
        "tty >/dev/null && echo yes; stty size; trap 'stty size; exit' WINCH; echo $TERM; while :; do sleep 0.05; done",
        PTY,
        size=(11, 22),
    )
    link.until(lambda: b"xterm" in run.out)
    assert run.out == b"yes\r\n11 22\r\nxterm-256color\r\n"
    link.send(frame(RESIZE, run.id, struct.pack("<HH", 33, 44)))
    assert link.finish(run).out.endswith(b"33 44\r\n")


def test_a_terminal_takes_input_interrupts_and_an_end(link: Connection) -> None:
    run = link.shell("cat; echo end", PTY)
    link.input(run, b"hello\n")
    link.until(lambda: run.out.count(b"hello") == 2)
    link.input(run, b"")
    assert link.finish(run).out.endswith(b"end\r\n")
    run = link.shell("echo up; sleep 60", PTY)
    link.until(lambda: run.out)
    link.input(run, b"\x03")
    end = link.finish(run).end
    assert end is not None
    assert end.exit_code == 130


# What is kept.


def test_a_background_command_is_read_by_offsets_after_a_reconnect(
    shared_box: Box,
) -> None:
    first = shared_box.connect()
    run = first.shell(
        "echo one; echo oops >&2; read x; echo $x; exit 4",
        IN_BACKGROUND | STDIN,
        tag=b"my tag",
        credit=0,
    )
    first.until(lambda: run.pid)
    reading = first.read(run.id, wait=5000)
    while reading.out_total < 4 or reading.err_total < 5:
        reading = first.read(run.id, reading.out_total, reading.err_total, wait=5000)
    first.close()
    second = shared_box.connect()
    again = second.read(run.id)
    assert (again.out, again.err, again.ended) == (b"one\n", b"oops\n", None)
    second.input(run, b"two\n")
    new = second.read(run.id, again.out_total, again.err_total, wait=5000)
    assert new.out == b"two\n"
    while not new.ended:
        new = second.read(run.id, new.out_total, new.err_total, wait=5000)
    assert (new.ended.cause, new.ended.exit_code, new.ended.out_total) == (EXITED, 4, 8)
    (listed,) = [each for each in second.list() if each.id == run.id]
    assert (listed.tag, listed.out_total, listed.ended) == (b"my tag", 8, new.ended)
    second.send(frame(FORGET, run.id))
    assert run.id not in [each.id for each in second.list()]


def test_a_ring_drops_the_oldest_and_keeps_its_offsets(link: Connection) -> None:
    run = link.shell("seq 100000; sleep 60", IN_BACKGROUND, ring=10_000)
    whole = b"".join(b"%d\n" % i for i in range(1, 100_001))
    reading = link.read(run.id, wait=1000)
    while reading.out_total < len(whole):
        reading = link.read(run.id, reading.out_total, wait=1000)
    reading = link.read(run.id)
    assert reading.out_start == len(whole) - 10_000
    assert reading.out == whole[-10_000:]
    assert link.read(run.id, len(whole) - 5, most=3).out == whole[-5:-2]
    link.tell(KILL, run, 0)
    ended = link.read(run.id, len(whole), wait=5000).ended
    assert ended is not None
    assert ended.cause == KILLED
    link.send(frame(FORGET, run.id))


def test_a_read_waits_no_longer_than_its_timeout(link: Connection) -> None:
    run = link.shell("sleep 60", IN_BACKGROUND)
    link.until(lambda: run.pid)
    reading = link.read(run.id, wait=50)
    assert (reading.out, reading.ended) == (b"", None)
    link.tell(KILL, run, 0)
    assert link.read(run.id, wait=5000).ended


def test_a_foreground_command_can_be_sent_to_the_background(shared_box: Box) -> None:
    first = shared_box.connect()
    run = first.shell(
        "echo one; while [ ! -e /workspace/go ]; do sleep 0.01; done; echo two"
    )
    first.until(lambda: run.out == b"one\n")
    first.send(frame(BACKGROUND, run.id, struct.pack("<IQQ", 0, 4, 0)))
    first.ping()
    first.close()
    (shared_box.workspace / "go").touch()
    second = shared_box.connect()
    reading = second.read(run.id, 4, wait=5000)
    while not reading.ended:
        reading = second.read(run.id, reading.out_total, reading.err_total, wait=5000)
    final = second.read(run.id)
    assert (final.out_start, final.out) == (4, b"two\n")
    second.send(frame(FORGET, run.id))


# How it ends.


def test_foreground_commands_die_with_their_connection(
    shared_box: Box, link: Connection
) -> None:
    host = shared_box.connect()
    run = host.shell("setsid -f sleep 71; sleep 72")
    host.until(lambda: run.pid)
    host.close()
    while any("sleep 7" in line for line in shared_box.processes()):
        time.sleep(0.01)
    assert run.id not in [each.id for each in link.list()]


def test_while_its_clock_is_stopped_no_deadline_runs_out(link: Connection) -> None:
    """What is asserted is an order: the deadline of the second command is over long before the first one's would be."""
    link.send(frame(CLOCK, 0, struct.pack("<I", 0)))
    waiting = link.shell("sleep 600", deadline=50)
    assert link.run("sleep 0.5").end is not None
    assert not waiting.over
    link.send(frame(CLOCK, 0, struct.pack("<I", 1)))
    end = link.finish(waiting).end
    assert end is not None
    assert end.cause == TIMEOUT


def test_a_host_that_dies_while_the_clock_is_stopped_lets_it_go_on(
    make_box: MakeBox,
) -> None:
    box = make_box(lease=300)
    connection = box.connect()
    connection.send(frame(CLOCK, 0, struct.pack("<I", 0)))
    connection.ping()
    connection.close()
    gone(box)


def test_without_a_host_the_init_ends_with_its_lease(make_box: MakeBox) -> None:
    box = make_box(lease=300)
    gone(box)
    box = make_box(lease=10_000)
    link = box.connect()
    link.shell("sleep 60", IN_BACKGROUND)
    link.send(frame(LEASE, 0, struct.pack("<I", 200)))
    link.ping()
    link.close()
    gone(box)


def test_shutdown_and_docker_stop_end_the_init_at_once(make_box: MakeBox) -> None:
    box = make_box()
    link = box.connect()
    link.shell("trap '' TERM; sleep 60", IN_BACKGROUND)
    link.send(frame(SHUTDOWN))
    assert closed(link)
    gone(box)
    box = make_box()
    box.connect()
    docker("stop", "-t", "60", box.name)


def test_the_init_is_small_when_idle(make_box: MakeBox) -> None:
    box = make_box()
    link = box.connect()
    link.run("echo warm")
    assert box.memory() < 1 << 20


# Bridged.

# Listens only after the bridge has slept a few times: it came first and tries again.
LATE_PID_1 = """
import os, socket
def sleeps_of_the_bridge():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if open(f"/proc/{pid}/cmdline", "rb").read().endswith(b"--bridge\\0"):
                return int(open(f"/proc/{pid}/status").read().split("\\nvoluntary_ctxt_switches:")[1].split()[0])
        except OSError:
            pass
    return 0
while not (first := sleeps_of_the_bridge()):
    pass
while sleeps_of_the_bridge() < first + 4:
    pass
listener = socket.socket(socket.AF_UNIX)
listener.bind("\\0belljar")
listener.listen()
listener.accept()[0].sendall(b"late")
"""


def test_a_bridge_waits_for_a_pid_1_that_does_not_listen_yet(
    image: str, init: Path
) -> None:
    name = docker(
        "run",
        "-d",
        "--network",
        "none",
        "-v",
        f"{init}:/.belljar/init:ro",
        image,
        "python3",
        "-c",
        LATE_PID_1,
    )
    try:
        command = ["docker", "exec", "-i", name, "/.belljar/init", "--bridge"]
        assert (
            subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=120
            ).stdout
            == b"late"
        )
    finally:
        docker("rm", "-f", name)


def test_a_bridged_connection_needs_the_token(make_box: MakeBox) -> None:
    box = make_box(bridged=True)
    for token in (b"", b"0" * 64, box.token.encode()[:-1]):
        refused = box.bridge()
        with pytest.raises((Closed, BrokenPipeError)):
            refused.hello(token)
    link = box.bridge()
    link.hello(box.token.encode())
    assert link.run("echo hi; env | grep -c TOKEN").out == b"hi\n0\n"
    data = os.urandom(300_000)
    run = link.shell("cat", STDIN)
    for at in range(0, len(data), 100_000):
        link.input(run, data[at : at + 100_000])
    link.input(run, b"")
    assert link.finish(run).out == data


def test_no_command_can_speak_to_its_own_init(make_box: MakeBox) -> None:
    """The init hangs up at once. Otherwise so many callers would displace a host that has not yet said hello."""
    callers = (
        "import socket\n"
        "made=[socket.socket(socket.AF_UNIX) for _ in range(100)]\n"
        "for s in made: s.connect('\\0belljar'); s.settimeout(10)\n"
        "print({s.recv(100) for s in made})"
    )
    box = make_box(bridged=True)
    link = box.bridge()
    link.hello(box.token.encode())
    assert link.finish(link.spawn("python3", "-c", callers, flags=64)).out == b"{b''}\n"
    second = box.bridge()
    second.hello(box.token.encode())
    assert second.run("echo in").out == b"in\n"


def test_a_command_cannot_put_a_socket_into_the_link_directory(
    make_box: MakeBox,
) -> None:
    box = make_box()
    link = box.connect()
    assert link.run("touch /.belljar/link/x.sock 2>&1").out.endswith(
        b"Read-only file system\n"
    )
    link.ping()


def test_a_command_s_socket_in_the_link_directory_is_ignored(make_box: MakeBox) -> None:
    """Even if another process put the socket there: its listener is inside the sandbox."""
    box = make_box()
    link = box.connect()
    program = (
        "import socket\n"
        "s=socket.socket(socket.AF_UNIX); s.bind('/workspace/mine.sock'); s.listen(); print('up',flush=True)\n"
        f"c=s.accept()[0]; c.sendall(bytes([4,0,0,0,1,0,0,0]+[0]*8+[{VERSION},0,0,0])); print(c.recv(100),flush=True)"
    )
    run = link.spawn("python3", "-c", program, flags=64)
    link.until(lambda: run.out)
    os.rename(box.workspace / "mine.sock", box.link / "mine.sock")
    assert link.finish(run).out in (b"up\nb''\n", b"up\n")


def test_unrelated_files_in_the_link_directory_are_ignored(make_box: MakeBox) -> None:
    box = make_box()
    (box.link / "plain.sock").write_text("")
    (box.link / "dangling.sock").symlink_to("/nowhere")
    with socket.socket(socket.AF_UNIX) as unlistened:
        unlistened.bind(str(box.link / "dead.sock"))
    assert box.connect().run("echo hi").out == b"hi\n"


def test_a_host_of_another_protocol_version_gets_only_our_version(
    make_box: MakeBox,
) -> None:
    connection = make_box().knock()
    assert connection.hello(version=VERSION + 1).version == VERSION
    with contextlib.suppress(OSError):
        connection.send(frame(PING, 0, bytes(8)))
    assert closed(connection)
