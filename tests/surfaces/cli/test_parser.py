"""The command line accepts what people usually write."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import pytest
from tests.surfaces.invoking import belljar

from belljar.errors import UsageError
from belljar.surfaces.cli.main import main
from belljar.surfaces.cli.parser import GROUPS, build, parse

COMMANDS = [name for group in GROUPS for name in group.names]


def test_help_names_every_command_and_gives_examples() -> None:
    answer = belljar("--help")
    assert answer.status == 0
    assert all(f"    {name} " in answer.stdout for name in COMMANDS)
    assert all(f"\n{group.title}:\n" in answer.stdout for group in GROUPS)
    assert "belljar run 'python3 -V" in answer.stdout
    for same in ([], ["help"]):
        assert belljar(*same).stdout == answer.stdout


def test_help_for_one_command_describes_that_command(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["help", "session", "start"]) == 0
    assert capsys.readouterr().out.startswith("usage: belljar session start")


@pytest.mark.parametrize(
    ("args", "meant"),
    [
        (["rnu", "ls"], "did you mean 'run'? See `belljar --help`"),
        (["session", "lst"], "did you mean 'list'?"),
        (["run", "--memroy", "1g", "ls"], "did you mean '--memory'?"),
        (["run", "--network", "none ", "ls"], "did you mean 'none'?"),
        (["schema", "runs"], "did you mean 'run'?"),
        (
            ["run", "--nosuch", "ls"],
            "unrecognized arguments: --nosuch; see `belljar run --help`",
        ),
        (
            ["--json", "version"],
            "--json goes after the command: `belljar version --json`",
        ),
        (["shell", "--json"], "unrecognized arguments: --json; see"),
        (
            ["run", "--cache", "nope", "true"],
            "no program's cache is called 'nope' (pip, uv, ",
        ),
        (["images", "remove", "nosuch:1", "--engine", "oci"], "nosuch:1"),
    ],
)
def test_a_typo_gets_a_suggestion(
    args: list[str], meant: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    assert meant in capfd.readouterr().err


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    assert capsys.readouterr().out.startswith(f"usage: belljar {command}")


def test_every_option_and_argument_is_explained() -> None:
    unexplained = [
        (parser.prog, action.dest)
        for parser in _leaves(build())
        for action in parser._actions
        if not action.help
    ]
    assert unexplained == []


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    families = [
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    ]
    yield from (
        leaf
        for family in families
        for each in family.choices.values()
        for leaf in _leaves(each)
    )
    if not families:
        yield parser


def test_paths_may_follow_two_dashes() -> None:
    assert parse(["diff", "--", "-odd"]).paths == ["-odd"]
    assert parse(["apply", "src", "--", "-odd"]).paths == ["src", "-odd"]
    assert parse(["discard"]).paths == []
    with pytest.raises(UsageError, match="nothing after --"):
        parse(["ps", "--", "x"])


def test_text_and_vectors_are_distinguished() -> None:
    assert parse(["run", "ls | wc"]).command == "ls | wc"
    assert parse(["run", "--", "ls"]).command == ["ls"]
    assert parse(["run", "--json", "--", "ls", "--json"]).command == ["ls", "--json"]
    assert parse(["run", "ls", "-la"]).command == ["ls", "-la"]
    assert parse(["run", "sh", "-c", "x", "--", "y"]).command == [
        "sh",
        "-c",
        "x",
        "--",
        "y",
    ]


def test_the_parser_has_no_abbreviations() -> None:
    with pytest.raises(Exception, match="--work"):
        build().parse_args(["run", "--work", ".", "ls"])


def test_help_is_wrapped_between_words_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    words = set(
        build("run").format_help().split() + belljar("run", "--help").stdout.split()
    )
    for columns in (60, 71, 80, 100):
        shown = belljar(
            "run", "--help", env={"COLUMNS": str(columns)}
        ).stdout.partition("options:")[2]
        assert not [word for word in shown.split() if word not in words], columns
