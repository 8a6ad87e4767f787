"""Fails tests in which Belljar judges a command on the event loop: that may start a parser and take a second.

Import `_judging_stays_off_the_event_loop` into a conftest to check every test of its folder.
"""

import asyncio
import sys
from functools import wraps
from typing import Any

import pytest

from belljar.policy import Policy


@pytest.fixture(autouse=True)
def _judging_stays_off_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    judge = Policy.judge

    @wraps(judge)
    def watched(*args: Any, **options: Any) -> Any:
        frame = sys._getframe(1)
        caller = frame.f_globals.get("__name__", "")
        # These are documented to block: `risk`, and loading a user's own policy.
        plain = frame.f_code.co_name == "risk" or caller == "belljar.policy.examples"
        if caller.startswith("belljar.") and not plain and _on_a_loop():
            raise AssertionError(f"{caller} judges on the event loop")
        return judge(*args, **options)

    monkeypatch.setattr(Policy, "judge", watched)


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
