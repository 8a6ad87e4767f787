"""Sizes, times and other values, as people usually write them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from belljar.errors import UsageError
from belljar.surfaces.cli.parser import parse


@pytest.mark.parametrize(("text", "seconds"), [("5", 5), ("90s", 90), ("1.5m", 90), ("1h", 3600), ("2d", 172800)])
def test_times_are_read_as_people_write_them(text: str, seconds: float) -> None:
    assert parse(["run", "--timeout", text, "ls"]).timeout == seconds


def test_a_file_of_variables_that_is_a_named_pipe_or_too_large_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="named pipe"):
        parse(["run", "--env-file", str(tmp_path / "pipe"), "ls"])
    (tmp_path / "large").write_text("A=1\n" * (1 << 18) + "B=2\n")
    with pytest.raises(UsageError, match="larger than 1 MiB"):
        parse(["run", "--env-file", str(tmp_path / "large"), "ls"])
