"""A command or option of Docker gets an answer that names Belljar's own."""

from __future__ import annotations

import re

import pytest
from tests.surfaces.cli.test_schemas import leaves

from belljar.errors import UsageError
from belljar.surfaces.cli.habits import COMMANDS, OPTIONS
from belljar.surfaces.cli.parser import build, parse


@pytest.mark.parametrize("word", COMMANDS)
def test_a_command_of_dockers_is_answered_with_ours(word: str) -> None:
    with pytest.raises(
        UsageError, match=re.escape(f"there is no command {word!r}; {COMMANDS[word]}")
    ):
        parse([word, "x"])


@pytest.mark.parametrize("word", OPTIONS)
def test_an_option_of_dockers_is_answered_with_what_to_do(word: str) -> None:
    with pytest.raises(UsageError, match=re.escape(OPTIONS[word])):
        parse(["run", word, "1:2", "ls"])


def test_advised_commands_exist_and_hide_none_of_ours() -> None:
    known = {" ".join(words) for words in leaves(build())}
    advised = [
        each
        for text in COMMANDS.values()
        for each in re.findall(r"`belljar ([a-z]+(?: [a-z]+)?)", text)
    ]
    assert {
        words
        for words in advised
        if words not in known and words.split()[0] not in known
    } == set()
    assert not COMMANDS.keys() & {words.split()[0] for words in known}


def test_docker_s_volume_option_is_answered_with_mount() -> None:
    with pytest.raises(UsageError, match="write --mount /srv/data:/data"):
        parse(["run", "-v", "/srv/data:/data", "ls"])
    assert parse(["run", "-v", "echo a:/b"]).command == "echo a:/b"
