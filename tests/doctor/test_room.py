"""How many sandboxes fit, and what stops them first."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from belljar.doctor import room
from belljar.engines.base import Description

ABOUT = Description("1", idle_bytes=2 << 20)


def test_what_stops_sandboxes_first_is_named_with_its_number() -> None:
    check = room.check(replace(ABOUT, bounds={"keys": 3}), own_ids=True)
    assert check.ok
    assert check.detail.startswith(
        "3 idle ones: then it is out of keys (next would be "
    )


def test_an_engine_whose_sandboxes_take_more_memory_has_room_for_fewer() -> None:
    many = room._bounds(ABOUT, False)["memory (2 MiB each)"]
    few = room._bounds(replace(ABOUT, idle_bytes=64 << 20), False)[
        "memory (64 MiB each)"
    ]
    assert 0 < few < many


def test_user_ids_count_where_each_sandbox_has_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BELLJAR_UIDS", "80000-80001")
    assert "BELLJAR_UIDS" in room.check(ABOUT, own_ids=True).detail
    assert room.check(ABOUT, own_ids=True).detail.startswith("2 idle ones")
    assert "BELLJAR_UIDS" not in room.check(ABOUT, own_ids=False).detail


def test_processes_that_run_already_leave_room_for_fewer() -> None:
    assert room._tasks() >= len(os.listdir("/proc/self/task"))
