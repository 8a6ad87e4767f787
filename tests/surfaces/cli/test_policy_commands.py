"""`belljar policy` list, show, explain and test, as a user sees them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar

from belljar.policy import BUILT_IN
from belljar.surfaces.cli.main import main

TOOL = """
[program.deployctl.verbs]
"destroy" = { effect = "service.delete", examples = { "deployctl destroy x" = "service.delete" } }
"""


def test_the_shipped_policies_are_listed_with_what_they_are_for() -> None:
    listed = belljar("policy", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()[1:]] == list(BUILT_IN)
    assert "Agents at work" in listed
    assert [one["extends"] for one in belljar("policy", "list", "--json").json][:3] == [
        [],
        ["default"],
        ["default"],
    ]


def test_a_policy_is_shown_with_what_each_of_its_rules_decides(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    rule = '[[rule]]\nid = "no.make"\nprogram = "make"\ndecision = "deny"\nreason = "Use just."\n'
    path.write_text(
        f'[policy]\nname = "mine"\ndescription = "Ours."\nextends = "default"\n{rule}'
    )
    shown = belljar("policy", "show", str(path)).stdout
    assert shown.startswith("mine@")
    for told in (
        "Ours.",
        "asks from risk critical on",
        f"{path} extends default",
        "no.make",
        "Use just.",
    ):
        assert told in shown
    rules = {
        one["id"]: one["decision"]
        for one in belljar("policy", "show", "default", "--json").json["rules"]
    }
    assert (rules["delete.root"], rules["data.drop"], rules["vcs.discard"]) == (
        "deny",
        "ask (critical)",
        "allow (high)",
    )
    strict = {
        one["id"]: one["decision"]
        for one in belljar("policy", "show", "ci", "--json").json["rules"]
    }
    assert strict["data.drop"] == "deny"
    assert (
        "never asks because of a risk" in belljar("policy", "show", "permissive").stdout
    )
    assert "no policy 'nope'" in belljar("policy", "show", "nope").complaint


def test_a_policys_hosts_and_knowledge_are_shown(tmp_path: Path) -> None:
    (tmp_path / "deployctl.toml").write_text(TOOL)
    path = tmp_path / "mine.toml"
    network = '[network]\nallow = ["a.example.com"]\nceiling = ["*.example.com"]\n'
    path.write_text(
        f'[policy]\nname = "mine"\nextends = "default"\nknowledge = ["deployctl.toml"]\n{network}'
    )
    shown = belljar("policy", "show", str(path)).stdout
    for told in (
        "network: allowed a.example.com",
        "no host beyond *.example.com",
        str(tmp_path / "deployctl.toml"),
    ):
        assert told in shown
    document = belljar("policy", "show", str(path), "--json").json
    assert document["network"] == {
        "allow": ["a.example.com"],
        "ceiling": ["*.example.com"],
    }
    assert document["knowledge"] == [str(tmp_path / "deployctl.toml")]


def test_an_explanation_shows_the_commands_with_their_entries_the_effects_and_the_rules() -> (
    None
):
    answer = belljar("policy", "explain", "bash -c 'git push --force'")
    assert answer.status == 3
    for told in (
        "git push in knowledge/vcs.toml",
        "vcs.rewrite",
        "rule vcs.rewrite: ask",
    ):
        assert told in answer.stdout
    assert belljar("policy", "explain", "--json", "rm -rf /").json["commands"]


def test_a_knowledge_file_is_tested_by_its_schema_and_its_examples(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deployctl.toml"
    path.write_text(TOOL)
    assert belljar("policy", "test", str(path)).stdout == f"{path}: its examples hold\n"
    path.write_text(TOOL.replace("service.delete", "data.drop", 1))
    assert "deployctl destroy" in belljar("policy", "test", str(path)).complaint
    path.write_text("[program.x]\neffekt = 'data.drop'\n")
    assert "unknown key 'effekt'" in belljar("policy", "test", str(path)).complaint


def test_check_returns_its_verdict_as_exit_status() -> None:
    assert [main(["check", text]) for text in ("ls", "sudo ls", "rm -rf /")] == [
        0,
        3,
        126,
    ]


def test_check_gives_the_verdict_as_a_document() -> None:
    answer = belljar("check", "--json", "rm -rf /")
    assert answer.status == 126
    assert answer.json["decision"] == "deny"
    assert {"decision", "risk", "reason", "rules", "canonical"} <= set(answer.json)
    assert {"id", "decision", "risk", "reason"} == set(answer.json["rules"][0])


def test_check_prints_a_readable_explanation(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["check", "ls"]) == 0
    assert capsys.readouterr().out.startswith("allow (low)")
    assert main(["check", "--explain", "--", "rm", "-rf", "/"]) == 126
    assert "effects:" in capsys.readouterr().out


def test_check_masks_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    main(["check", "--json", "API_TOKEN=hunter2 ls"])
    assert "hunter2" not in capsys.readouterr().out


def test_policy_test_counts_unexpected_verdicts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "cases.jsonl"
    cases = [
        {"command": "ls", "expect": "allow"},
        {"command": "rm -rf /", "expect": "deny"},
    ]
    file.write_text("".join(json.dumps(case) + "\n" for case in cases))
    assert main(["policy", "test", str(file)]) == 0
    assert "2 of 2 as expected" in capsys.readouterr().out
    file.write_text(json.dumps({"command": "ls", "expect": "deny"}))
    assert main(["policy", "test", "--json", str(file)]) == 1
    assert json.loads(capsys.readouterr().out)["wrong"][0]["command"] == "ls"


def test_policy_test_checks_a_policy_s_own_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    shipped = Path(__file__).parents[3] / "policies" / "default.toml"
    assert main(["policy", "test", str(shipped)]) == 0
    assert "its examples hold" in capsys.readouterr().out
