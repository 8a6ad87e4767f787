"""The server: answers clients, forks a worker for each command line, keeps a few workers with a sandbox that waits.

It is one thread that never waits for anybody, so that it can fork at any time, and it does nothing for a client itself.
What it keeps of one is the kind of sandbox that it needed (`Kind`), and the directory where, as a descriptor, so that
the next one finds a sandbox ready. A guess which that will be is enough: the worker compares, and starts another.

A client is refused, and then runs its command line itself, if it is not of this user, is confined in another way than
we are (`meeting.standing`), or is another Belljar; all are once our own files have changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import belljar
from belljar import resources
from belljar.records import record
from belljar.surfaces.local import meeting, worker
from belljar.surfaces.local.worker import Job, Waiting

READY = 2
"""Workers that wait with a sandbox, for each kind."""
MOST_KINDS = 6
MOST_GUESSES = 256
MOST_WORKERS = 200
MOST_CALLERS = 64
REQUEST_SECONDS = 2.0  # a client sends its request in one piece
REFILL_SECONDS = 0.3  # a start would take the processor from what runs now
KIND_SECONDS = (
    300.0  # without a command line of its kind for so long, waiting sandboxes end
)
IDLE_SECONDS = 1800.0
"""Without any command line for so long, the server ends."""
STOP_SECONDS = 20.0
STOP = b"stop"
_FOLLOWED = (
    "BELLJAR_",
    "DOCKER_",
    "CONTAINER_",
    "KUBE",
    "XDG_",
    "HOME",
    "PATH",
    "TMPDIR",
    "SSH_",
    "LD_",
    "PYTHON",
    "LANG",
    "LC_",
    "http",
    "HTTP",
    "no_proxy",
    "NO_PROXY",
    "all_proxy",
    "ALL_PROXY",
)
"""Variables that a launch may follow. Sandboxes wait only for clients that have the same ones as we have."""


@dataclass(eq=False)
class Worker:
    pid: int
    control: socket.socket
    kind: Kind | None = None
    guess: Guess | None = None
    directory: int = -1
    """Where its client was, for the kind of sandbox that its command line may turn out to need."""
    ready: bool = False
    said: bytes = b""


@dataclass(eq=False)
class Kind:
    """Sandboxes that were needed."""

    options: Mapping[str, Any]
    """As `SandboxOptions.as_dict` makes them."""
    directory: int
    """Where the client was."""
    used: float
    workers: list[Worker] = field(default_factory=list)
    refill: float | None = None


@record
class Guess:
    """What tells before a command line is parsed which kind it will need: where it is from, and its options."""

    place: tuple[int, int]
    terminals: bytes
    options: tuple[str, ...]

    @classmethod
    def of(
        cls, argv: tuple[str, ...], place: tuple[int, int], terminals: bytes
    ) -> Guess:
        end = argv.index("--") + 1 if "--" in argv else len(argv) - 1
        return cls(place, terminals, argv[:end])


class Caller:
    """A connection whose request is on its way."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.since = time.monotonic()
        self._data = b""

    def receive(self) -> bytes | None:
        """The request, once it is whole. ValueError if it is none; OSError if the client has gone."""
        data = self.connection.recv(
            1 << 20
        )  # descriptors that come with it are closed by the kernel
        if not data:
            raise OSError("it has hung up")
        self._data += data
        if len(self._data) < 8:
            return None
        size = int(self._data[:8], 16)
        if not 0 < size <= meeting.MOST_BYTES or len(self._data) > 8 + size:
            raise ValueError("not a request")
        return self._data[8:] if len(self._data) == 8 + size else None

    def close(self) -> None:
        self.connection.close()


