"""The API's errors are ours, and what passes is tried again."""

from __future__ import annotations

import pytest
from tests.engines.kubernetes.api_server import FakeServer

from belljar.engines.kubernetes.api import Answered
from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.spec import SandboxSpec
from belljar.errors import EngineRefused


def test_a_patch_whose_test_fails_changes_nothing_and_is_not_repeated(
    server: FakeServer, engine: KubernetesEngine, spec: SandboxSpec
) -> None:
    engine.create(spec, "belljar-1")
    labels = server.pods["belljar-1"]["metadata"]["labels"]
    stale = [{"op": "test", "path": "/metadata/resourceVersion", "value": "0"},
             {"op": "replace", "path": "/metadata/labels/belljar.org~1state", "value": "mine"}]  # fmt: skip
    with pytest.raises(Answered) as refused:
        engine.api.patch("belljar-1", stale)
    assert refused.value.status == 422
    assert labels == server.pods["belljar-1"]["metadata"]["labels"]
    assert server.count("PATCH") == 1


def test_credentials_go_with_every_request_and_a_wrong_one_is_a_refusal(
    server: FakeServer, engine: KubernetesEngine
) -> None:
    assert (
        engine.api.headers() == {"authorization": "Bearer t0k"}
        or "Bearer t0k" in engine.api.headers().values()
    )
    server.failures.append(("GET", "/pods", 401, "Unauthorized"))
    with pytest.raises(EngineRefused, match="Unauthorized"):
        engine.list()


def test_the_namespace_is_the_settings_else_the_context_s(
    engine: KubernetesEngine,
) -> None:
    assert engine.api.namespace == "team"
    assert engine.api.config.namespace == "ours"
