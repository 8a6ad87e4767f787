"""`belljar doctor`, `prune`, and the parts of the console they share."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli.main import main


def test_doctor_reports_every_check(
    base_image: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["doctor", "--json"]) in (0, 1)
    checks = json.loads(capsys.readouterr().out)
    assert {"engine", "seccomp", "a real sandbox"} <= {
        check["name"] for check in checks
    }
    assert all(check["ok"] or check["fix"] for check in checks)


def test_doctor_says_what_to_do_where_no_engine_answers() -> None:
    answer = belljar("doctor", env={"DOCKER_HOST": "unix:///does/not/exist.sock"})
    assert answer.status == 1
    assert "FAIL  engine" in answer.stdout
    assert "→" in answer.stdout


def test_prune_lists_caches_and_removes_them_when_asked(
    base_image: str, tmp_path: Path, workspace: Path
) -> None:
    env = {"BELLJAR_STATE": str(tmp_path / "state")}
    assert (
        belljar(
            "run", "--cache", "pip", "echo x > ~/.cache/pip/x", cwd=workspace, env=env
        ).status
        == 0
    )
    assert "cache pip of user" in belljar("prune", env=env).stderr
    removed = belljar("prune", "--caches", "--json", env=env).json["caches_removed"]
    assert [each.partition(" of")[0] for each in removed] == ["cache pip"]
    assert belljar("prune", env=env).stderr == ""


def test_prune_leaves_the_living_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["removed"], list)


def test_a_preset_is_explained_host_by_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gitconfig").write_text(
        '[url "https://git.example/"]\n\tinsteadOf = https://other.example/\n'
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    answer = belljar("network", "explain", "git", "--json")
    assert answer.status == 0, answer.stderr
    assert all({"preset", "host", "why"} == each.keys() for each in answer.json)


def test_an_unknown_preset_is_one_line_of_error() -> None:
    answer = belljar("network", "explain", "pyhton")
    assert answer.status == 2
    assert "python" in answer.complaint
