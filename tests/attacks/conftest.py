"""A sandbox to attack from inside, made by the public API. The policy allows everything: the container is tested."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import belljar

# Small, so that attacks on them end soon.
LIMITS = belljar.Limits(
    memory="512m", cpus=1, pids=256, fsize="1g", tmp="128m", home="64m", shm="64m"
)


class Attacker:
    def __init__(self, box: belljar.Session, workspace: Path) -> None:
        self.box, self.workspace = box, workspace
        self._names = (f".attack-{number}" for number in itertools.count())

    async def bash(self, script: str, **options: Any) -> belljar.Result:
        """Run a script that prints BREACH where it gets through."""
        return await self._run("bash", script, **options)

    async def python(self, script: str, **options: Any) -> belljar.Result:
        return await self._run("python3", script, **options)

    async def _run(self, program: str, script: str, **options: Any) -> belljar.Result:
        path = self.workspace / next(self._names)
        path.write_text(script)
        options.setdefault("timeout", 30)
        return await self.box.run([program, f"/workspace/{path.name}"], **options)


@pytest.fixture(scope="package")
async def sandbox(
    base_image: str, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Attacker]:
    """With a workspace of the user who runs the tests. In CI that is root: an id-mapped mount."""
    workspace = tmp_path_factory.mktemp("attacked")
    async with belljar.Session(
        workspace=workspace,
        policy="permissive",
        limits=LIMITS,
        approve=lambda verdict: True,
    ) as box:
        yield Attacker(box, workspace)


@pytest.fixture
async def attacker(sandbox: Attacker) -> Attacker:
    """Open the sandbox again if the last attack broke it, so that only one test fails."""
    if not sandbox.box.is_open:
        await sandbox.box.close()
        await sandbox.box.open()
    return sandbox
