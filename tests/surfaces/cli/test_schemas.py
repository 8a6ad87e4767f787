"""Everything that --json prints has a published schema."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, validate
from tests.surfaces.invoking import belljar

from belljar.surfaces.cli.main import main
from belljar.surfaces.cli.parser import build
from belljar.surfaces.cli.schemas import SCHEMAS


def leaves(
    parser: argparse.ArgumentParser, words: tuple[str, ...] = ()
) -> Iterator[list[str]]:
    """Every command, with the words that call it."""
    found = next(
        (
            each
            for each in parser._actions
            if isinstance(each, argparse._SubParsersAction)
        ),
        None,
    )
    if found is None:
        yield list(words)
        return
    for name, inner in found.choices.items():
        yield from leaves(inner, (*words, name))


@pytest.mark.parametrize(
    "args",
    [
        ["run", "--json", "--bogus", "ls"],
        ["run", "--json"],
        ["check", "--json", "--policy", "nonsense", "ls"],
    ],
)
def test_a_usage_error_is_a_document_too(args: list[str]) -> None:
    answer = belljar(*args)
    assert answer.status == 2
    validate(answer.json, SCHEMAS["error"])


def test_json_output_matches_the_schemas(workspace: Path) -> None:
    here = ("--workspace", workspace)
    validate(belljar("run", "--json", *here, "echo hi").json, SCHEMAS["run"])
    validate(belljar("run", "--json", *here, "rm -rf /").json, SCHEMAS["error"])
    validate(belljar("check", "--json", "sudo ls").json, SCHEMAS["check"])
    validate(belljar("config", "--json").json, SCHEMAS["config"])
    for args in (["help"], ["help", "run"], ["completion", "fish"], ["man"]):
        validate(belljar(*args, "--json").json, SCHEMAS["text"])
    validate(belljar("version", "--json").json, SCHEMAS["version"])
    validate(belljar("images", "list", "--json").json, SCHEMAS["images"])
    started = belljar("session", "start", "--json", *here).json
    try:
        validate(started, SCHEMAS["session-start"])
        id = started["session"]
        validate(belljar("session", "list", "--json").json, SCHEMAS["session-list"])
        validate(belljar("stats", "--json").json, SCHEMAS["stats"])
        shell = belljar("start", "--session", id, "--json", "echo hi").json
        validate(shell, SCHEMAS["shell"])
        validate(belljar("wait", "--json", shell["id"]).json, SCHEMAS["shell"])
        validate(belljar("shells", "--json").json, SCHEMAS["shells"])
        validate(belljar("logs", "--json", shell["id"]).json, SCHEMAS["logs"])
        validate(belljar("kill", "--json", shell["id"]).json, SCHEMAS["kill"])
    finally:
        validate(
            belljar("session", "stop", "--json", started["session"]).json,
            SCHEMAS["session-stop"],
        )


WITHOUT_AN_ANSWER = {"shell", "mcp", "attach", "serve"}
"""Interactive commands, which end when the user leaves. They can only report errors."""


@pytest.mark.parametrize("words", list(leaves(build())), ids=" ".join)
def test_every_command_answers_a_mistake_as_json_and_has_a_schema(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--json", "--bogus"]) == 2
    validate(json.loads(capsys.readouterr().out), SCHEMAS["error"])
    described = [each["description"] for each in SCHEMAS.values()]
    assert words[-1] in WITHOUT_AN_ANSWER or any(
        f"belljar {words[0]}" in text for text in described
    )


def test_json_output_of_staged_and_file_commands_matches_the_schemas(
    workspace: Path,
) -> None:
    def printed(*args: str | Path) -> object:
        return belljar(*args, "--json", cwd=workspace).json

    id = belljar("session", "start", "--staged", cwd=workspace).stdout.strip()
    try:
        validate(printed("checkpoint", id), SCHEMAS["checkpoint"])
        validate(printed("checkpoint", "--list", id), SCHEMAS["checkpoints"])
        validate(printed("cp", __file__, f"{id}:new.py"), SCHEMAS["cp"])
        validate(printed("changes"), SCHEMAS["changes"])
        validate(printed("diff"), SCHEMAS["diff"])
        validate(printed("diff", "--stat"), SCHEMAS["diff-stat"])
        validate(printed("apply"), SCHEMAS["applied"])
        validate(
            printed("call", "--session", id, "Bash", "command=ls"), SCHEMAS["call"]
        )
        validate(printed("audit", "show", "--session", id), SCHEMAS["audit-show"])
    finally:
        belljar("session", "stop", id)
    validate(printed("prune"), SCHEMAS["prune"])
    validate(printed("tools"), SCHEMAS["tools"])
    validate(printed("schema"), SCHEMAS["schema"])


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_published_and_valid(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["schema", name]) == 0
    Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))
