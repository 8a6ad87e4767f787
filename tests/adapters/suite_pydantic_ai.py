"""Pydantic AI's own `WorkspaceBackendSuite`, unmodified, with all of its optional fixtures."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

pytest.importorskip(
    "pydantic_ai",
    reason="needs pydantic_ai: `make adapters-test` has an environment with it",
)

from pydantic_ai.workspaces import WorkspaceRef
from pydantic_ai.workspaces.conformance import WorkspaceBackendSuite

from belljar.adapters import pydantic_ai as adapter
from belljar.adapters.pydantic_ai import BelljarWorkspaceBackend


@pytest.fixture
async def made() -> AsyncIterator[list[BelljarWorkspaceBackend]]:
    """The backends of a test; their sandboxes end with it."""
    backends: list[BelljarWorkspaceBackend] = []
    yield backends
    for backend in backends:
        if backend.ref is not None:
            await adapter.destroy(backend)


@pytest.mark.engine
class TestBelljar(WorkspaceBackendSuite):
    @pytest.fixture(params=["near", "far"])
    def host(self, request: pytest.FixtureRequest) -> Any:
        return request.getfixturevalue("far") if request.param == "far" else None

    @pytest.fixture
    def backend(
        self, fresh_backend: Callable[[], BelljarWorkspaceBackend]
    ) -> BelljarWorkspaceBackend:
        return fresh_backend()

    @pytest.fixture
    def fresh_backend(
        self, made: list[BelljarWorkspaceBackend], host: Any
    ) -> Callable[[], BelljarWorkspaceBackend]:
        def make() -> BelljarWorkspaceBackend:
            made.append(BelljarWorkspaceBackend(host=host, lease=60))
            return made[-1]

        return make

    @pytest.fixture
    def attach_backend(
        self, made: list[BelljarWorkspaceBackend], host: Any
    ) -> Callable[[WorkspaceRef], BelljarWorkspaceBackend]:
        def attach(ref: WorkspaceRef) -> BelljarWorkspaceBackend:
            made.append(adapter.attach(ref, host=host))
            return made[-1]

        return attach

    @pytest.fixture
    def destroy_environment(self) -> object:
        return adapter.destroy
