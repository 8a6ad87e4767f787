"""A service with many sessions and steady work, with a line of figures each minute.

    make soak                                           an hour of 200 sessions, 10 commands a second
    python -m tests.soak_service --minutes 3 --sessions 50

The server's memory and descriptors must stay flat, and every command must answer what it printed.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections import Counter
from dataclasses import dataclass, field

import anyio
import httpx
from tests.bench.service import client, create, end
from tests.bench.table import ms, p50, p99

AT_ONCE = 5  # sessions that are made
# The growth since the second minute that still counts as flat.
FLAT_MEMORY, FLAT_DESCRIPTORS = 48 << 20, 16


@dataclass
class Minute:
    memory: int
    descriptors: int


@dataclass
class Soak:
    http: httpx.AsyncClient
    sessions: list[str] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    failed: Counter[str] = field(default_factory=Counter)
    minutes: list[Minute] = field(default_factory=list)
    done: int = 0

    async def prepare(self, count: int) -> None:
        limiter = anyio.CapacityLimiter(AT_ONCE)

        async def one() -> None:
            async with limiter:
                self.sessions.append(await create(self.http))

        async with anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(one)

    async def work(self, seconds: float, each_second: float) -> None:
        until = time.monotonic() + seconds
        next_report = time.monotonic() + min(60.0, seconds)
        async with anyio.create_task_group() as tasks:
            while time.monotonic() < until:
                tasks.start_soon(self._command, self.done % len(self.sessions))
                self.done += 1
                if time.monotonic() >= next_report:
                    next_report += 60
                    await self.report()
                await anyio.sleep(1 / each_second)
        await self.report()

    async def _command(self, at: int) -> None:
        begun, word = time.perf_counter(), f"w{self.done}"
        path = f"/v1/sessions/{self.sessions[at]}/commands"
        try:
            answer = await self.http.post(path, json={"command": f"echo {word}"})
            assert answer.json()["result"]["stdout"] == f"{word}\n", answer.text[:200]
        except Exception as error:
            self.failed[f"{type(error).__name__}: {str(error)[:120]}"] += 1
        else:
            self.times.append(time.perf_counter() - begun)

    async def report(self) -> None:
        told = (await self.http.get("/metrics")).text.splitlines()

        def number(name: str) -> int:
            line = next(line for line in told if line.startswith(f"{name} "))
            return int(float(line.split()[1]))

        minute = Minute(
            number("process_resident_memory_bytes"), number("process_open_fds")
        )
        self.minutes.append(minute)
        spent = ms(p50(self.times), p99(self.times)) if self.times else "-"
        print(
            f"{self.done:7} commands  {spent}  {minute.memory / 1e6:7.1f} MB  "
            f"{minute.descriptors:5} descriptors  {self.failed.total():4} failed",
            flush=True,
        )
        self.times.clear()

    @property
    def faults(self) -> list[str]:
        found = [f"{count} × {what}" for what, count in self.failed.items()]
        if len(self.minutes) > 2:
            first, last = self.minutes[1], self.minutes[-1]
            if last.memory - first.memory > FLAT_MEMORY:
                found.append(f"memory grew from {first.memory} to {last.memory}")
            if last.descriptors - first.descriptors > FLAT_DESCRIPTORS:
                found.append(
                    f"descriptors grew from {first.descriptors} to {last.descriptors}"
                )
        return found


async def soak(minutes: float, sessions: int, each_second: float) -> list[str]:
    async with client() as http:
        running = Soak(http)
        await running.prepare(sessions)
        print(f"{sessions} sessions are ready", flush=True)
        await running.work(minutes * 60, each_second)
        with contextlib.suppress(httpx.HTTPError):
            await end(http, running.sessions)
        return running.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--each-second", type=float, default=10)
    args = parser.parse_args()
    faults = anyio.run(soak, args.minutes, args.sessions, args.each_second)
    print("\n".join(faults) or "flat, and nothing failed")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
