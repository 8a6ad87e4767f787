"""`make bench-scale`: a thousand idle sandboxes of the engine `oci` on this machine, and what they cost.

It refuses to begin without room for them, ends after a while whatever happens, and leaves nothing: sessions are closed
in any case, and what a killed run leaves goes with its lease and the next reaper. `BELLJAR_BENCH_SCALE` is the number.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import anyio

from belljar import Limits, Session
from belljar.doctor import room
from belljar.host import Host
from belljar.sandbox.launch import reap_remains
from belljar.sandbox.rundir import run_dirs

from .table import Row, ms, p50, p99, show
from .throwaways import available, checked, one

COUNT = int(os.environ.get("BELLJAR_BENCH_SCALE", "1000"))
AT_ONCE = 4
KILLED = min(COUNT, 50)
COMMANDS = 1000
NEEDED = 4 << 20
"""Bytes that must be available for each sandbox, so that the machine has room for others."""
LONGEST = 900.0
SMALL = Limits(memory="64m", tmp="16m", home="16m")


async def opened(boxes: list[Session], count: int, workspace: Path, host: Host) -> None:
    """Open sessions, a few at a time, into `boxes`."""
    left = iter(range(count))

    async def some() -> None:
        for _ in left:
            boxes.append(await Session(workspace, host=host, limits=SMALL).open())

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(some)


async def closed(boxes: list[Session]) -> None:
    with anyio.CancelScope(shield=True):
        async with anyio.create_task_group() as tasks:
            while boxes:
                tasks.start_soon(boxes.pop().close)


async def warm(box: Session) -> list[float]:
    times: list[float] = []
    for _ in range(COMMANDS):
        await one(lambda: checked(box), times)
    return times


def left_of(host: Host, ids: set[str]) -> list[str]:
    """What is still there of these sessions: sandboxes, run directories, control groups."""
    engine = host.connect()
    found = [each.id for each in engine.list()]
    found += [path.name for path in run_dirs(host.run_root)]
    found += [path.name for path in Path("/sys/fs/cgroup").glob("**/belljar-*")]
    return sorted(name for name in found if any(id in name for id in ids))


async def thousand(workspace: Path, host: Host) -> list[Row]:
    boxes: list[Session] = []
    try:
        await opened(boxes, 1, workspace, host)
        alone = await warm(boxes[0])
        before, files = available(), len(os.listdir("/proc/self/fd"))
        begun = time.perf_counter()
        await opened(boxes, COUNT - 1, workspace, host)
        each = (time.perf_counter() - begun) / (COUNT - 1)
        memory = (before - available()) / (COUNT - 1) / 2**20
        descriptors = (len(os.listdir("/proc/self/fd")) - files) / (COUNT - 1)
        processes = sum(box.usage()["pids"] for box in boxes) / COUNT
        beside = await warm(boxes[0])
        ids = {box.id for box in boxes}
        begun = time.perf_counter()
    finally:
        await closed(boxes)
    gone = time.perf_counter() - begun
    left = await anyio.to_thread.run_sync(left_of, host, ids)
    spread = p99(beside) / p50(beside)
    return [
        Row(f"start, {COUNT} of them, {AT_ONCE} at once", f"{ms(each)} each", "", "", "<= 30 ms", each <= 0.030),
        Row("memory of an idle one", f"{memory:.2f} MiB", "", "", "<= 2 MiB", memory <= 2),
        Row("  its processes; descriptors here", f"{processes:.1f}; {descriptors:.1f}",
            f"doctor counts with {room.PROCESSES}; {room.DESCRIPTORS}", "", "no more",
            processes <= room.PROCESSES + 0.5 and descriptors <= room.DESCRIPTORS + 0.5),
        Row("warm command beside them, p50 / p99", ms(p50(beside), p99(beside)),
            f"alone {ms(p50(alone), p99(alone))}", f"p99 {spread:.1f} x p50", "<= 3 x", spread <= 3),
        Row("all closed", f"{gone:.1f} s", "", "", "<= 10 s", gone <= 10),
        Row("left of them", ", ".join(left) or "nothing", "", "", "nothing", not left),
    ]  # fmt: skip


async def killed(workspace: Path, host: Host) -> list[Row]:
    """What is left of a host process that is killed with its sandboxes, once another one has reaped."""
    argv = [sys.executable, "-m", "tests.bench.scale", "--hold", str(workspace)]
    child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    try:
        said = await anyio.to_thread.run_sync(child.stdout.readline)
        ids = set(said.decode().split())
        assert len(ids) == KILLED
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    begun = time.perf_counter()
    await anyio.to_thread.run_sync(reap_remains, host)
    took = time.perf_counter() - begun
    left = await anyio.to_thread.run_sync(left_of, host, ids)
    return [
        Row(
            f"killed with {KILLED}, reaped by the next",
            f"{took:.1f} s, {len(left)} left",
            "",
            "",
            "nothing",
            not left,
        )
    ]


async def hold(workspace: Path) -> None:
    """Open sandboxes, name them, and wait to be killed."""
    boxes: list[Session] = []
    try:
        await opened(boxes, KILLED, workspace, Host(engine="oci"))
        print(*(box.id for box in boxes), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)
    finally:
        await closed(boxes)


async def rows(workspace: Path) -> list[Row]:
    host = Host(engine="oci")
    if available() < COUNT * NEEDED:
        raise SystemExit(
            f"{COUNT} sandboxes want {COUNT * NEEDED >> 20} MiB available, so that others have room"
        )
    with anyio.fail_after(LONGEST):
        return [*await killed(workspace, host), *await thousand(workspace, host)]


def main() -> None:
    if sys.argv[1:2] == ["--hold"]:
        anyio.run(hold, Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="belljar-scale-") as directory:
        workspace = Path(directory)
        os.chown(workspace, 1000, 1000) if os.geteuid() == 0 else None
        print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        show(f"{COUNT} idle sandboxes", anyio.run(rows, workspace))


if __name__ == "__main__":
    main()
