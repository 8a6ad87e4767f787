"""Version and general information about Belljar."""

from __future__ import annotations

import pytest

from belljar import __version__
from belljar.surfaces.cli.main import main


def test_the_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"belljar {__version__}\n"
