"""A sandbox for hostile commands, and checks after each test that nothing outside was harmed.

The policy allows everything here, as if it had been deceived. `make test` runs each scenario at a small size;
BELLJAR_ABUSE=full runs it at full length (add `-o faulthandler_timeout=0`, or the watchdog ends it).
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import os
import subprocess
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import anyio
import pytest
from anyio import to_thread

import belljar
from belljar import engines
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.spec import LABEL
from belljar.resources import run_root
from belljar.session.result import Cause

FULL = os.environ.get("BELLJAR_ABUSE") == "full"
# Seconds. Nothing takes this long even on a busy machine: what does has hung.
PROMPT = 120.0
FLAT = 64 << 20  # bytes that a Python process may keep after use
OURS = ("/.belljar-", "bash --noprofile --norc ")
LIMITS = belljar.Limits(memory="128m", pids=64, cpus=1)


def number(everyday: int, full: int) -> int:
    """How many times to repeat: few in `make test`, all with BELLJAR_ABUSE=full."""
    count = full if FULL else everyday
    print(f"{count} of {full}")
    return count


class Victim:
    """A sandbox to abuse."""

    def __init__(self, box: belljar.Session, workspace: Path) -> None:
        self.box, self.workspace = box, workspace
        self.results: list[belljar.Result] = []
        self._names = (f".abuse-{n}" for n in itertools.count())

    async def bash(self, text: str, **options: Any) -> belljar.Result:
        return await self.run(["bash", self.script(text)], **options)

    async def python(self, text: str, **options: Any) -> belljar.Result:
        return await self.run(["python3", self.script(text)], **options)

    def script(self, text: str) -> str:
        path = self.workspace / next(self._names)
        path.write_text(text)
        return f"/workspace/{path.name}"

    async def run(self, command: str | list[str], **options: Any) -> belljar.Result:
        """Run the command, and fail if its result does not come soon after its timeout."""
        options.setdefault("timeout", 15)
        options.setdefault("grace", 0.5)
        with anyio.fail_after(options["timeout"] + options["grace"] + PROMPT):
            result = await self.box.run(command, **options)
        self.results.append(result)
        return result


@dataclass(frozen=True)
class Footprint:
    """The host's resources that this process holds."""

    descriptors: int
    memory: int
    mounts: int
    sandboxes: frozenset[str]
    directories: frozenset[str]

    @classmethod
    def now(cls, engine: DockerEngine) -> Footprint:
        gc.collect()
        mine = f"{os.getpid()}:"
        listed = [
            each
            for each in engine.list()
            if each.labels.get(LABEL + "owner", "").startswith(mine)
        ]
        with open("/proc/self/statm") as memory:
            resident = int(memory.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return cls(
            len(os.listdir("/proc/self/fd")), resident, Path("/proc/self/mounts").read_text().count(str(run_root())),
            frozenset(each.id for each in listed), frozenset(name for name in os.listdir(run_root()) if "bj-" in name),
        )  # fmt: skip

    def grew_from(self, before: Footprint) -> list[str]:
        grown = {
            "descriptors": self.descriptors > before.descriptors + 2, "memory": self.memory > before.memory + FLAT,
            "mounts": self.mounts > before.mounts, "sandboxes": self.sandboxes - before.sandboxes,
            "directories": self.directories - before.directories,
        }  # fmt: skip
        return [
            f"{name}: {getattr(before, name)} → {getattr(self, name)}"
            for name, grew in grown.items()
            if grew
        ]


@pytest.fixture(scope="package")
async def sandbox(
    base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Victim]:
    workspace = tmp_path_factory.mktemp("abused")
    options: dict[str, Any] = {"policy": "permissive", "approve": lambda verdict: True}
    async with belljar.Session(workspace, limits=LIMITS, **options) as box:
        await box.run(
            "echo warm > /tmp/up && rm /tmp/up"
        )  # starts the policy's parser, which stays
        yield Victim(box, workspace)


@pytest.fixture(scope="package")
async def bystander(
    base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[belljar.Session]:
    """Another session, which must not be affected."""
    async with belljar.Session(tmp_path_factory.mktemp("bystander")) as box:
        yield box


@pytest.fixture
async def victim(
    sandbox: Victim, bystander: belljar.Session, engine: DockerEngine
) -> AsyncIterator[Victim]:
    """The sandbox. After the test: it is usable, and nothing is left or harmed."""
    assert (await sandbox.box.run("echo ready", timeout=PROMPT)).ok
    before = await to_thread.run_sync(Footprint.now, engine)
    watching = asyncio.create_task(_keep_working(bystander))
    yield sandbox
    watching.cancel()
    with anyio.fail_after(PROMPT):
        assert (await bystander.run("echo unharmed")).stdout == "unharmed\n"
        assert (await sandbox.box.run("echo usable")).stdout == "usable\n"
    for result in sandbox.results:
        well_formed(result)
    sandbox.results.clear()
    await no_process_left(sandbox.box)
    await to_thread.run_sync(sweep, sandbox.workspace)
    await nothing_left(engine, before)
    assert not watching.done() or watching.cancelled(), (
        "the bystander's commands went wrong"
    )


async def _keep_working(bystander: belljar.Session) -> None:
    """Run commands in the other session meanwhile; none may be delayed for long."""
    while True:
        with anyio.fail_after(PROMPT):
            assert (await bystander.run("echo on")).stdout == "on\n"
        await anyio.sleep(0.2)


async def warmed_up(workspace: Path, engine: DockerEngine) -> Footprint:
    """What is held before a test, after everything that stays for good was made: the engine's client, the parser."""
    await to_thread.run_sync(lambda: engines.connect().describe())
    await belljar.run("echo warm > /tmp/up; rm /tmp/up", workspace)
    return await to_thread.run_sync(Footprint.now, engine)


async def nothing_left(engine: DockerEngine, before: Footprint) -> None:
    """Wait until there are no more containers, mounts, directories, descriptors and memory than before."""
    deadline = time.monotonic() + PROMPT
    while grown := (await to_thread.run_sync(Footprint.now, engine)).grew_from(before):
        assert time.monotonic() < deadline, f"left behind: {grown}"
        await anyio.sleep(0.1)


async def no_process_left(box: belljar.Session) -> None:
    """Wait until only PID 1, its keepers and preforked shells are left."""
    deadline = time.monotonic() + PROMPT
    while left := [
        line
        for pid in _processes(box)
        if not (line := _command_line(pid)).startswith(OURS)
    ]:
        assert time.monotonic() < deadline, f"processes left in the sandbox: {left}"
        await anyio.sleep(0.05)


def _processes(box: belljar.Session) -> list[str]:
    lines = Path(f"/proc/{box.sandbox.launched.pid}/cgroup").read_text().splitlines()
    groups = dict(line.split(":", 2)[1:] for line in lines)
    group = f"pids{groups['pids']}" if "pids" in groups else groups[""].lstrip("/")
    return Path("/sys/fs/cgroup", group, "cgroup.procs").read_text().split()


def _command_line(pid: str) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""  # it has ended, or is another program by now


def well_formed(result: belljar.Result) -> None:
    document = json.loads(json.dumps(result.as_dict()))
    assert document["cause"] in get_args(Cause)
    assert isinstance(result.exit_code, int)
    assert 0 <= result.bytes_kept <= result.bytes_produced
    assert result.truncated == (result.bytes_kept < result.bytes_produced)
    assert result.duration >= 0
    assert result.ended >= result.started
    assert result.ok == (result.cause == "exited" and result.exit_code == 0)


def sweep(workspace: Path) -> None:
    """Empty the workspace with `rm`: Python's rmtree fails on very deep trees."""
    subprocess.run(
        ["rm", "-rf", *(entry.path for entry in os.scandir(workspace))], check=True
    )
    assert not os.listdir(workspace)
