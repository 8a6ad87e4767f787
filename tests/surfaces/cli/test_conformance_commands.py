"""`belljar conformance`"""

from __future__ import annotations

import pytest

from belljar.surfaces.cli import conformance_commands
from belljar.surfaces.cli.main import main


def test_it_needs_a_key(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("BELLJAR_KEY", raising=False)
    assert main(["conformance", "http://127.0.0.1:9"]) == 2
    assert "--key" in capsys.readouterr().err


def test_a_server_that_does_not_answer_is_one_clear_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["conformance", "http://127.0.0.1:9", "--key", "bj_x"]) == 2
    assert "does not answer" in capsys.readouterr().err


def test_a_group_that_is_not_there_is_named_with_those_that_are(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert (
        main(
            ["conformance", "http://127.0.0.1:9", "--key", "bj_x", "--only", "nonsense"]
        )
        == 2
    )
    told = capsys.readouterr().err
    assert all(group in told for group in conformance_commands.groups())
