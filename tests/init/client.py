"""A second client of the link protocol, with blocking sockets and none of Belljar's code."""

from __future__ import annotations

import os
import secrets
import socket
import struct
import subprocess
import threading
import tomllib
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

WIRE = tomllib.loads(
    (Path(__file__).resolve().parents[2] / "sandbox-images/init/wire.toml").read_text()
)
VERSION: int = WIRE["version"]
BRIDGE_USER = "65533:65533"  # the init closes connections of the commands' user


def _codes(table: str, *names: str) -> tuple[int, ...]:
    rows = WIRE[table]
    return tuple(
        rows[name][0] if isinstance(rows[name], list) else rows[name] for name in names
    )


HELLO, SPAWN, INPUT, CREDIT, SIGNAL, RESIZE, DEADLINE, KILL = _codes(
    "to", "hello", "spawn", "input", "credit", "signal", "resize", "deadline", "kill"
)
(
    READ,
    LIST,
    FORGET,
    PING,
    LEASE,
    SHUTDOWN,
    BACKGROUND,
    HEARTBEAT,
    STATE,
    TESTIFY,
    CLOCK,
) = _codes(
    "to",
    "read",
    "list",
    "forget",
    "ping",
    "lease",
    "shutdown",
    "background",
    "heartbeat",
    "state",
    "testify",
    "clock",
)
WELCOME, STARTED, SPAWN_ERROR, OUTPUT, ENDED, INPUT_ACK = _codes(
    "from", "welcome", "started", "spawn_error", "output", "ended", "input_ack"
)
READ_REPLY, LIST_REPLY, PONG, ERROR, PIPE, STATE_REPLY, TESTIMONY = _codes(
    "from",
    "read_reply",
    "list_reply",
    "pong",
    "error",
    "pipe",
    "state_reply",
    "testimony",
)
SHELL, PTY, COMBINED, STDIN, CONTROL, IN_BACKGROUND, DEFAULT_ENV, DIRECT = _codes(
    "flags",
    "shell",
    "pty",
    "combined",
    "stdin",
    "control",
    "background",
    "default_env",
    "direct",
)
EXITED, SIGNALLED, TIMEOUT, KILLED, OUT_OF_MEMORY = _codes(
    "causes", "exited", "signalled", "timeout", "killed", "out_of_memory"
)

HEADER = struct.Struct("<IBBHQ")
ENDED_BODY = struct.Struct("<4I6Q2I")
PLENTY = 1 << 62
PATIENCE = 120.0  # no answer takes this long


@dataclass
class End:
    cause: int
    exit_code: int
    signal: int
    survivors: int
    utime: int
    stime: int
    maxrss: int
    wall: int
    out_total: int
    err_total: int
    ooms: int
    zero: int = 0

    @classmethod
    def parse(cls, body: bytes) -> End:
        assert len(body) == ENDED_BODY.size
        return cls(*ENDED_BODY.unpack(body))


@dataclass
class Run:
    """What the init reported about one command."""

    id: int
    pid: int | None = None
    error: tuple[int, int, bytes] | None = None
    end: End | None = None
    streams: dict[int, bytearray] = field(
        default_factory=lambda: defaultdict(bytearray)
    )
    order: list[tuple[int, bytes]] = field(default_factory=list)
    acked: dict[int, int] = field(default_factory=dict)
    counted: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    pipe_readers: list[threading.Thread] = field(default_factory=list)
    stdin_pipe: int | None = None

    @property
    def out(self) -> bytes:
        return bytes(self.streams[1])

    @property
    def err(self) -> bytes:
        return bytes(self.streams[2])

    @property
    def over(self) -> bool:
        return self.end is not None or self.error is not None


class Welcome(NamedTuple):
    version: int
    pid: int
    boot: int
    live: int
    isolation: int


class Closed(Exception):
    """The init closed the connection."""


def frame(kind: int, id: int = 0, payload: bytes = b"", stream: int = 0) -> bytes:
    return HEADER.pack(len(payload), kind, stream, 0, id) + payload


