"""One real sandbox per test module."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.judging_off_the_loop import (
    _judging_stays_off_the_event_loop as _judging_stays_off_the_event_loop,
)

from belljar import Session, ToolRegistry

OWNER = 1000


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workspace with a subdirectory and a link that leads out."""
    path = tmp_path_factory.mktemp("workspace")
    path.chmod(0o755)
    (path / "sub").mkdir()
    (path / "out").symlink_to("/etc")
    if os.geteuid() == 0:
        for each in (path, path / "sub"):
            os.chown(each, OWNER, OWNER)
    return path


@pytest.fixture(scope="module")
async def box(place: Path, base_image: str) -> AsyncIterator[Session]:
    async with Session(place) as session:
        yield session


@pytest.fixture(scope="module")
def tools(box: Session) -> ToolRegistry:
    return ToolRegistry(box)
