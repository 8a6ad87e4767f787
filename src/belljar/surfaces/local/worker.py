"""A worker: one command line of one client, then the end.

It was forked by the server, with everything imported, and is a session of its own. It may have started a sandbox of the
kind that was last asked for (`Waiting`). From its client it takes the directory, the variables, the umask, the ignored
signals and the three streams, as if the client had run the command line itself; the server's own are of no use here.

A client that goes away takes its command with it.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn

from belljar import host as hosts
from belljar.audit import writer
from belljar.errors import BelljarError
from belljar.host import Host
from belljar.images import catalog
from belljar.link import frames
from belljar.link.decoder import Decoder
from belljar.link.transport import SocketTransport
from belljar.options import SandboxOptions
from belljar.patience import stretched
from belljar.records import record
from belljar.sandbox import rundir
from belljar.sandbox.launch import DIAL_SECONDS, Launch, launch
from belljar.session import judging
from belljar.session.session import Session
from belljar.surfaces.cli import afterwards, early_launch
from belljar.surfaces.cli.main import status_of
from belljar.surfaces.local.meeting import PROTOCOL, packed, unpacked
from belljar.surfaces.terminal import host as terminals

GIVE_UP_SECONDS = 10.0
"""How long a worker may take to end its command after its client has gone; then the sandbox's lease ends it."""
LEFT_SECONDS = 60.0
"""How long it may take to end the sandbox of a client that has its answer; then the lease does."""
GO_SECONDS = 5.0  # a client answers at once, or has gone
HAND_OVER_SECONDS = 1.0


@record
class Job:
    """What a client asks for."""

    connection: socket.socket
    directory: int
    argv: tuple[str, ...]
    variables: Mapping[bytes, bytes]
    client: int
    umask: int
    ignored: int
    """The signals that the client ignores, as a mask."""


class Waiting:
    """A sandbox that waits for a command line that needs one of its kind."""

    def __init__(self) -> None:
        self._launch: Launch | None = None
        self._image: Any = None
        self._image_now: Future[Any] = Future()
        self._needed: SandboxOptions | None = None
        self.is_throwaway = False
        """What the command line needed has nothing of its own."""

    def prepare(self, saved: Mapping[str, Any]) -> bool:
        """Start one; whether it can wait. What the policy needs is loaded too."""
        host = hosts.default()
        options = SandboxOptions.restored(saved)
        start = launch(options, rundir.new_session_id(), host)
        if not _greeted(start):
            start.discard()
            return False
        self._launch, self._image = start.waiting(), _image(host, options)
        policy = judging.load(options.policy)
        policy.prove()
        policy.prepare()
        return True

    def look_at_image(self) -> None:
        """Which one would a sandbox have now? The engine is asked while the command line is read."""
        assert self._launch is not None
        options = self._launch.options

        def look() -> None:
            try:
                self._image_now.set_result(_image(hosts.default(), options))
            except Exception as error:
                self._image_now.set_exception(error)

        threading.Thread(target=look, name="belljar-image", daemon=True).start()

    def take(self, options: SandboxOptions, host: Host) -> Launch | None:
        """For `early_launch.waiting`: the sandbox, if it is of the kind that is needed, and as good as a new one."""
        if host is hosts.default():
            self._needed, self.is_throwaway = options, not has_its_own(options)
        start, self._launch = self._launch, None
        if start is None:
            return None
        with contextlib.suppress(BelljarError):
            if self.is_throwaway and self._fits(start, options):
                return start
        afterwards.later(start.discard)
        return None

    @property
    def asked(self) -> SandboxOptions | None:
        """What the command line needed, if it can be started ahead."""
        needed = self._needed
        return needed if needed is not None and can_wait(needed) else None

    def _fits(self, start: Launch, options: SandboxOptions) -> bool:
        if start.options.kind() != options.kind() or start.options.door != options.door:
            return False
        start.workspace.check_path_unchanged()
        if select.select([start.transport], [], [], 0)[
            0
        ]:  # its init has ended; it says nothing unasked
            return False
        return bool(self._image_now.result() == self._image)

    def discard(self) -> None:
        if self._launch is not None:
            self._launch.discard()


