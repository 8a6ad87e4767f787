"""Values are read as people write them."""

from __future__ import annotations

import pytest

from belljar.surfaces.cli.parser import parse


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2d", 172800)])
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse(["run", "--timeout", text, "ls"]).timeout == seconds
