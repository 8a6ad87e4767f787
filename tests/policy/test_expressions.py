"""Regular expressions over a command's text: none takes very long, whatever the text."""

import ast
import contextlib
import functools
import importlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from belljar import policy
from belljar.policy import Policy, expressions, policies_directory
from belljar.policy.folding import STRING
from belljar.policy.knowledge import shipped
from belljar.policy.rules import read_rules
from belljar.policy.toml_files import tables

LENGTH = 3_000


def texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for one in (
        value.values()
        if isinstance(value, dict)
        else value
        if isinstance(value, list | tuple)
        else ()
    ):
        yield from texts(one)


def patterns() -> set[str]:
    """Every expression in the shipped files."""
    whens = [one for entry in shipped().every() for one in entry.when]
    found = {
        text
        for when in whens
        for text in (when.args, when.arg, when.given, when.unless)
    }
    found |= {entry.unless for entry in shipped().every()} | {
        key for one in tables()["setting"].values() for key in one
    }
    for language in tables()["language"].values():
        found |= {
            one.replace("{s}", STRING)
            for key, part in language.items()
            if key != "also"
            for one in texts(part)
        }
    found |= {one for places in tables()["place"].values() for one in places}
    for path in policies_directory().glob("*.toml"):
        found |= {
            text
            for rule in read_rules(path).rules
            for text in (rule.regex, rule.target)
        }
    return found - {""}


@pytest.mark.parametrize("unit", ["a/", "\n", "a ", "'", "a-", "a:", "rm "])
def test_no_regular_expression_backtracks_without_end(unit: str) -> None:
    slow, text = [], unit * (LENGTH // len(unit)) + "!"
    for pattern in patterns():
        began = time.process_time()
        list(expressions.find_all(pattern, text))
        expressions.fullmatch(pattern, text)
        if time.process_time() - began > 0.5:
            slow.append(pattern)
    assert slow == []


METHODS = "match|search|fullmatch|findall|finditer|sub|split"
SOURCES = sorted(Path(policy.__file__).parent.glob("*.py"))


@functools.cache
def used_patterns() -> set[tuple[str, str]]:
    """The expressions that the policy runs with Python's `re`, which has no timeout, and the method that it calls.

    Expressions built at run time contain escaped text, or are bounded by `quoting.is_affordable`."""
    found, everything = set(), "".join(path.read_text() for path in SOURCES)
    for path in SOURCES:
        names = dict(vars(importlib.import_module(f"belljar.policy.{path.stem}")))
        for node in ast.walk(ast.parse(path.read_text())):
            call = node.value if isinstance(node, ast.Assign) else node
            if not isinstance(call, ast.Call) or not call.args:
                continue
            called, name = (
                ast.unparse(call.func),
                ast.unparse(node.targets[0]) if isinstance(node, ast.Assign) else "",
            )
            methods = re.findall(rf"^re\.({METHODS})$", called)
            if called in ("lazy_pattern", "re.compile") and name:
                methods = re.findall(
                    rf"\b{name}\.({METHODS})\(",
                    path.read_text() if name[0] == "_" else everything,
                )
            with contextlib.suppress(NameError):
                found |= {
                    (eval(ast.unparse(call.args[0]), names), method)
                    for method in methods
                }
    return found


def test_pythons_own_expressions_are_found() -> None:
    assert len(used_patterns()) > 150


@pytest.mark.parametrize(
    "unit", ["a", " ", "1", "'", "$(", "-a ", "a/", "*", "\n", ".", "a="]
)
def test_pythons_own_expressions_take_a_time_that_grows_with_the_text(
    unit: str,
) -> None:
    slow, text = [], unit * (16_000 // len(unit)) + "!"
    for pattern, method in (one for one in used_patterns() if isinstance(one[0], str)):
        run = getattr(re.compile(pattern, re.S), method.replace("finditer", "findall"))
        began = time.process_time()
        run("", text) if method == "sub" else run(text)
        if time.process_time() - began > 0.5:
            slow.append(pattern)
    assert slow == []


def test_no_verdict_depends_on_the_clock_but_for_the_two_last_bounds() -> None:
    """A verdict is the same on fast and slow machines, because its limits count steps and characters."""
    clock = re.compile(r"\btime\.(monotonic|time|perf_counter|process_time)|timeout=")
    assert [path.name for path in SOURCES if clock.search(path.read_text())] == [
        "expressions.py",
        "parser.py",
    ]


@pytest.mark.parametrize(
    "text", ["1" * 60_000, "x='a[" + "$(" * 40_000 + "'", "python3." + "1." * 30_000]
)
def test_a_long_name_is_judged_quickly(text: str) -> None:
    began = time.process_time()
    Policy.load("default").judge(text)
    assert time.process_time() - began < 2
