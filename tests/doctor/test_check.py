"""One line of the report."""

from __future__ import annotations

from belljar.doctor import Check


def test_a_check_can_be_printed_as_json() -> None:
    assert Check("a", True, "b").as_dict() == {"name": "a", "ok": True, "detail": "b", "fix": ""}
