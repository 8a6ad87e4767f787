"""What a stranger's devcontainer.json may ask for."""

from __future__ import annotations

import json
from typing import Any

import pytest

from belljar.errors import UsageError
from belljar.images.devcontainer import PLACES, Devcontainer, parse


def parsed(**document: Any) -> Devcontainer:
    return parse(json.dumps(document), PLACES[0])


def test_comments_and_trailing_commas_are_read_as_editors_do() -> None:
    text = """{
      // a comment, "with quotes"
      "image": "a//b:1", /* and, ] } */
      "containerEnv": {"A": "x, ] // no comment /* nor this */", "B": "\\" ,}",},
      "postCreateCommand": ["echo", "a,]",],
    }"""
    found = parse(text, PLACES[1])
    assert found.image == "a//b:1"
    assert found.env == {"A": "x, ] // no comment /* nor this */", "B": '" ,}'}
    assert found.after_create == ("echo 'a,]'",)
    assert found.ignored == ()


def test_what_would_open_the_sandbox_is_named_and_not_read() -> None:
    found = parsed(
        image="base", mounts=["source=/,target=/host"], runArgs=["--privileged"], privileged=True, features={"x": {}},
        capAdd=["ALL"], initializeCommand="rm -rf ~", workspaceMount="x", remoteUser="root",
    )  # fmt: skip
    assert set(found.ignored) == {
        "mounts", "runArgs", "privileged", "features", "capAdd", "initializeCommand", "workspaceMount", "remoteUser",
    }  # fmt: skip
    assert found.after_create == ()


def test_a_variable_that_asks_for_one_of_the_host_is_not_set() -> None:
    found = parsed(
        image="base",
        containerEnv={
            "KEY": "${localEnv:SECRET}",
            "AT": "${containerWorkspaceFolder}/x",
            "B=C": "1",
        },
    )
    assert found.env == {"AT": "/workspace/x"}
    assert set(found.ignored) == {"containerEnv.KEY", "containerEnv.B=C"}


def test_paths_of_a_build_begin_at_the_file_and_end_in_the_workspace() -> None:
    found = parsed(
        build={
            "dockerfile": "Dockerfile",
            "context": "..",
            "args": {"A": "1"},
            "target": "x",
        }
    )
    assert found.build is not None
    assert (found.build.dockerfile, found.build.context) == (
        ".devcontainer/Dockerfile",
        ".",
    )
    assert found.build.arguments == {"A": "1"}
    assert found.ignored == ("build.target",)
    older = parse('{"dockerFile": "D", "context": "sub"}', PLACES[1]).build
    assert older is not None
    assert (older.dockerfile, older.context) == ("D", "sub")


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("make deps", ("make deps",)),
        (["echo", "two words"], ("echo 'two words'",)),
        ({"a": "one", "b": ["two", "$x"]}, ("one", "two '$x'")),
        (None, ()),
    ],
)
def test_a_command_is_a_text_a_list_or_an_object(
    command: Any, expected: tuple[str, ...]
) -> None:
    assert parsed(postCreateCommand=command).after_create == expected


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", "null", "[" * 100_000, '{"image": 1}', '{"image": "-rm"}', '{"image": "a b"}', '{"image": "a\\u0000"}',
        '{"image": "a", "build": {"dockerfile": "D"}}', '{"build": {}}', '{"build": []}',
        '{"build": {"dockerfile": "../../D"}}',
        '{"build": {"dockerfile": "/etc/D"}}', '{"build": {"dockerfile": "D", "context": "../.."}}',
        '{"build": {"dockerfile": "D", "args": {"A": 1}}}', '{"containerEnv": []}', '{"containerEnv": {"A": "\\u0000"}}',
        '{"postCreateCommand": 1}', '{"postCreateCommand": [[]]}', '{"postCreateCommand": []}', '{"image": "a" /* open',
        "/*" * 200_000, '"' * 200_001, ", " * 200_000,
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_error(text: str) -> None:
    with pytest.raises(UsageError, match=r"devcontainer\.json"):
        parse(text, PLACES[0])


@pytest.mark.parametrize(
    "text",
    [
        '{"postCreateCommand":' + '{"a":' * 900 + '"x"' + "}" * 901,
        '{"postCreateCommand": {"a": {"b": "x"}}}',
        '{"postCreateCommand": "echo \\u0000"}',
        '{"postCreateCommand": ["echo", "\\u0000"]}',
        '{"postCreateCommand": "echo \\ud800"}',
        '{"containerEnv": {"A": "\\udcff"}}',
        '{"build": {"dockerfile": "\\ud800"}}',
        '{"image": "' + "x" * 500_000 + '"}',
        '{"build": {"dockerfile": "../../' + "x" * 500_000 + '"}}',
    ],
    ids=lambda text: text[:40],
)
def test_what_cannot_be_meant_is_one_short_error(text: str) -> None:
    with pytest.raises(UsageError) as error:
        parse(text, PLACES[0])
    assert len(str(error.value)) < 300
