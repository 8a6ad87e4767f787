"""Expressions over a command's text: none runs away, whatever the text."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from belljar.policy import expressions, policies_directory
from belljar.policy.folding import STRING
from belljar.policy.knowledge import shipped, tables
from belljar.policy.rules import read_rules

LENGTH = 3_000


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ():
        yield from texts(one)


def patterns() -> set[str]:
    """Every expression of the shipped files."""
    whens = [one for entry in shipped().every() for one in entry.when]
    found = {text for when in whens for text in (when.args, when.arg, when.given, when.unless)}
    found |= {entry.unless for entry in shipped().every()} | {
        key for one in tables()["setting"].values() for key in one
    }
    for language in tables()["language"].values():
        found |= {one.replace("{s}", STRING) for key, part in language.items() if key != "also" for one in texts(part)}
    found |= {one for places in tables()["place"].values() for one in places}
    for path in policies_directory().glob("*.toml"):
        found |= {text for rule in read_rules(path).rules for text in (rule.regex, rule.target)}
    return found - {""}


@pytest.mark.parametrize("unit", ["a/", "\n", "a ", "'"])
def test_no_expression_runs_away_on_a_text_that_repeats_itself(unit: str) -> None:
    slow, text = [], unit * (LENGTH // len(unit)) + "!"
    for pattern in patterns():
        began = time.process_time()
        list(expressions.found(pattern, text))
        expressions.fullmatch(pattern, text)
        if time.process_time() - began > 0.5:
            slow.append(pattern)
    assert slow == []
