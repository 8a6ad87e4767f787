"""The examples in the docstrings of all public names type-check."""

import ast
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent, indent
from types import ModuleType

from tests.test_typing import strictly

import belljar
from belljar import sync

HEAD = """
import signal
from typing import Any
import belljar
from belljar import sync
from belljar.session.watched_run import Run
from belljar.staged.area import Point
from belljar.staged.review import Shown
from belljar.tools.base import Tool
"""
GIVEN = (
    "box: {0}.Session, shell: {0}.Shell, pool: {0}.Pool, tools: {0}.ToolRegistry, events: {1}, event: Any, "
    "command: str, result: belljar.Result, point: Point, seen: dict[belljar.Change, Shown], MyTool: type[Tool]"
)


def documented(module: ModuleType) -> Iterator[object]:
    for name in module.__all__:
        found = getattr(module, name)
        yield found
        if inspect.isclass(found):
            yield from (
                getattr(found, each) for each in dir(found) if not each.startswith("_")
            )


def examples(module: ModuleType) -> set[str]:
    texts = [
        inspect.getdoc(each) or ""
        for each in documented(module)
        if inspect.isroutine(each) or inspect.isclass(each)
    ]
    parts = [
        part
        for text in texts
        for part in (
            *map(dedent, text.split("\n\n")[1:]),
            *re.findall(r"`([^`]+)`", text),
        )
    ]
    return {part for part in parts if re.search(r"\w\(", part) and is_code(part)}


def is_code(text: str) -> bool:
    try:
        ast.parse(f"async def example():\n{indent(text, '    ')}")
    except SyntaxError:
        return False
    return True


def test_every_example_type_checks(tmp_path: Path) -> None:
    program = HEAD
    for module, run in ((belljar, "Run"), (sync, "sync.Run")):
        given = GIVEN.format(module.__name__.removeprefix("belljar."), run)
        for example in sorted(examples(module)):
            program += f"async def example_{program.count('async def')}({given}) -> None:\n{indent(example, '    ')}\n"
    assert program.count("async def") > 100
    checked = strictly({tmp_path / "program.py": program})
    assert checked.returncode == 0, checked.stdout
