"""Every public name has an example in Python: `python -m pydoc belljar.Session`."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import Any

import pytest
from tests.sync.test_facade import INNER, names

import belljar
from belljar.session.files import Files

CLASSES = [belljar.Session, belljar.Shell, belljar.Pool, Files]
_INNER = {**INNER, "Pool": INNER["Pool"], "Files": set()}


def _is_example(text: str) -> bool:
    """Python that calls or reads something. It may contain `await`."""
    try:
        tree = ast.parse(
            "async def example():\n" + textwrap.indent(textwrap.dedent(text), "    ")
        )
    except SyntaxError:
        return False
    return any(
        isinstance(node, ast.Call | ast.Attribute | ast.Subscript)
        for node in ast.walk(tree)
    )


def examples(subject: Any) -> list[str]:
    text = inspect.getdoc(subject) or ""
    pieces = [*re.findall(r"`([^`\n]+)`", text), *text.split("\n\n")[1:]]
    return [each for each in pieces if _is_example(each)]


@pytest.mark.parametrize(
    "name", [name for name in belljar.__all__ if name not in ("errors", "sync")]
)
def test_a_public_name_has_an_example(name: str) -> None:
    assert examples(getattr(belljar, name)), (
        f"belljar.{name}: say how it is used, in Python"
    )


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_method_has_an_example(kind: type) -> None:
    methods = [
        name
        for name in names(kind) - _INNER[kind.__name__]
        if callable(getattr(kind, name))
    ]
    assert not [name for name in sorted(methods) if not examples(getattr(kind, name))]
