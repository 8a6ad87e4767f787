"""What speaks with a client knows the door only by its gate."""

from __future__ import annotations

import inspect

import pytest

from belljar.network.allow import Allow
from belljar.network.door import Door
from belljar.network.gate import Gate, Target
from belljar.network.visit import Refused


def _is_a_gate(door: Door) -> Gate:
    """The type checker compares every signature."""
    return door


def test_a_door_has_all_that_its_gate_promises() -> None:
    promised = {
        name
        for name, member in vars(Gate).items()
        if inspect.isfunction(member) and name[0] != "_"
    }
    assert promised <= set(dir(Door))


async def test_an_allowed_address_passes_as_a_target_that_no_name_binds() -> None:
    gate = _is_a_gate(Door(Allow("192.0.2.1:8080")))
    target = await gate.admit("192.0.2.1", 8080)
    assert isinstance(target, Target)
    assert (target.host, target.port, target.by_name) == ("192.0.2.1", 8080, False)
    with pytest.raises(Refused):
        await gate.admit("192.0.2.2", 8080)
