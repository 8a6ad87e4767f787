"""Sandboxes that wait for all hosts of an engine; on a cluster: tests/kubernetes/warm.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar.errors import Unsupported
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox.keep_waiting import keep_waiting


async def test_an_engine_whose_sandboxes_no_other_host_can_take_is_refused(
    workspace: Path, tmp_path: Path
) -> None:
    host = Host(state=tmp_path / "state")
    with pytest.raises(Unsupported, match="no sandboxes that hosts share"):
        await keep_waiting(SandboxOptions(str(workspace)), 1, host, print)
