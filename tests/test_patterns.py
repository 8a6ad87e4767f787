"""Patterns that are compiled at their first use."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path

import pytest

import belljar
from belljar.patterns import _Pattern, is_affordable_glob, lazy_pattern


def test_a_lazy_pattern_does_what_a_compiled_one_does() -> None:
    digits = lazy_pattern(r"(\d+)", re.ASCII)
    assert digits.findall("1 22") == ["1", "22"]
    assert digits.sub("x", "a1b") == "axb"
    assert digits.pattern == r"(\d+)"
    assert lazy_pattern(rb"a+").fullmatch(b"aa")


def test_a_lazy_pattern_is_compiled_at_its_first_use() -> None:
    wrong = lazy_pattern("(")
    with pytest.raises(re.error):
        wrong.search("")


def test_every_pattern_of_the_package_compiles() -> None:
    root = Path(belljar.__file__).parent
    sources = [
        path for path in root.rglob("*.py") if " = lazy_pattern(" in path.read_text()
    ]
    for path in sources:
        name = ".".join(["belljar", *path.relative_to(root).with_suffix("").parts])
        patterns = [
            value
            for value in vars(import_module(name)).values()
            if isinstance(value, _Pattern)
        ]
        assert patterns
        assert all(each.pattern for each in patterns)


@pytest.mark.parametrize(
    ("line", "affordable"),
    [
        ("*.py[cod]", True),
        ("**/*.egg-info*/**", True),
        ("*-*-*.log", True),
        ("!/a/*/*/*/*/x", True),
        ("**/a/**/b", True),
        ("*a*a*a*b", False),
        ("a**b**c", False),
        ("*a*/*a*/*a*/x", False),
        ("**/a/**/a/**/b", False),
    ],
)
def test_a_glob_that_may_take_for_ever_is_known(line: str, affordable: bool) -> None:
    assert is_affordable_glob(line) is affordable