class Connection:
    def __init__(
        self,
        receive: Callable[[int], bytes],
        send: Callable[[bytes], None],
        close: Callable[[], None],
    ) -> None:
        self._receive, self.send, self.close = receive, send, close
        self._buffer = bytearray()
        self._pipes: deque[int] = deque()
        self.runs: dict[int, Run] = {}
        self.keep = True

    @classmethod
    def over_socket(cls, sock: socket.socket) -> Connection:
        sock.settimeout(PATIENCE)

        def receive(size: int) -> bytes:
            data, pipes, _, _ = socket.recv_fds(sock, size, 16)
            connection._pipes.extend(pipes)
            return data

        connection = cls(receive, sock.sendall, sock.close)
        return connection

    def hello(self, token: bytes = b"", version: int = VERSION) -> Welcome:
        self.send(frame(HELLO, 0, struct.pack("<I", version) + token))
        return Welcome._make(struct.unpack("<IIQII", self.wait_for(WELCOME)[3]))

    def next(self) -> tuple[int, int, int, bytes]:
        """The next frame, which is also recorded in `runs`."""
        self._fill(HEADER.size)
        length, kind, stream, zero, id = HEADER.unpack_from(self._buffer)
        assert zero == 0
        assert length <= 2 << 20
        assert WELCOME <= kind <= TESTIMONY
        self._fill(HEADER.size + length)
        payload = bytes(self._buffer[HEADER.size : HEADER.size + length])
        del self._buffer[: HEADER.size + length]
        if id in self.runs:
            self._note(self.runs[id], kind, stream, payload)
        return kind, stream, id, payload

    def _fill(self, length: int) -> None:
        while len(self._buffer) < length:
            data = self._receive(1 << 20)
            if not data:
                raise Closed
            self._buffer += data

    def _note(self, run: Run, kind: int, stream: int, payload: bytes) -> None:
        assert not run.over, "a frame after the end"
        if kind == STARTED:
            assert run.pid is None
            (run.pid,) = struct.unpack("<I", payload)
        elif kind == SPAWN_ERROR:
            run.error = (*struct.unpack_from("<II", payload), payload[8:])
        elif kind == ENDED:
            run.end = End.parse(payload)
        elif kind == INPUT_ACK:
            (run.acked[stream],) = struct.unpack("<Q", payload)
        elif kind == PIPE and stream == 0:
            run.stdin_pipe = self._pipes.popleft()
        elif kind == PIPE:
            assert (
                struct.unpack("<Q", payload)[0] == len(run.streams[stream])
                or not self.keep
            )
            run.pipe_readers.append(
                threading.Thread(
                    target=self._drain, args=(run, stream, self._pipes.popleft())
                )
            )
            run.pipe_readers[-1].start()
        elif kind == OUTPUT:
            assert run.pid is not None
            run.counted[stream] += len(payload) - 8
            if self.keep:
                assert struct.unpack_from("<Q", payload)[0] == len(run.streams[stream])
                run.streams[stream] += payload[8:]
                run.order.append((stream, payload[8:]))

    def _drain(self, run: Run, stream: int, pipe: int) -> None:
        os.set_blocking(pipe, True)
        with open(pipe, "rb", buffering=0) as file:
            while data := file.read(1 << 20):
                run.counted[stream] += len(data)
                if self.keep:
                    run.streams[stream] += data

    def wait_for(self, *kinds: int) -> tuple[int, int, int, bytes]:
        while True:
            got = self.next()
            if got[0] in kinds:
                return got

    def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self.next()

    def spawn(
        self,
        *argv: bytes | str,
        flags: int = 0,
        deadline: int = 0,
        grace: int = 0,
        ring: int = 0,
        credit: int = PLENTY,
        size: tuple[int, int] = (24, 80),
        tag: bytes = b"",
        cwd: bytes = b"",
        env: tuple[bytes, ...] = (),
        id: int | None = None,
    ) -> Run:
        run = Run(id or secrets.randbits(64) | 1)
        self.runs[run.id] = run
        words = [cwd, *(a.encode() if isinstance(a, str) else a for a in argv), *env]
        fixed = struct.pack(
            "<IIIIQHHIII",
            flags,
            deadline,
            grace,
            ring,
            credit,
            *size,
            len(argv),
            len(env),
            len(tag),
        )
        self.send(
            frame(SPAWN, run.id, fixed + tag + b"".join(w + b"\0" for w in words))
        )
        return run

    def shell(self, text: bytes | str, flags: int = 0, **options: object) -> Run:
        return self.spawn(text, flags=SHELL | DEFAULT_ENV | flags, **options)  # type: ignore[arg-type]

    def finish(self, run: Run) -> Run:
        self.until(lambda: run.over)
        for thread in run.pipe_readers:
            thread.join(PATIENCE)
        return run

    def run(self, text: bytes | str, flags: int = 0, **options: object) -> Run:
        return self.finish(self.shell(text, flags, **options))

    def input(self, run: Run, data: bytes, stream: int = 0) -> None:
        self.send(frame(INPUT, run.id, data, stream))

    def tell(self, kind: int, run: Run, *values: int) -> None:
        self.send(frame(kind, run.id, struct.pack(f"<{len(values)}I", *values)))

    def credit(self, run: Run, stream: int, offset: int) -> None:
        self.send(frame(CREDIT, run.id, struct.pack("<Q", offset), stream))

    def read(
        self, id: int, out: int = 0, err: int = 0, most: int = 1 << 20, wait: int = 0
    ) -> Reading:
        self.send(frame(READ, id, struct.pack("<QQII", out, err, most, wait)))
        return Reading.parse(self.wait_for(READ_REPLY)[3])

    def state(self, run: Run) -> State:
        self.send(frame(STATE, run.id))
        payload = self.wait_for(STATE_REPLY)[3]
        return State(*struct.unpack_from("<QQII", payload), payload[24:])  # type: ignore[call-arg]

    def ping(self) -> None:
        nonce = secrets.token_bytes(8)
        self.send(frame(PING, 0, nonce))
        assert self.wait_for(PONG)[3] == nonce

    def testify(self, *paths: str) -> tuple[dict[str, str], bytes]:
        """What the init reads of its sandbox, and a byte for each path."""
        self.send(frame(TESTIFY, 0, b"".join(path.encode() + b"\0" for path in paths)))
        payload, entries, at = self.wait_for(TESTIMONY)[3], {}, 0
        while at < len(payload):
            name, content = struct.unpack_from("<II", payload, at)
            middle = at + 8 + name
            entries[payload[at + 8 : middle].decode()] = payload[
                middle : middle + content
            ]
            at = middle + content
        there = entries.pop("")
        return {name: content.decode() for name, content in entries.items()}, there

    def list(self) -> list[Listed]:
        self.send(frame(LIST))
        return list(Listed.parse(self.wait_for(LIST_REPLY)[3]))


