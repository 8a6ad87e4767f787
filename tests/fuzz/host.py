"""The host's side of the link against a hostile init in another process.

Each round is one link. The caller uses everything that a link offers, while the init misbehaves. Two things are
measured: how much this process grows, and the longest time for which one callback blocked the event loop (without the
time in which the process waited for a processor).
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from belljar.errors import BelljarError
from belljar.link.frames import Flag
from belljar.link.link import Link
from belljar.link.remote_process import RemoteProcess
from belljar.link.transport import SocketTransport
from belljar.session.bash_channel import Bash
from belljar.session.running_command import RunningCommand
from belljar.session.watched_run import Run

ROOT = Path(__file__).resolve().parents[2]
WARM_UP = 20  # rounds after which memory is first measured
ROUND_SECONDS = 3.0
GROWTH, STALL = 32 << 20, 0.05


@dataclass
class Findings:
    rounds: int = 0
    first: int = 0
    most: int = 0
    longest_stall: float = 0.0
    stalled_in: str = ""
    ends: Counter[str] = field(default_factory=Counter)
    """Why the links were lost."""
    errors: list[str] = field(default_factory=list)
    """Exceptions that reached the event loop."""

    @property
    def growth(self) -> int:
        return self.most - self.first

    def note_memory(self) -> None:
        self.most = max(self.most, resident())
        if self.rounds <= WARM_UP:
            self.first = self.most


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def run_delay() -> float:
    """How long this thread has waited for a processor so far."""
    return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9


@contextlib.contextmanager
def watched_loop(findings: Findings) -> Iterator[None]:
    """Time every callback of the loop: in processor time, or by the clock if it slept in the kernel. Time spent waiting
    for a processor does not count."""
    plain = asyncio.events.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        begun, used, delayed = time.monotonic(), time.thread_time(), run_delay()
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        plain(handle)
        taken = time.thread_time() - used
        if resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw > before:
            taken = time.monotonic() - begun - (run_delay() - delayed)
        if taken > findings.longest_stall and findings.rounds > WARM_UP:
            findings.longest_stall, findings.stalled_in = taken, repr(handle)

    asyncio.events.Handle._run = timed  # type: ignore[method-assign]
    try:
        yield
    finally:
        asyncio.events.Handle._run = plain  # type: ignore[method-assign]


async def everything(link: Link) -> None:
    """Use the link in all ways at once, until it is lost or the round is over."""
    tasks: list[asyncio.Task[object]] = []

    def later(work: object) -> None:
        tasks.append(asyncio.ensure_future(_quietly(work)))  # type: ignore[arg-type]

    later(link.hello())
    await asyncio.sleep(0)
    with contextlib.suppress(BelljarError):
        plain = link.spawn([b"true"], flags=Flag.SHELL)
        RunningCommand(None, plain, None, {}, 1 << 20)  # type: ignore[arg-type]
        paced = link.spawn([b"true"], flags=Flag.SHELL, paced=True)
        watched = RunningCommand(None, paced, None, {}, 1 << 20)  # type: ignore[arg-type]
        Run(watched, paced.started)  # type: ignore[arg-type]  # its events are never read
        shell = link.spawn([b"cat"], flags=Flag.STDIN | Flag.BACKGROUND)
        bash = Bash(link, {}, None, lambda stream, data: None)
        later(bash.begin("echo", None, 1.0))
        later(bash.look())
        for process in (plain, paced, shell, bash.process):
            later(process.started())
            later(process.ended())
        later(shell.input(b"x" * (1 << 20)))
        for _ in range(9):
            later(link.read(shell.id, 0, 0, 1 << 20, 1.0))
        later(link.list())
        later(link.ping())
        later(_changes_its_mind(plain))
        done = asyncio.gather(*tasks)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(done, ROUND_SECONDS)
    link.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _quietly(work: object) -> None:
    with contextlib.suppress(BelljarError):
        await work  # type: ignore[misc]


async def _changes_its_mind(process: RemoteProcess) -> None:
    await asyncio.sleep(0.05)
    process.signal(2)
    await asyncio.sleep(0.05)
    process.abandon()


async def rounds(count: int, listener: socket.socket, findings: Findings) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, facts: findings.errors.append(str(facts)))
    for _ in range(count):
        connection, _ = await asyncio.wait_for(loop.sock_accept(listener), 60)
        link = Link(SocketTransport(connection))
        await everything(link)
        findings.ends[str(link.lost)[:60]] += 1
        findings.rounds += 1
        findings.note_memory()


@contextlib.contextmanager
def hostile_init(count: int, seed: int) -> Iterator[socket.socket]:
    """Start the hostile init, and yield the socket that it connects to."""
    with (
        tempfile.TemporaryDirectory() as directory,
        socket.socket(socket.AF_UNIX) as listener,
    ):
        path = f"{directory}/s"
        listener.bind(path)
        listener.listen(4)
        listener.setblocking(False)
        command = [
            sys.executable,
            "-m",
            "tests.fuzz.hostile_init",
            path,
            str(seed),
            str(count),
        ]
        process = subprocess.Popen(command, cwd=ROOT)
        try:
            yield listener
        finally:
            process.kill()
            process.wait()


def fuzz(count: int, seed: int, findings: Findings | None = None) -> Findings:
    findings = findings or Findings()
    with hostile_init(count, seed) as listener, watched_loop(findings):
        asyncio.run(rounds(count, listener, findings))
    return findings


def at_length(seconds: float) -> None:
    """Fuzz for so long, print the figures, and fail if a bound was broken."""
    findings, seed, until = (
        Findings(),
        time.time_ns() % (1 << 32),
        time.monotonic() + seconds,
    )
    while time.monotonic() < until:
        fuzz(100, seed, findings)
        seed += 100
    grown, stall = findings.growth / 1e6, findings.longest_stall * 1000
    print(
        f"  {findings.rounds} connections, grown by {grown:.1f} MB (at most {GROWTH / 1e6:.1f}), ",
        end="",
    )
    print(f"longest stall {stall:.1f} ms (at most {STALL * 1000:.0f})")
    print(f"  the stall: {findings.stalled_in[:200]}")
    if findings.growth > GROWTH or findings.longest_stall > STALL or findings.errors:
        sys.exit(f"hostile init: a bound was broken {findings.errors[:3]}")


if __name__ == "__main__":
    at_length(float(sys.argv[1]))
