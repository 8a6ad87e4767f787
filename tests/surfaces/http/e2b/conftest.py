"""One server that speaks E2B's wire, and the unmodified client of E2B."""

from __future__ import annotations

from collections.abc import Iterator

import e2b
import httpx
import pytest
from tests.surfaces.http.serving import KEY, Serving, serving


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("e2b"), "--e2b", "127.0.0.1:0") as started:
        yield started


@pytest.fixture(autouse=True)
def settings(server: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a user of E2B's clients sets to use this server."""
    monkeypatch.setenv("E2B_API_URL", server.told["e2b"])
    monkeypatch.setenv("E2B_SANDBOX_URL", server.told["e2b"])
    monkeypatch.setenv("E2B_API_KEY", KEY)


@pytest.fixture(scope="module")
def shared(server: Serving) -> Iterator[e2b.Sandbox]:
    """A sandbox for all tests of a file."""
    with pytest.MonkeyPatch.context() as patch:
        settings.__wrapped__(server, patch)
        made = e2b.Sandbox.create(timeout=600)
        yield made
        made.kill()


@pytest.fixture
def sandbox() -> Iterator[e2b.Sandbox]:
    made = e2b.Sandbox.create(timeout=120)
    yield made
    made.kill()


@pytest.fixture
def wire(server: Serving) -> Iterator[httpx.Client]:
    """A client that says whatever a test likes."""
    with httpx.Client(
        base_url=server.told["e2b"], timeout=30, trust_env=False
    ) as client:
        yield client
