"""One server for the tests of a file. It is slow to start, and its tests are independent."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.surfaces.http.serving import Serving, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("serve")) as started:
        yield started


@pytest.fixture(scope="module")
def session(server: Serving) -> str:
    """A session that the tests of a file share."""
    return server.session()