class Server:
    def __init__(self, listener: socket.socket, held: Sequence[int] = ()) -> None:
        """`held`: what else is open here and not for workers."""
        self._listener, self._held = listener, held
        self._files, self._standing = files(), meeting.standing()
        self._interpreter = meeting.interpreter(os.environb)
        self._variables = followed(os.environb)
        self._events = (
            selectors.PollSelector()
        )  # it has no descriptor that a worker would inherit
        self._events.register(listener, selectors.EVENT_READ, self._answer)
        self._callers: dict[socket.socket, Caller] = {}
        self._workers: dict[int, Worker] = {}
        self._kinds: dict[str, Kind] = {}
        self._guesses: dict[Guess, str] = {}
        self._used = time.monotonic()
        self._stopping: float | None = None
        self._woken, wake = socket.socketpair()
        for end in (self._woken, wake):
            end.setblocking(False)
        self._wake = wake
        self._events.register(
            self._woken, selectors.EVENT_READ, lambda: self._woken.recv(4096)
        )
        signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: self.stop())
        signal.signal(signal.SIGCHLD, lambda *_: None)

    # The loop.

    def serve(self) -> None:
        while not self._is_over():
            for key, _ in self._events.select(self._patience()):
                key.data()
            self._tend()
        for connection in [*self._callers]:
            self._hang_up(connection)

    def stop(self) -> None:
        """End once what waits has ended. Command lines that are being carried out do not need us."""
        if self._stopping is None:
            self._stopping = time.monotonic()
            self._events.unregister(self._listener)
            self._listener.close()
            for key in [*self._kinds]:
                self._forget(key)

    def _is_over(self) -> bool:
        if self._stopping is None:
            return False
        waiting = any(each.kind is not None for each in self._workers.values())
        return not waiting or time.monotonic() - self._stopping > STOP_SECONDS

    def _patience(self) -> float:
        refills = [
            kind.refill for kind in self._kinds.values() if kind.refill is not None
        ]
        return max(0.0, min([1.0, *(at - time.monotonic() for at in refills)]))

    def _tend(self) -> None:
        """What is due by now."""
        now = time.monotonic()
        for connection, caller in [*self._callers.items()]:
            if now - caller.since > REQUEST_SECONDS:
                self._hang_up(connection)
        for key, kind in [*self._kinds.items()]:
            if now - kind.used > KIND_SECONDS:
                self._forget(key)
            elif kind.refill is not None and kind.refill <= now:
                kind.refill = None
                self._fill(kind)
        self._reap()
        if now - self._used > IDLE_SECONDS and not self._workers:
            self.stop()

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (ended := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                gone = self._workers.pop(ended, None)
                if gone is not None:
                    self._hear(gone)
                    self._part(gone)

    def _part(self, gone: Worker) -> None:
        if gone.kind is not None and gone in gone.kind.workers:
            gone.kind.workers.remove(gone)
        if gone.control in self._events.get_map():
            self._events.unregister(gone.control)
        gone.control.close()
        if gone.guess is not None and gone.said:
            with contextlib.suppress(ValueError):
                self._learn(gone.guess, gone.said.decode(), gone.directory)
        if gone.directory >= 0:
            os.close(gone.directory)

    # Clients.

    def _answer(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._callers) >= MOST_CALLERS:
            connection.close()
            return
        connection.setblocking(False)
        self._callers[connection] = Caller(connection)
        self._events.register(
            connection, selectors.EVENT_READ, lambda: self._listen_to(connection)
        )

    def _listen_to(self, connection: socket.socket) -> None:
        caller = self._callers[connection]
        try:
            body = caller.receive()
            if body is not None:
                self._take(caller, body)
        except BlockingIOError:
            return
        except (ValueError, OSError, meeting.Unmet) as reason:
            with contextlib.suppress(OSError):
                connection.send(f"refused {reason}\n".encode())
            body = b""
        if body is not None:
            self._hang_up(connection)

    def _hang_up(self, connection: socket.socket) -> None:
        self._events.unregister(connection)
        self._callers.pop(connection).close()

    def _take(self, caller: Caller, body: bytes) -> None:
        """Give a request to a worker; an exception is the reason for a refusal."""
        client = meeting.peer(caller.connection)
        if body == STOP:
            caller.connection.send(b"stopping %d\n" % os.getpid())
            self.stop()
            return
        if changed(self._files):
            self.stop()
            raise ValueError("its files have changed since it started")
        request = worker.Request.parsed(body)
        self._check(request, client)
        self._used = time.monotonic()
        directory = os.open(
            f"/proc/{client}/cwd", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
        )
        try:
            place = os.fstat(directory)
            same = followed(request.variables) == self._variables
            guess = (
                Guess.of(request.argv, (place.st_dev, place.st_ino), request.terminals)
                if same
                else None
            )
            facts = meeting.facts(client)
            job = Job(
                caller.connection,
                directory,
                request.argv,
                request.variables,
                client,
                int(facts["Umask"], 8),
                int(facts["SigIgn"], 16),
            )
            taken = self._claim(guess, job) or self._fork(
                lambda control: carry_out(job, control), keep=caller
            )
            taken.guess, taken.directory = guess, os.dup(directory)
        finally:
            os.close(directory)

    def _check(self, request: worker.Request, client: int) -> None:
        if request.argv[0] not in meeting.RELAYED:
            raise ValueError("not a request")
        if meeting.interpreter(request.variables) != self._interpreter:
            raise ValueError(
                "it was started with other variables for Python (PYTHON*, LD_*)"
            )
        for name, value in meeting.standing(client).items():
            if value != self._standing[name]:
                raise ValueError(f"it was started with other rights ({name})")
        if not meeting.is_ours(request.launcher):
            raise ValueError("it is another Belljar or Python")
        if len(self._workers) >= MOST_WORKERS:
            raise ValueError("it is busy")

    def _claim(self, guess: Guess | None, job: Job) -> Worker | None:
        """Give the job to a worker that has a sandbox of the kind that was needed last time; None: there is none."""
        kind = (
            self._kinds.get(self._guesses.get(guess, "")) if guess is not None else None
        )
        if kind is None:
            return None
        kind.used = time.monotonic()
        kind.refill = kind.used + REFILL_SECONDS
        for one in [one for one in kind.workers if one.ready]:
            kind.workers.remove(one)
            one.kind = None
            try:
                worker.hand_over(job, one.control)
                return one
            except OSError:
                os.kill(one.pid, signal.SIGKILL)
        return None

    # Workers.

    def _fork(
        self,
        work: Callable[[socket.socket], NoReturn],
        *,
        kind: Kind | None = None,
        keep: Caller | None = None,
    ) -> Worker:
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if pid == 0:
            try:
                ours.close()
                self._close_in_child(keep)
                worker.prepare_process()
                work(theirs)
            except BaseException as error:
                if os.environ.get("BELLJAR_DEBUG"):
                    sys.stderr.write(f"belljar: worker: {error!r}\n")
            finally:
                os._exit(1)
        theirs.close()
        ours.setblocking(False)
        made = Worker(pid, ours, kind)
        self._workers[pid] = made
        self._events.register(ours, selectors.EVENT_READ, lambda: self._hear(made))
        return made

    def _close_in_child(self, keep: Caller | None) -> None:
        """A worker has no part in the server's other business."""
        self._events.close()
        for each in (
            self._listener,
            self._woken,
            self._wake,
            *(one.control for one in self._workers.values()),
        ):
            each.close()
        for caller in self._callers.values():
            if caller is not keep:
                caller.close()
        kinds, workers = self._kinds.values(), self._workers.values()
        for held in (
            *(one.directory for one in kinds),
            *(one.directory for one in workers),
            *self._held,
        ):
            if held >= 0:
                os.close(held)

    def _hear(self, one: Worker) -> None:
        """A worker says that it is ready, and later what its command line needed."""
        try:
            while data := one.control.recv(1 << 16):
                one.said += data
        except BlockingIOError:
            pass
        except OSError:
            data = b""
        else:
            if one.control in self._events.get_map():
                self._events.unregister(one.control)
        if not one.ready and one.kind is not None and one.said.startswith(b"+"):
            one.ready, one.said = True, one.said[1:]

    def _learn(self, guess: Guess, options: str, directory: int) -> None:
        """Keep sandboxes of the kind that a command line needed."""
        if self._stopping is not None:
            return
        saved = json.loads(options)
        key = json.dumps([saved, guess.place], sort_keys=True)
        if key not in self._kinds:
            while len(self._kinds) >= MOST_KINDS:
                self._forget(min(self._kinds, key=lambda each: self._kinds[each].used))
            self._kinds[key] = Kind(saved, os.dup(directory), time.monotonic())
        while len(self._guesses) >= MOST_GUESSES:
            del self._guesses[next(iter(self._guesses))]
        self._guesses[guess] = key
        self._kinds[key].refill = time.monotonic()

    def _fill(self, kind: Kind) -> None:
        for _ in range(READY - len(kind.workers)):
            if len(self._workers) < MOST_WORKERS:
                directory = os.dup(kind.directory)
                kind.workers.append(
                    self._fork(partial(_wait, kind.options, directory), kind=kind)
                )
                os.close(directory)

    def _forget(self, key: str) -> None:
        kind = self._kinds.pop(key)
        for each in kind.workers:
            with contextlib.suppress(OSError):
                each.control.shutdown(socket.SHUT_RDWR)
        os.close(kind.directory)


def carry_out(job: Job, control: socket.socket) -> NoReturn:
    worker.carry_out(job, control, Waiting())


def _wait(
    options: Mapping[str, Any], directory: int, control: socket.socket
) -> NoReturn:
    worker.wait(options, directory, control)


def followed(variables: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    return {
        name: value
        for name, value in variables.items()
        if os.fsdecode(name).startswith(_FOLLOWED)
    }


def files() -> dict[str, tuple[int, int]]:
    """The state of all files that make up this Belljar, and of the directories of policies: one more there counts."""
    found = {}
    policies = str(resources.directory("policies"))
    waiting = [str(Path(belljar.__file__).parent), policies]
    while waiting:
        directory = waiting.pop()
        if directory.startswith(policies):
            found[directory] = _state(directory)
        with os.scandir(directory) as entries:
            for entry in entries:
                if not entry.is_dir(follow_symlinks=False):
                    found[entry.path] = _state(entry.path)
                elif entry.name != "__pycache__":
                    waiting.append(entry.path)
    return found


def changed(before: Mapping[str, tuple[int, int]]) -> bool:
    try:
        return any(_state(path) != state for path, state in before.items())
    except OSError:
        return True


def _state(path: str) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_ino, status.st_mtime_ns
