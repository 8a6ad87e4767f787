"""A command really takes the way that the walk in `src/belljar/README.md` describes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests import walk

import belljar

ROOT = Path(belljar.__file__).parent
README = (ROOT / "README.md").read_text()
STEPS = re.findall(r"^\d+\. (.*(?:\n   .*)*)", README, re.MULTILINE)
ELSEWHERE = ("surfaces/", "policy/", "parser.py", "machine.py", "decision.py")
"""Files that may differ: other surfaces, and the policy's own, which depend on the command."""


MORE = 12
"""What a count may differ by: the transport, the kernel's pipes and a listing that is due add steps now and then."""


def named(step: str) -> list[str]:
    """The modules of a step. Text in brackets, or after `or` and `else`, describes another way."""
    plain = re.split(r"\(|, or | else ", " ".join(step.split()))[0]
    return [
        name
        for name in re.findall(r"`([\w/]+\.py)`", plain)
        if not name.startswith(ELSEWHERE)
    ]


def test_there_is_a_walk_down_and_back() -> None:
    assert len(STEPS) == 11
    assert sum(map(len, map(named, STEPS))) > 10


@pytest.mark.engine
async def test_a_command_passes_the_files_in_the_order_of_the_walk(
    workspace: Path,
) -> None:
    (workspace / "Makefile").write_text("test:\n\t@echo tested\n")
    results = []
    async with belljar.Session(workspace) as box:
        tools = belljar.ToolRegistry(box)
        await tools.call("Bash", {"command": "true"})  # starts the shell

        async def call() -> None:
            results.append(await tools.call("Bash", {"command": "make test"}))

        passed = [file for file, _ in await walk.walked(call)]
    [result] = results
    assert result.output == "tested\n"
    at = 0
    for number, step in enumerate(STEPS, 1):
        for name in named(step):
            assert name in passed[at:], f"step {number}: {name} is not passed here"
            at = passed.index(name, at)


@pytest.mark.engine
async def test_the_walk_stays_short(workspace: Path) -> None:
    """Without the policy. A reader follows each of these once; whoever adds one asks what it replaces."""
    async with belljar.Session(workspace) as box:
        run = walk.without_policy(await walk.of_run(box))
        down, up = walk.down_and_up(walk.without_policy(await walk.of_tool(box)))
        story = await walk.of_story(box)
    told = {
        what: int(number) for number, what in re.findall(r"\*\*(\d+)\*\* (\w+)", README)
    }
    assert len(story) == told["deep"], story
    assert abs(len(set(run)) - told["functions"]) <= MORE, set(run)
    assert abs(len(down) - told["down"]) <= MORE, down
    assert abs(len(up) - told["up"]) <= MORE, up


def test_the_functions_that_the_walk_names_are_in_their_files() -> None:
    for path, name in re.findall(r"`([\w/]+\.py)`,? `(\w+)`", README):
        file = next(
            each for each in (ROOT / path, ROOT / "policy" / path) if each.is_file()
        )
        assert re.search(
            rf"^\s*(?:async )?(?:def|class) {name}\b", file.read_text(), re.MULTILINE
        ), f"{path}: {name}"
