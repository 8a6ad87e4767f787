"""Counts the functions of ours that a command passes: `python -m tests.walk [-v]`.

`box.run(["ls"])`: distinct functions and modules. The tool call `Bash {"command": "make test"}`: on its way down, until
the text is written to the shell, and on its way back, from its report to the tool's result; each function once. The
policy counts as one: what it passes depends on the command. The story is shorter: the functions that are open when the
text is written, one inside the other (`deep`); all others come back before that.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import anyio

import belljar

ROOT = Path(belljar.__file__).parent
Walk = list[tuple[str, str]]
"""File and function, in the order of calls."""
WRITES = "InputStream.write"


async def walked(work: Callable[[], Awaitable[Any]]) -> Walk:
    """What `work` passes, in all threads."""
    passed: Walk = []

    def note(frame: FrameType, event: str, _: object) -> None:
        path = frame.f_code.co_filename
        if (
            event == "call"
            and path.startswith(f"{ROOT}/")
            and frame.f_code.co_name[0] != "<"
        ):
            passed.append((path.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname))

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        await work()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return passed


async def of_run(box: belljar.Session) -> Walk:
    await box.run(["ls"])
    return await walked(lambda: box.run(["ls"]))


async def of_tool(box: belljar.Session) -> Walk:
    Path(box.workspace.path, "Makefile").write_text("test:\n\t@echo tested\n")
    tools = belljar.ToolRegistry(box)
    for _ in range(2):  # starts the shell; loads what is loaded once
        await tools.call("Bash", {"command": "make test"})
    return await walked(lambda: tools.call("Bash", {"command": "make test"}))


async def of_story(box: belljar.Session) -> Walk:
    """The functions that are open when a tool call's text is written, the outermost first."""
    tools = belljar.ToolRegistry(box)
    story: Walk = []

    def note(frame: FrameType | None, event: str, _: object) -> None:
        if event == "call" and frame and frame.f_code.co_qualname == WRITES:
            story.clear()
            while frame:
                path = frame.f_code.co_filename
                if path.startswith(f"{ROOT}/"):
                    story.insert(
                        0, (path.removeprefix(f"{ROOT}/"), frame.f_code.co_qualname)
                    )
                frame = frame.f_back

    await tools.call("Bash", {"command": "true"})  # starts the shell
    sys.setprofile(note)
    try:
        await tools.call("Bash", {"command": "true"})
    finally:
        sys.setprofile(None)
    return story


def without_policy(walk: Walk) -> Walk:
    return [step for step in walk if not step[0].startswith("policy/")]


def down_and_up(walk: Walk) -> tuple[Walk, Walk]:
    """Each function once: until the text is written, and from the report on."""
    written = max(i for i, (_, name) in enumerate(walk) if name == WRITES)
    reported = next(
        i for i, (_, name) in enumerate(walk) if i > written and name == "Bash._handle"
    )
    return [*dict.fromkeys(walk[: written + 1])], [*dict.fromkeys(walk[reported:])]


async def main(verbose: bool) -> None:
    with TemporaryDirectory(prefix="belljar-walk-") as place:
        async with belljar.Session(place) as box:
            run, tool = (
                without_policy(await of_run(box)),
                without_policy(await of_tool(box)),
            )
            story = await of_story(box)
    down, up = down_and_up(tool)
    print(
        f"box.run: {len(set(run))} functions in {len({file for file, _ in run})} modules, {len(run)} calls"
    )
    print(
        f"Bash: {len(story)} deep, {len(down)} functions down, {len(up)} up, {len(tool)} calls"
    )
    if verbose:
        for title, walk in (
            ("run", [*dict.fromkeys(run)]),
            ("deep", story),
            ("down", down),
            ("up", up),
        ):
            print(f"\n{title}:", *(f"{file} {name}" for file, name in walk), sep="\n  ")


if __name__ == "__main__":
    anyio.run(main, "-v" in sys.argv)
