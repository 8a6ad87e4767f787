"""A sandbox spec, as engines get it."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar.engines.spec import SandboxSpec
from belljar.limits import Limits
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.workspace.pinned import Workspace

LIMITS = Limits(
    memory="512m", cpus=1.5, pids=256, fsize="1g", tmp="128m", home="64m", shm="64m"
)


@pytest.fixture
def spec(workspace: Path) -> SandboxSpec:
    link = LinkPlan("socket", "/r/init", "/r/link", "/r/hosts", "/r/hostname")
    with Workspace.open(workspace) as pinned:
        return build_spec(
            image="img", workspace=pinned, limits=LIMITS, link=link, lease_seconds=30
        )
