"""`belljar network explain`."""

from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar


def test_a_preset_is_explained_host_by_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gitconfig").write_text('[url "https://git.example/"]\n\tinsteadOf = https://other.example/\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    answer = belljar("network", "explain", "git", "--json")
    assert answer.status == 0, answer.stderr
    assert all({"preset", "host", "why"} == each.keys() for each in answer.json)


def test_an_unknown_preset_is_one_line_of_error() -> None:
    answer = belljar("network", "explain", "pyhton")
    assert answer.status == 2
    assert "python" in answer.complaint
