"""Blocking calls enter the event loop. From the loop's own callbacks they are refused."""

from pathlib import Path
from typing import Any

import pytest

from belljar import sync
from belljar.errors import UsageError


def test_a_callback_that_calls_the_session_gets_a_usage_error(workspace: Path) -> None:
    with sync.Session(workspace) as box:

        def again(_: Any) -> None:
            box.run("true")

        with pytest.raises(UsageError, match="own callbacks"):
            box.run("echo hi", on_output=again)
        assert box.run("echo on").stdout == "on\n"
