"""A long build reports its progress."""

from __future__ import annotations

import threading

import pytest

from belljar.images.progress import repeating


def test_a_long_build_stage_is_reported_repeatedly_until_the_end() -> None:
    told: list[tuple[float | None, str]] = []
    again = threading.Event()

    def watch(fraction: float | None, text: str) -> None:
        told.append((fraction, text))
        if len(told) > 2:
            again.set()

    def build() -> None:
        with repeating(watch, 0.001) as report:
            report(0.5, "installing")
            assert again.wait(60)
            raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        build()
    assert told[0] == (0.5, "installing")
    assert told[1] == (0.5, "installing (0 s)")
    assert "belljar-progress" not in {thread.name for thread in threading.enumerate()}
