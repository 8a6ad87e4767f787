"""What engines can do is asked of their capabilities, never read off their names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from belljar.engines.capabilities import Capabilities
from belljar.engines.oci.engine import HERE, OWN_KERNEL

SOURCE = Path(__file__).resolve().parents[2] / "src" / "belljar"
BY_NAME = re.compile(r"""\bname\s*(==|!=|in)\s*\(?["'](docker|podman|oci|kubernetes)""")


def test_nothing_above_the_engines_compares_an_engine_s_name() -> None:
    layers = [path for path in SOURCE.rglob("*.py") if "engines" not in path.parts]
    assert [str(path) for path in layers if BY_NAME.search(path.read_text())] == []


def test_an_engine_of_this_machine_has_every_capability_by_default() -> None:
    here = Capabilities()
    assert here.binds
    assert here.workspace
    assert here.sees_processes
    assert here.removes_itself
    assert here.link == "socket"


@pytest.mark.parametrize("can", [HERE, OWN_KERNEL])
def test_the_engine_oci_has_no_network_and_leaves_its_remains(
    can: Capabilities,
) -> None:
    assert can.networks == {"none"}
    assert not can.removes_itself


def test_a_kernel_of_its_own_hides_processes_and_takes_none_of_our_mounts() -> None:
    assert not OWN_KERNEL.sees_processes
    assert not OWN_KERNEL.binds
    assert not OWN_KERNEL.user_namespaces
    assert OWN_KERNEL.link == "exec"
