"""Scoring files of commands with expected decisions."""

from pathlib import Path

import pytest

from belljar.errors import PolicyError
from belljar.policy import Policy
from belljar.surfaces.cli.policy_score import score_files

POLICY = Policy.load("default")


def test_a_score_counts_and_names_the_wrong_verdicts(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text(
        '{"command": "ls", "expect": "allow"}\n\n{"command": ["rm", "-rf", "/"], "expect": "deny"}\n'
        '{"command": "ls", "expect": "deny"}\n'
    )
    score = score_files([path], POLICY)
    assert (score.total, len(score.wrong)) == (3, 1)
    assert score.as_dict()["counts"] == {
        "allow->allow": 1,
        "deny->allow": 1,
        "deny->deny": 1,
    }
    assert f"{path}:4: expected deny, got allow" in score.table()


@pytest.mark.parametrize(
    "line",
    ["nonsense", "[]", '{"command": "ls"}', '{"command": "ls", "expect": "maybe"}'],
)
def test_a_bad_line_is_named(tmp_path: Path, line: str) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(PolicyError, match=r"bad\.jsonl:1"):
        score_files([path], POLICY)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(PolicyError, match="cannot be read"):
        score_files(["/nowhere.jsonl"], POLICY)
