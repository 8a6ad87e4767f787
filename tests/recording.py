"""`python -m tests.recording` runs the commands of the staged example and draws them into staged.svg.

The commands run on a pseudo-terminal; each line that they print becomes a text of the SVG. The first character of a
line chooses its colour, as in a diff. No service and no font is needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from html import escape
from pathlib import Path

from tests.surfaces.real_terminal import Terminal

TARGET = Path(__file__).parents[1] / "src" / "belljar" / "staged" / "staged.svg"
STORY = (
    "belljar run --staged 'sed -i s/world/belljar/ app.py; echo test > test_app.py; rm old.py'",
    "belljar diff app.py",
    "belljar apply",
    "git status --short",
)
FILES = {
    "app.py": 'def greet():\n    return "hello, world"\n',
    "old.py": "# nobody needs this\n",
}
COLUMNS, LINE, CHARACTER, MARGIN = 98, 20, 8.4, 24
COLOURS = {
    "$": "#e6edf3",
    "+": "#7ee787",
    "-": "#ffa198",
    "@": "#79c0ff",
    "b": "#d2a8ff",
}
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07]*\x07)|\r")


def record(place: Path) -> list[str]:
    """The lines that a person sees who types these commands."""
    for name, text in FILES.items():
        (place / name).write_text(text)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(place)]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    lines = []
    for command in STORY:
        shell = f"belljar() {{ '{sys.executable}' -m belljar \"$@\" </dev/null; }}; cd '{place}'; {command}"
        printed = Terminal(
            "bash", "-c", shell, cols=COLUMNS, BELLJAR_IMAGES=image_directory()
        ).rest()
        lines += [
            f"$ {command}",
            *_ESCAPES.sub("", printed).rstrip("\n").split("\n"),
            "",
        ]
    return lines


def image_directory() -> str:
    home = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.environ.get("BELLJAR_IMAGES", f"{home}/belljar/images")


def svg(lines: list[str]) -> str:
    """The lines as an SVG."""
    wrapped = [part for line in lines for part in _wrapped(line)]
    width, height = (
        COLUMNS * CHARACTER + 2 * MARGIN,
        len(wrapped) * LINE + 2 * MARGIN + LINE,
    )
    rows = "\n".join(
        f'<text x="{MARGIN}" y="{MARGIN + LINE * (number + 1.75):g}" fill="{colour}" xml:space="preserve">'
        f"{escape(text)}</text>"
        for number, (text, colour) in enumerate(wrapped)
        if text
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" '
        f'font-family="ui-monospace,SFMono-Regular,Menlo,Consolas,monospace" font-size="14">\n'
        f"<title>belljar run --staged, diff, apply</title>\n"
        f'<rect width="100%" height="100%" rx="10" fill="#0d1117"/>\n'
        f'<g fill="#484f58"><circle cx="24" cy="20" r="6"/><circle cx="44" cy="20" r="6"/>'
        f'<circle cx="64" cy="20" r="6"/></g>\n{rows}\n</svg>\n'
    )


def _wrapped(line: str) -> list[tuple[str, str]]:
    colour = (
        COLOURS.get(line[:1], "#c9d1d9")
        if not line.startswith(("+++", "---", "- ", "+ "))
        else "#c9d1d9"
    )
    return [
        (line[at : at + COLUMNS], colour) for at in range(0, max(1, len(line)), COLUMNS)
    ]


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="belljar-story-") as directory:
        place = Path(directory) / "project"
        place.mkdir()
        lines = record(place)
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(svg(lines))
    print("\n".join(lines))


if __name__ == "__main__":
    main()