class State(NamedTuple):
    cpu_us: int
    peak: int
    ooms: int
    waits: int
    cwd: bytes


@dataclass
class Reading:
    out_start: int
    out_total: int
    err_start: int
    err_total: int
    ended: End | None
    out: bytes
    err: bytes

    @classmethod
    def parse(cls, payload: bytes) -> Reading:
        form = struct.Struct("<QQIQQII")
        out_start, out_total, out_len, err_start, err_total, err_len, state = (
            form.unpack_from(payload)
        )
        body, data = payload[form.size : form.size + 72], payload[form.size + 72 :]
        assert len(data) == out_len + err_len
        assert state or not any(body)
        ended = End.parse(body) if state else None
        return cls(
            out_start,
            out_total,
            err_start,
            err_total,
            ended,
            data[:out_len],
            data[out_len:],
        )


@dataclass
class Listed:
    id: int
    flags: int
    pid: int
    started: int
    out_total: int
    err_total: int
    ended: End | None
    tag: bytes

    @classmethod
    def parse(cls, payload: bytes) -> Iterator[Listed]:
        form = struct.Struct("<QIIIQQQ")
        (count,) = struct.unpack_from("<I", payload)
        at = 4
        for _ in range(count):
            id, state, flags, pid, started, out_total, err_total = form.unpack_from(
                payload, at
            )
            body = payload[at + form.size : at + form.size + 72]
            (length,) = struct.unpack_from("<I", payload, at + form.size + 72)
            at += form.size + 76
            yield cls(
                id,
                flags,
                pid,
                started,
                out_total,
                err_total,
                End.parse(body) if state else None,
                payload[at : at + length],
            )
            at += length
        assert at == len(payload)


