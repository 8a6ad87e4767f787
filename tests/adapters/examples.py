"""Runs the example in an adapter's docstring: its indented lines, which may contain `await`."""

from __future__ import annotations

import ast
import inspect
import re
from textwrap import dedent
from types import ModuleType
from typing import Any

import pytest


def needs(module: str) -> Any:
    """The framework's module. Where it is not installed, the tests of its adapter are listed as not run."""
    return pytest.importorskip(
        module,
        reason=f"needs {module}: `make adapters-test` has an environment with it",
    )


def of(docstring: str) -> str:
    """Its indented lines."""
    found = re.search(r"(?m)(?:^    .*\n|^\n)+", f"{docstring}\n")
    assert found is not None, "the docstring has no example"
    return dedent(found[0]).strip("\n") + "\n"


async def run(module: ModuleType, **given: Any) -> dict[str, Any]:
    """The names that the example of a module has after it ran."""
    code = compile(
        of(module.__doc__ or ""),
        module.__name__,
        "exec",
        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
    )
    names = dict(given)
    running = eval(code, names)
    if inspect.isawaitable(running):
        await running
    return names
