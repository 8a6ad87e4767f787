"""kill -9 of the service at random points, under load from clients that know nothing of it: they only wait a little.

Each command writes its own line, so one that was lost or ran twice is seen in the file. BELLJAR_ABUSE=full: fifty.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from tests.surfaces.http.serving import KEY, Serving, serving

import belljar
from belljar.audit import reader
from belljar.errors import SandboxLost

pytestmark = pytest.mark.engine

KILLS = 50 if os.environ.get("BELLJAR_ABUSE") == "full" else 6
WORKERS = 4
LINES = 300 * KILLS


class Load:
    """Clients that run commands one after the other until they are told to stop."""

    def __init__(self, box: Any) -> None:
        self._box = box
        self.is_over = False
        self.ended: dict[str, str] = {}
        """Of each command, its line and how it ended."""

    async def work(self, worker: int) -> None:
        number = 0
        while not self.is_over:
            number += 1
            line = f"{worker}-{number}"
            try:
                result = await self._box.run(
                    f"echo {line} >> done; echo {line}", timeout=60
                )
                assert result.cause != "exited" or result.stdout == f"{line}\n"
                self.ended[line] = result.cause
            except SandboxLost:
                self.ended[line] = "sandbox_lost"


async def _stream(box: Any) -> bytes:
    data = bytearray()
    async with box.stream(
        f"for i in $(seq {LINES}); do echo line $i; sleep 0.002; done"
    ) as events:
        async for event in events:
            if isinstance(event, belljar.Output):
                data += event.data
    return bytes(data)


async def _kill_again_and_again(server: Serving) -> None:
    for _ in range(KILLS):
        await anyio.sleep(random.uniform(0.0, 1.5))
        await to_thread.run_sync(server.kill)
        await to_thread.run_sync(server.start)


async def test_a_killed_service_loses_nothing_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as server:
        far = belljar.connect(server.url, key=KEY)
        told: list[bytes] = []
        async with belljar.Session(far.workspace("load"), host=far) as box:
            shell = await box.start('rm -rf "$NOWHERE"; echo allowed')
            (approval,) = await far.approvals()
            load = Load(box)

            async def stream() -> None:
                told.append(await _stream(box))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(stream)
                for worker in range(WORKERS):
                    tasks.start_soon(load.work, worker)
                await _kill_again_and_again(server)
                load.is_over = True
            assert told[0] == b"".join(b"line %d\n" % n for n in range(1, LINES + 1))
            assert await far.approval(approval["id"]) == approval
            await far.decide(approval, "allow")
            assert (await shell.wait(timeout=60)).stdout == "allowed\n"
            written = Counter((await box.files.read("done")).decode().split())
            assert not [line for line, times in written.items() if times > 1]
            assert not [
                line
                for line, cause in load.ended.items()
                if cause == "exited" and line not in written
            ]
            lost = [line for line, cause in load.ended.items() if cause != "exited"]
            assert len(lost) <= KILLS * WORKERS
            assert len(load.ended) > KILLS
            session = box.id
        assert not await belljar.Session.list(host=far)
        trail = tmp_path / "serve" / "tenants" / "default" / "audit"
        records = await to_thread.run_sync(lambda: list(reader.records(trail)))
        mine = [record for record in records if record["session"] == session]
        starts = Counter(record["run"] for record in mine if record["kind"] == "start")
        ends = Counter(record["run"] for record in mine if record["kind"] == "end")
        assert starts == ends
        assert set(starts.values()) == {1}
        verified = await to_thread.run_sync(
            lambda: server.client.get("/v1/audit/verify").json()
        )
        assert verified["ok"], verified
        print(
            f"{KILLS} kills, {len(load.ended)} commands, {len(lost)} of unknown outcome"
        )
