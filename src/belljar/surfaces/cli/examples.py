"""Examples for each command's help: what to type, and what it does. They are in examples.txt."""

from __future__ import annotations

from functools import cache
from pathlib import Path


@cache
def by_command() -> dict[str, str]:
    sections = Path(__file__).with_suffix(".txt").read_text().split("# ")[1:]
    return {
        name: text
        for name, _, text in (section.partition("\n") for section in sections)
    }


def of(command: str) -> str:
    """The examples of a command. A family such as `session` shows those of all its commands."""
    texts = [
        text
        for name, text in by_command().items()
        if f"{name} ".startswith(f"{command} ")
    ]
    return "\n".join(
        ["examples:", *(f"  {line}" for line in "".join(texts).splitlines())]
    )
