"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import asdict

from belljar.doctor import Check


def test_a_check_can_be_printed_as_json() -> None:
    assert asdict(Check("a", True, "b")) == {
        "name": "a",
        "ok": True,
        "detail": "b",
        "fix": "",
    }
