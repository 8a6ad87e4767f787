"""Every promise in SECURITY.md names its test."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\|(?P<attack>[^|]+)\|(?P<wall>[^|]+)\|(?P<test>[^|]+)\|$")
TEST = re.compile(r"`(tests/[\w/]+\.py)::(test_\w+)`")


def rows() -> list[tuple[str, str]]:
    """Each row's attack, and the cell that names its test."""
    found = [
        ROW.match(line)
        for line in (ROOT / "SECURITY.md").read_text().splitlines()
        if line.startswith("|")
    ]
    cells = [
        (match["attack"].strip(), match["test"].strip()) for match in found if match
    ]
    assert len(cells) == len(found), "every row has three cells"
    return [(attack, test) for attack, test in cells if test not in ("test", "---")]


@pytest.mark.parametrize(("attack", "test"), rows())
def test_each_row_names_a_test_that_exists(attack: str, test: str) -> None:
    match = TEST.fullmatch(test)
    assert match, f"{attack}: no test named"
    module = ast.parse((ROOT / match[1]).read_text())
    functions = {
        node.name
        for node in ast.walk(module)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert match[2] in functions


def test_every_kind_of_attacker_has_its_table() -> None:
    assert len(rows()) > 35