def can_wait(options: SandboxOptions) -> bool:
    """Whether a sandbox for these options could wait for its command: what cannot be saved cannot be started ahead."""
    return (
        not has_its_own(options)
        and SandboxOptions.restored(options.as_dict()).kind() == options.kind()
    )


def has_its_own(options: SandboxOptions) -> bool:
    """Whether the sandbox is more than a throwaway: it has a name, a cache, staged changes …"""
    return bool(
        options.keep
        or options.id
        or options.name
        or options.cache
        or options.changes != "direct"
    )


def _image(host: Host, options: SandboxOptions) -> Any:
    return host.connect().image(catalog.reference(options.image))


def _greeted(start: Launch) -> bool:
    """Greet the init, so that it waits as long as we are there; False: it cannot wait. The session greets it again."""
    transport = start.transport
    if not isinstance(transport, SocketTransport) or start.unproven is not None:
        return False
    transport.send(
        frames.frame(frames.To.HELLO, payload=frames.u32(frames.VERSION) + start.token)
    )
    decoder, deadline = Decoder(), time.monotonic() + stretched(DIAL_SECONDS)
    while time.monotonic() < deadline:
        with contextlib.suppress(BlockingIOError):
            data = transport.recv(4096)
            if not data:
                return False
            if any(kind == frames.From.WELCOME for kind, *_ in decoder.feed(data)):
                return True
        time.sleep(0.001)
    return False


def wait(
    options: Mapping[str, Any], directory: int, control: socket.socket
) -> NoReturn:
    """Get a sandbox ready, and wait for a command line that needs it, or for the end of the server."""
    os.fchdir(directory)
    os.close(directory)
    waiting = Waiting()
    if not waiting.prepare(options):
        os._exit(0)
    try:
        control.sendall(b"+")
        job = _received(control)
        waiting.look_at_image()
    except (OSError, ValueError):
        waiting.discard()
        os._exit(0)
    carry_out(job, control, waiting)


def hand_over(job: Job, control: socket.socket) -> None:
    """To a worker that waits. OSError if it is not there any more, or does not take it at once."""
    numbers = [b"%d" % number for number in (job.client, job.umask, job.ignored)]
    variables = [name + b"=" + value for name, value in job.variables.items()]
    message = packed(numbers, [os.fsencode(word) for word in job.argv], variables)
    control.settimeout(HAND_OVER_SECONDS)
    try:
        sent = socket.send_fds(
            control, [message], [job.connection.fileno(), job.directory]
        )
        control.sendall(message[sent:])
    finally:
        control.setblocking(False)


def _received(control: socket.socket) -> Job:
    data, passed, _, _ = socket.recv_fds(control, 1 << 20, 2, socket.MSG_CMSG_CLOEXEC)
    while data and len(data) < 8 + int(data[:8], 16):
        more = control.recv(1 << 20)
        if not more:
            break
        data += more
    if len(passed) != 2:
        raise OSError("the server has ended")
    connection, directory = passed
    (client, umask, ignored), argv, variables = unpacked(data[8:])
    return Job(
        socket.socket(fileno=connection),
        directory,
        tuple(map(os.fsdecode, argv)),
        dict(text.partition(b"=")[::2] for text in variables),
        int(client),
        int(umask),
        int(ignored),
    )


# One command line.


def carry_out(job: Job, control: socket.socket, waiting: Waiting) -> NoReturn:
    """Never returns. The server is told through `control` what kind of sandbox was needed."""
    job.connection.setblocking(True)
    streams = _streams_of(job.connection)
    if streams is None:
        waiting.discard()
        os._exit(0)
    _be_as(job, streams)
    ended = threading.Event()
    threading.Thread(
        target=_end_with_client,
        args=[job.connection, ended],
        name="belljar-client",
        daemon=True,
    ).start()
    early_launch.waiting = waiting.take

    def answer_early(status: int, box: Session) -> None:
        terminal = any(map(os.isatty, range(3)))
        if waiting.is_throwaway and not terminal:
            rundir.mark_ending(box.sandbox.run_dir)
            ended.set()
            _answer(job, status)
            limit = threading.Timer(stretched(LEFT_SECONDS), os._exit, [1])
            limit.daemon = True
            limit.start()

    afterwards.answer = answer_early
    status = status_of(job.argv)
    if not ended.is_set():
        atexit._run_exitfuncs()
        ended.set()
        _answer(job, status)
    waiting.discard()
    if (asked := waiting.asked) is not None:
        with contextlib.suppress(OSError):
            control.sendall(json.dumps(asked.as_dict()).encode())
    control.close()
    afterwards.finish()
    os._exit(0)


