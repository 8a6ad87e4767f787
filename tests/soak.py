"""Long mixed work in several sessions at once, with a line of figures each minute.

    make soak                                an hour
    python -m tests.soak --minutes 3

Memory and descriptors of this process must stay flat. At the end no container, mount or directory may be left.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
from anyio import to_thread

import belljar
from belljar.engines import docker
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.spec import LABEL
from belljar.resources import run_root

WORKERS = 4
SETTLE = 20.0  # seconds for the engine to remove what has ended
# The growth since the first minute that still counts as flat.
FLAT_MEMORY, FLAT_DESCRIPTORS = 48 << 20, 16


class Soak:
    def __init__(self, workspace: Path, engine: DockerEngine) -> None:
        self.workspace, self.engine = workspace, engine
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.rows: list[tuple[float, int, int, int, int]] = []
        self.began = time.monotonic()

    # The work.

    async def work(self, seed: int, until: float) -> None:
        rng = random.Random(seed)
        while time.monotonic() < until:
            with self.counted("session"):
                async with belljar.Session(
                    self.workspace, limits=belljar.Limits(memory="128m", pids=64)
                ) as box:
                    for _ in range(rng.randrange(20, 60)):
                        if time.monotonic() < until and box.is_open:
                            await self.one(rng, box)

    async def one(self, rng: random.Random, box: belljar.Session) -> None:
        task = rng.choice(TASKS)
        with self.counted(task.__name__.strip("_")), anyio.fail_after(120):
            await task(self, box, rng)

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        try:
            yield
            self.done[name] += 1
        except Exception as error:
            self.failed[f"{name}: {type(error).__name__}: {str(error)[:80]}"] += 1

    async def throwaways(self, pool: belljar.Pool, until: float) -> None:
        while time.monotonic() < until:
            with self.counted("throwaway"):
                async with pool.session() as box:
                    assert (
                        await box.run("echo fresh; ls /tmp", timeout=30)
                    ).stdout == "fresh\n"
            await anyio.sleep(0.2)

    # The figures.

    async def report(self, until: float, every: float) -> None:
        while (left := until - time.monotonic()) > 0:
            await anyio.sleep(min(every, left))
            await self.sample()

    async def sample(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(
            0
        )  # memory that the C library only keeps for later does not count
        minutes, commands = (
            (time.monotonic() - self.began) / 60,
            sum(self.done.values()),
        )
        row = (
            minutes,
            resident(),
            len(os.listdir("/proc/self/fd")),
            len(await self.sandboxes()),
            commands,
        )
        self.rows.append(row)
        print(f"{minutes:6.1f} min  {row[1] / 1e6:7.1f} MB  {row[2]:4} descriptors  {row[3]:3} sandboxes  "
              f"{commands:8} done  {sum(self.failed.values()):4} failed", flush=True)  # fmt: skip

    async def sandboxes(self) -> list[str]:
        mine = f"{os.getpid()}:"
        listed = await to_thread.run_sync(self.engine.list)
        return [
            each.id
            for each in listed
            if each.labels.get(LABEL + "owner", "").startswith(mine)
        ]

    async def left_over(self) -> list[str]:
        deadline = time.monotonic() + SETTLE
        while True:
            left = [
                *await self.sandboxes(),
                *(name for name in os.listdir(run_root()) if "bj-" in name),
            ]
            left += [
                line
                for line in Path("/proc/mounts").read_text().splitlines()
                if str(run_root()) in line
            ]
            if not left or time.monotonic() > deadline:
                return left
            await anyio.sleep(0.2)


def resident() -> int:
    with open("/proc/self/statm") as memory:
        return int(memory.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


# The tasks. Each checks its own result.


async def _command(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    word = f"{rng.random()}"
    assert (await box.run(f"echo {word} | cat")).stdout == f"{word}\n"


async def _program(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    assert (await box.run(["python3", "-c", "print(6 * 7)"])).stdout == "42\n"


async def _input(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    data = rng.randbytes(rng.randrange(1 << 20))
    assert (await box.run(["cat"], stdin=data)).stdout_bytes == data


async def _flood(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    size = rng.randrange(1 << 20, 64 << 20)
    assert (await box.run(f"head -c {size} /dev/zero")).bytes_produced == size


async def _stream(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    async with box.stream("for i in 1 2 3; do echo $i; done") as run:
        seen = b"".join(
            [event.data async for event in run if isinstance(event, belljar.Output)]
        )
    assert seen == b"1\n2\n3\n"


async def _stream_left(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    async with box.stream("yes") as run:
        await anext(run)


async def _timeout(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    result = await box.run(
        "(trap '' TERM; sleep 60) & setsid sleep 60 & sleep 60", timeout=0.2, grace=0.1
    )
    assert result.cause == "timeout"


async def _cancelled(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    with anyio.move_on_after(rng.random() * 0.1):
        await box.run("sleep 60")


async def _shell(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    shell = await box.start("echo up; read -r line; echo got $line")
    while "up" not in (await shell.read(offset=0, wait=5)).stdout:
        pass
    await shell.write("it\n")
    assert (await shell.wait(30)).stdout == "up\ngot it\n"
    assert await box.cleanup() >= 1


async def _shell_killed(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    shell = await box.start("while :; do echo on; sleep 0.01; done")
    await shell.read(wait=1)
    await shell.kill(0)
    assert shell.status == "killed"
    await box.cleanup()


async def _persistent(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    shell = box.persistent
    await shell.run("cd /tmp; export SOAK=1; f() { echo $SOAK; }", timeout=30)
    assert (await shell.run("pwd; f", timeout=30)).stdout == "/tmp\n1\n"


async def _persistent_timeout(
    soak: Soak, box: belljar.Session, rng: random.Random
) -> None:
    assert (
        await box.persistent.run("sleep 60", timeout=0.2, grace=0.1)
    ).cause == "timeout"


async def _out_of_memory(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    result = await box.run(["python3", "-c", "x = bytearray(1 << 30)"])
    assert result.cause == "out_of_memory"


async def _denied(soak: Soak, box: belljar.Session, rng: random.Random) -> None:
    try:
        await box.run("rm -rf /")
    except belljar.PolicyDenied:
        return
    raise AssertionError("not denied")


Task = Callable[[Soak, belljar.Session, random.Random], Awaitable[None]]
TASKS: tuple[Task, ...] = (
    _command, _command, _command, _program, _input, _flood, _stream, _stream_left, _timeout, _cancelled, _shell,
    _shell_killed, _persistent, _persistent, _persistent_timeout, _out_of_memory, _denied,
)  # fmt: skip


async def soak(minutes: float, workspace: Path) -> bool:
    os.chmod(workspace, 0o755)
    run = Soak(workspace, await to_thread.run_sync(docker.find))
    until = time.monotonic() + minutes * 60
    async with (
        belljar.Pool(workspace, size=2) as pool,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(run.report, until, min(60.0, minutes * 10))
        tasks.start_soon(run.throwaways, pool, until)
        for seed in range(WORKERS):
            tasks.start_soon(run.work, seed, until)
    left = await run.left_over()
    await run.sample()
    return summary(run, left)


def summary(run: Soak, left: list[str]) -> bool:
    first, last = run.rows[0], run.rows[-1]
    print(
        "\n"
        + "\n".join(f"{count:8} {name}" for name, count in sorted(run.done.items()))
    )
    print(
        f"\n{last[4]} done in {last[0]:.1f} minutes, {sum(run.failed.values())} failed"
    )
    print("\n".join(f"{count:8} {what}" for what, count in run.failed.most_common()))
    print(
        f"memory       {first[1] / 1e6:.1f} → {last[1] / 1e6:.1f} MB\ndescriptors  {first[2]} → {last[2]}"
    )
    print(f"left over    {len(left)} {left or ''}")
    flat = last[1] - first[1] <= FLAT_MEMORY and last[2] - first[2] <= FLAT_DESCRIPTORS
    return flat and not left and not run.failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="belljar-soak-") as workspace:
        sys.exit(0 if anyio.run(soak, args.minutes, Path(workspace)) else 1)


if __name__ == "__main__":
    main()
