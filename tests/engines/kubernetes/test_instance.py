"""One state directory is one instance."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engines.kubernetes.api_server import FakeServer

from belljar.engines.kubernetes.engine import KubernetesEngine
from belljar.engines.kubernetes.instance import Instance
from belljar.errors import EngineError


def test_its_id_is_written_down_once(engine: KubernetesEngine, tmp_path: Path) -> None:
    one, two = (
        Instance(engine.api, tmp_path / "a"),
        Instance(engine.api, tmp_path / "b"),
    )
    assert Instance(engine.api, tmp_path / "a").id == one.id != two.id


def test_its_lease_is_made_then_renewed(
    server: FakeServer, engine: KubernetesEngine
) -> None:
    engine.instance.renew()
    first = server.leases[engine.instance.lease]["spec"]["renewTime"]
    engine.instance.renew()
    assert server.leases[engine.instance.lease]["spec"]["renewTime"] > first
    assert (server.count("POST", "leases"), server.count("PUT", "leases")) == (1, 1)


def test_a_lease_that_may_not_be_renewed_is_an_error(
    server: FakeServer, engine: KubernetesEngine
) -> None:
    server.failures.append(("GET", "leases", 422, "no"))
    with pytest.raises(EngineError, match="renewing the instance's lease"):
        engine.instance.renew()
