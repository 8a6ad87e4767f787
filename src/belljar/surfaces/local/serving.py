"""`belljar serve --local`: starts the local server and stops it."""

from __future__ import annotations

import ctypes
import fcntl
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib import import_module
from pathlib import Path

import anyio
import anyio.lowlevel

import belljar
from belljar import patterns, records, resources
from belljar.errors import BelljarError, UsageError
from belljar.patience import stretched
from belljar.session import judging
from belljar.surfaces.cli import console, parser
from belljar.surfaces.local import meeting
from belljar.surfaces.local.server import STOP, STOP_SECONDS, Server
from belljar.syscalls import libc

_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_NEEDED = (
    "belljar.surfaces.cli.run",
    "belljar.surfaces.cli.foreground",
    "belljar.surfaces.cli.policy_commands",
    "belljar.surfaces.cli.parser",
    "belljar.surfaces.cli.session_commands",
    "belljar.surfaces.cli.tool_commands",
    "belljar.engines.docker.engine",
    "belljar.engines.oci.engine",
    "belljar.policy.machine",
    "belljar.policy.dispatch",
    "belljar.policy.examples",
    "belljar.sandbox.reaper",
    "belljar.session.hints",
    "belljar.tools.registry",
    "belljar.surfaces.terminal.host",
    "belljar.surfaces.terminal.keys",
    "belljar.surfaces.terminal.drawing",
    "subprocess",
    "json",
    "logging",
    "concurrent.futures.thread",
    "anyio._core._signals",
    "belljar.network.allow",
    "regex",
    "pydantic.type_adapter",
)
_OURS = ("handler", "parser", "detach", "resident")
"""What may be given beside --local."""
UNIT = """\
# belljar serve --local-unit > ~/.config/systemd/user/belljar.service
# systemctl --user enable --now belljar
[Unit]
Description=Belljar's local server: command lines in processes that are ready

[Service]
ExecStart={python} -P -m belljar serve --local
Environment=PATH={path}
Restart=on-failure

[Install]
WantedBy=default.target
"""


def command(args: Namespace) -> int:
    _check_alone(args)
    _check_installed()
    if args.detach and not _in_background():
        return 0
    with _place() as (place, lock):
        listener = _listener(place)
        _prepare()
        local = Server(listener, held=(place, lock))
        _answering(args)
        local.serve()
        with suppress(FileNotFoundError):
            os.unlink("socket", dir_fd=place)
    return 0


def print_unit(args: Namespace) -> int:
    _check_alone(args)
    return console.text(
        args,
        UNIT.format(
            python=sys.executable, path=os.environ.get("PATH", os.defpath)
        ).rstrip(),
    )


def stop(args: Namespace) -> int:
    """Returns when it has ended, with all sandboxes that waited."""
    _check_alone(args)
    try:
        place = meeting.enter(meeting.directory())
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(f"/proc/self/fd/{place}/socket")
        pid = os.pidfd_open(meeting.peer(connection))
    except (FileNotFoundError, ConnectionRefusedError):
        console.note("no local server runs")
        return 0
    except meeting.Unmet as reason:
        raise UsageError(f"the local server: {reason}") from None
    connection.sendall(b"%08x" % len(STOP) + STOP)
    if not select.select([pid], [], [], stretched(STOP_SECONDS) + 5)[0]:
        raise BelljarError("the local server has not ended in time")
    return 0


def _check_alone(args: Namespace) -> None:
    """Options of the service do nothing here, so they are refused."""
    given = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(args).items()
        if name not in _OURS and value != args.parser.get_default(name)
    ]
    if given:
        instead = "; --local-unit prints its unit" if "--print-unit" in given else ""
        raise UsageError(
            f"{', '.join(given)}: not of the local server, but of `belljar serve` without --local{instead}"
        )


def _check_installed() -> None:
    """That this Belljar is the one that `belljar` would run without us, and not of the directory we were started in."""
    find = "import importlib.util as u; print(u.find_spec('belljar').origin)"
    found = subprocess.run(
        [sys.executable, "-P", "-c", find], capture_output=True, text=True, cwd="/"
    ).stdout.strip()
    if found != belljar.__file__:
        raise UsageError(
            f"{belljar.__file__} is not what this Python's belljar is ({found or 'none'})"
        )


@contextmanager
def _place() -> Iterator[tuple[int, int]]:
    """The meeting place, which is ours alone while this is open, and the lock that says so."""
    root = resources.run_root()
    path = Path(meeting.directory())
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.mkdir(mode=0o700, exist_ok=True)
    resources.closed_to_others(root)
    try:
        place = meeting.enter(str(path))
    except meeting.Unmet as reason:
        raise UsageError(str(reason)) from None
    lock = os.open(
        "lock",
        os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
        0o600,
        dir_fd=place,
    )
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield place, lock
    except BlockingIOError:
        raise UsageError(
            "a local server runs already; `belljar serve --stop` ends it"
        ) from None
    finally:
        os.close(lock)
        os.close(place)


def _listener(place: int) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    name = f"{os.getpid()}.tmp"
    listener.bind(f"/proc/self/fd/{place}/{name}")
    os.chmod(f"/proc/self/fd/{place}/{name}", 0o600)
    listener.listen(64)
    os.rename(name, "socket", src_dir_fd=place, dst_dir_fd=place)
    return listener


def _prepare() -> None:
    """Load what workers need. They are forked from this one thread."""
    for name in _NEEDED:
        with suppress(ImportError):  # an engine's client may not be installed
            import_module(name)
    anyio.run(anyio.lowlevel.checkpoint)  # loads what an event loop needs
    judging.load("default")
    patterns.compile_all()
    records.compile_all()
    # asyncio asks for each signal that it handles, and gets a new set of enums each time
    signal.valid_signals = cache(signal.valid_signals)
    parser.build_ahead(*meeting.RELAYED)
    with suppress(
        OSError, KeyError
    ):  # a new, empty one: nobody's keys are in workers or sandboxes
        libc.syscall(
            _KEYCTL[os.uname().machine], _JOIN_SESSION_KEYRING, ctypes.c_void_p()
        )
    os.umask(0o022)
    os.chdir("/")
    if threading.active_count() > 1:
        raise BelljarError("the local server has threads, and could not fork safely")
    gc.collect()
    gc.freeze()


_report = -1


def _in_background() -> bool:
    """Fork. False in the parent, once the server answers; if it does not, the parent ends with its status."""
    global _report
    ours, theirs = os.pipe2(os.O_CLOEXEC)
    child = os.fork()
    if child == 0:
        os.close(ours)
        os.setsid()
        _report = theirs
        return True
    os.close(theirs)
    answers = os.read(ours, 1)
    os.close(ours)
    if not answers:
        raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    return False


def _answering(args: Namespace) -> None:
    """Say that it answers; a detached one has no further part in the terminal."""
    if _report < 0:
        console.note(f"the local server answers (pid {os.getpid()}); Ctrl+C ends it")
        return
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    os.close(null)
    os.write(_report, b"+")
    os.close(_report)
