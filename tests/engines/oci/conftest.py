"""The engine `oci`, which has no daemon, run by root."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from belljar.engines.base import image_store
from belljar.engines.oci import OciEngine
from belljar.host import Host
from belljar.images import catalog

needs_runc = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("runc") is None,
    reason="the engine oci needs root and runc",
)


@pytest.fixture
def host() -> Iterator[Host]:
    found = Host(engine="oci")
    catalog.ensure(image_store(found.connect()), "base")
    yield found
    found.close()


@pytest.fixture
def engine(host: Host) -> OciEngine:
    found = host.connect()
    assert isinstance(found, OciEngine)
    return found


def groups(engine: OciEngine) -> set[str]:
    return engine._caller.groups.names(engine._prefix)
