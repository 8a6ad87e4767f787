from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.surfaces.http.serving import Serving, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("conformance")) as started:
        yield started
