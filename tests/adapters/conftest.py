"""A service for the adapters: it runs in the checkout's own environment, which the frameworks' are not."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.adapters.environments import CHECKOUT

import belljar


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; `far` is the host that it is."""
    if CHECKOUT not in os.environ:
        pytest.importorskip(
            "uvicorn", reason="needs the extra `serve`, or `make adapters-test`"
        )
    from tests.surfaces.http.serving import serving

    with serving(tmp_path_factory.mktemp("serve")) as started:
        yield started.url


@pytest.fixture(scope="session")
def far(service: str) -> belljar.host.FarHost:
    from tests.surfaces.http.serving import KEY

    return belljar.connect(service, key=KEY, approval_seconds=0)


@pytest.fixture
def address(service: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The service's address, with the key where an adapter looks for it."""
    from tests.surfaces.http.serving import KEY

    monkeypatch.setenv("BELLJAR_KEY", KEY)
    return service
