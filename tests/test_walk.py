"""A command really takes the way that the walk in `src/belljar/README.md` describes."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import FrameType

import pytest

import belljar

ROOT = Path(belljar.__file__).parent
README = (ROOT / "README.md").read_text()
STEPS = re.findall(r"^\d+\. (.*(?:\n   .*)*)", README, re.MULTILINE)
ELSEWHERE = ("surfaces/", "policy/", "parser.py", "machine.py", "decision.py")
"""Files that may differ: other surfaces, and the policy's own, which depend on the command."""


def named(step: str) -> list[str]:
    """The modules of a step. Text in brackets, or after `or` and `else`, describes another way."""
    plain = re.split(r"\(|, or | else ", " ".join(step.split()))[0]
    return [name for name in re.findall(r"`([\w/]+\.py)`", plain) if not name.startswith(ELSEWHERE)]


def test_there_is_a_walk_down_and_back() -> None:
    assert len(STEPS) == 11
    assert sum(map(len, map(named, STEPS))) > 10


@pytest.mark.engine
async def test_a_command_passes_the_files_in_the_order_of_the_walk(workspace: Path) -> None:
    (workspace / "Makefile").write_text("test:\n\t@echo tested\n")
    passed: list[str] = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if event == "call" and path.startswith(f"{ROOT}/"):
            passed.append(path.removeprefix(f"{ROOT}/"))

    async with belljar.Session(workspace) as box:
        tools = belljar.ToolRegistry(box)
        await tools.call("Bash", {"command": "true"})  # starts the shell
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            result = await tools.call("Bash", {"command": "make test"})
        finally:
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
    assert result.output == "tested\n"
    at = 0
    for number, step in enumerate(STEPS, 1):
        for name in named(step):
            assert name in passed[at:], f"step {number}: {name} is not passed here"
            at = passed.index(name, at)


def test_the_functions_that_the_walk_names_are_in_their_files() -> None:
    for path, name in re.findall(r"`([\w/]+\.py)`,? `(\w+)`", README):
        file = next(each for each in (ROOT / path, ROOT / "policy" / path) if each.is_file())
        assert re.search(rf"^\s*(?:async )?(?:def|class) {name}\b", file.read_text(), re.MULTILINE), f"{path}: {name}"
