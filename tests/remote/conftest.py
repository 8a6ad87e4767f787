"""One server for the tests of a file, and a host that is connected to it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
from tests.surfaces.http.serving import KEY, Serving, serving

import belljar
from belljar.remote.box import RemoteSession
from belljar.remote.host import RemoteHost


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture(scope="module")
def far(server: Serving) -> RemoteHost:
    return belljar.connect(server.url, key=KEY, approval_seconds=0)


@pytest.fixture(scope="module")
async def box(far: RemoteHost) -> AsyncIterator[RemoteSession]:
    """A session that the tests of a file share."""
    async with RemoteHost.session(far) as session:
        yield session