def docker(*words: str) -> str:
    return subprocess.run(
        ["docker", *words], check=True, capture_output=True, text=True
    ).stdout.strip()


class Box:
    """A container whose PID 1 is the init under test."""

    def __init__(
        self,
        image: str,
        init: Path,
        directory: Path,
        *,
        lease: int = 10_000,
        bridged: bool = False,
        options: tuple[str, ...] = (),
        arguments: tuple[str, ...] = (),
    ) -> None:
        self.link, self.workspace = directory / "link", directory / "workspace"
        for made in (self.link, self.workspace):
            made.mkdir(mode=0o755)
            os.chown(made, 1000, 1000)
        self.token = secrets.token_hex(32)
        self._connections: list[Connection] = []
        self.name = docker(
            "run", "-d", "--rm", "--network", "none",
            "--memory", "512m", "--memory-swap", "512m", "--pids-limit", "256",
            "--user", "1000:1000", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
            "--log-driver", "none", "--tmpfs", "/tmp:size=64m", "--tmpfs", "/home/sandbox:uid=1000", *options,
            "-v", f"{init}:/.belljar/init:ro", "-v", f"{self.workspace}:/workspace",
            "-v", f"{self.link}:/.belljar/link:ro",
            *(("-e", f"BELLJAR_TOKEN={self.token}") if bridged else ()), "--entrypoint", "/.belljar/init", image,
            *(("--listen",) if bridged else ("--dial", "/.belljar/link")), "--lease", str(lease), *arguments,
        )  # fmt: skip

    def memory(self) -> int:
        """The init's resident memory, in bytes."""
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * 4096

    def listener(self) -> socket.socket:
        name = secrets.token_hex(8)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.link / f"{name}.tmp"))
        listener.listen()
        os.chmod(self.link / f"{name}.tmp", 0o666)
        os.rename(self.link / f"{name}.tmp", self.link / f"{name}.sock")
        listener.settimeout(PATIENCE)
        return listener

    def knock(self) -> Connection:
        """A connection that has not said hello."""
        with self.listener() as listener:
            sock, _ = listener.accept()
        connection = Connection.over_socket(sock)
        self._connections.append(connection)
        return connection

    def connect(self) -> Connection:
        connection = self.knock()
        connection.hello()
        return connection

    def bridge(self, user: str = BRIDGE_USER) -> Connection:
        process = subprocess.Popen(
            [
                "docker",
                "exec",
                "-i",
                "-u",
                user,
                self.name,
                "/.belljar/init",
                "--bridge",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        reading, writing = process.stdout, process.stdin

        def send(data: bytes) -> None:
            writing.write(data)
            writing.flush()

        def close() -> None:
            writing.close()
            process.wait(PATIENCE)
            reading.close()

        connection = Connection(
            lambda size: os.read(reading.fileno(), size), send, close
        )
        self._connections.append(connection)
        return connection

    @property
    def pid(self) -> int:
        return int(docker("inspect", "-f", "{{.State.Pid}}", self.name))

    def processes(self) -> list[str]:
        """Command lines of everything in the container."""
        listing = docker("top", self.name, "-eo", "pid,args").splitlines()[1:]
        return [line.split(None, 1)[1] for line in listing]

    def wait(self) -> int:
        return int(docker("wait", self.name))

    def close(self) -> None:
        for connection in self._connections:
            connection.close()
        subprocess.run(
            ["docker", "rm", "-f", self.name], capture_output=True, check=False
        )