def _be_as(job: Job, streams: Sequence[int]) -> None:
    """Take over what a process that the client starts would have of it."""
    os.fchdir(job.directory)
    os.close(job.directory)
    os.umask(job.umask)
    os.environb.clear()
    os.environb.update(job.variables)
    # Below make, signals of libc's own are ignored too: nobody can set those.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        if job.ignored >> (number - 1) & 1:
            signal.signal(number, signal.SIG_IGN)
    for each, given in enumerate(streams):
        os.dup2(given, each)
        os.close(given)
    _open_streams()
    sys.argv = ["belljar", *job.argv]
    terminals.lender = writer.client = job.client


def _open_streams() -> None:
    """Python's own streams, buffered as for this stdout."""
    for number, (name, mode, buffering) in enumerate(
        (("stdin", "r", -1), ("stdout", "w", -1), ("stderr", "w", 1))
    ):
        old = getattr(sys, name)
        own = 1 if os.isatty(number) and mode == "w" else buffering
        setattr(
            sys,
            name,
            os.fdopen(
                number,
                mode,
                own,
                encoding=old.encoding,
                errors=old.errors,
                closefd=False,
            ),
        )


def _streams_of(connection: socket.socket) -> list[int] | None:
    """The client's stdin, stdout and stderr; None: it has run the command line itself meanwhile."""
    connection.settimeout(GO_SECONDS)
    try:
        connection.sendall(b"taken %d\n" % os.getpid())
        word, passed, _, _ = socket.recv_fds(connection, 16, 3, socket.MSG_CMSG_CLOEXEC)
    except OSError:
        return None
    connection.settimeout(None)
    return passed if word == b"go\n" and len(passed) == 3 else None


def _end_with_client(connection: socket.socket, ended: threading.Event) -> None:
    with contextlib.suppress(OSError):
        connection.recv(1)  # the client says nothing more
    if ended.is_set():
        return
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(stretched(GIVE_UP_SECONDS))
    os._exit(143)


def _answer(job: Job, status: int) -> None:
    """Let go of all that is the client's, and tell it the status."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    null = os.open(os.devnull, os.O_RDWR)
    for number in range(3):
        os.dup2(null, number)
    os.close(null)
    with contextlib.suppress(OSError):
        job.connection.sendall(b"status %d\n" % status)
        job.connection.shutdown(socket.SHUT_RDWR)  # a thread may be reading from it
    os.chdir("/")


def prepare_process() -> None:
    """For a process that has just been forked: the signals' meaning, and no part in the server's session."""
    os.setsid()
    gc.freeze()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGTSTP):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.set_wakeup_fd(-1)


@record
class Request:
    argv: tuple[str, ...]
    variables: Mapping[bytes, bytes]
    terminals: bytes
    """Which of the client's streams are."""
    launcher: bytes
    """What the client becomes without us."""

    @classmethod
    def parsed(cls, body: bytes) -> Request:
        """ValueError with the reason for a refusal."""
        parts = unpacked(body)
        if len(parts) != 3 or not parts[0] or not parts[1]:
            raise ValueError("not a request")
        if parts[0][0] != PROTOCOL or len(parts[0]) != 3:
            raise ValueError("it is another Belljar")
        _, terminals, launcher = parts[0]
        # Of two with one name the first counts, as for Python.
        variables = dict(text.partition(b"=")[::2] for text in reversed(parts[2]))
        return cls(tuple(map(os.fsdecode, parts[1])), variables, terminals, launcher)
