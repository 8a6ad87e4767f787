"""Version and general information about Belljar."""

from __future__ import annotations

import pytest
from tests.surfaces.cli.test_parser import COMMANDS

from belljar import __version__
from belljar.surfaces.cli.main import main


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"belljar {__version__}\n"


def test_the_manual_page_is_valid(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["man"]) == 0
    page = capsys.readouterr().out
    assert page.startswith(".TH BELLJAR 1")
    assert all(f'.SS "belljar {name}' in page for name in COMMANDS)
    assert r"\fB\-\-workspace\fR \fIDIR\fR" in page
