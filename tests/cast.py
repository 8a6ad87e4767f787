"""The README's picture: a terminal in which real commands are run, as an SVG that plays by itself.

`make cast` runs the commands below in a directory of its own and writes tests/pictures/terminal.svg; `tests/test_cast.py`
runs them again and compares. Only the pace is made up, and the name of the staged changes, which is another each time.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

from tests.owners import give

PICTURE = Path(__file__).with_name("pictures") / "terminal.svg"
COMMANDS = (
    "belljar run 'ls; grep -c def test_sum.py; ls /sys/class/net'",
    "belljar run 'cd / && rm -fr -- *'",
    "belljar run 'curl -sS https://example.com'",
    "belljar run --timeout 1 'echo begun; sleep 600'",
    "belljar run --staged 'rm test_sum.py; echo \"print(42)\" > app.py'",
    "belljar diff app.py",
)
COLUMNS = 96
ROW, LEFT, TOP, WIDTH = 20, 18, 46, 860
TYPED, PRINTED = 0.9, 0.25
"""Seconds before a command's output, and between two of its lines."""
COLOURS = {
    "command": "#f0f6fc",
    "output": "#b3bcc8",
    "belljar": "#e3b341",
    "added": "#56d364",
    "removed": "#ff7b72",
}
_SESSION = re.compile(r"(staged as )\S+?(?=[.:;,]|\s|$)")


@dataclass(frozen=True)
class Line:
    kind: str
    text: str


def lines() -> Iterator[Line]:
    """What the terminal shows."""
    with tempfile.TemporaryDirectory(prefix="bj-cast-") as scratch:
        project = Path(scratch, "project")
        project.mkdir()
        (project / "test_sum.py").write_text(
            "def test_adds():\n    assert 1 + 1 == 2\n"
        )
        for each in (project, project / "test_sum.py"):
            give(each)
        for command in COMMANDS:
            yield Line("command", command)
            for text in _output(command, project, Path(scratch, "state")).splitlines():
                yield from (Line(_kind(text), part) for part in _wrapped(text))


def _output(command: str, project: Path, state: Path) -> str:
    own = {"BELLJAR_STATE": str(state), "COLUMNS": str(COLUMNS), "GITHUB_ACTIONS": ""}
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ran = subprocess.run(
        ["bash", "-c", f"exec 2>&1; {command}"],
        cwd=project,
        env={**os.environ, **own, "PATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    return _SESSION.sub(r"\1s-1a2b3c", ran.stdout)


def _kind(text: str) -> str:
    if text.startswith("belljar: "):
        return "belljar"
    if text.startswith(("+++", "---")):
        return "output"
    return {"+": "added", "-": "removed"}.get(text[:1], "output")


def _wrapped(text: str) -> Iterator[str]:
    """As a terminal breaks a line, but between words."""
    while len(text) > COLUMNS:
        at = text.rfind(" ", 0, COLUMNS) + 1 or COLUMNS
        yield text[:at].rstrip()
        text = f"  {text[at:]}"
    yield text


def drawn(shown: list[Line]) -> str:
    height = TOP + ROW * len(shown) + 14
    when, rows = 0.3, []
    for number, line in enumerate(shown):
        when += TYPED if line.kind == "command" else PRINTED
        prompt = '<tspan fill="#56d364">$ </tspan>' if line.kind == "command" else ""
        rows.append(
            f'<text x="{LEFT}" y="{TOP + ROW * (number + 1) - 8}" fill="{COLOURS[line.kind]}" '
            f'style="animation-delay:{when:.2f}s">{prompt}{escape(line.text)}</text>'
        )
    dots = "".join(
        f'<circle cx="{20 + 20 * number}" cy="18" r="6" fill="{colour}"/>'
        for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
            f'viewBox="0 0 {WIDTH} {height}" role="img" xml:space="preserve">',
            "<title>A terminal: commands run in Belljar's sandboxes</title>",
            "<style>text{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace;white-space:pre;"
            "opacity:0;animation:show .01s forwards}@keyframes show{to{opacity:1}}"
            "@media(prefers-reduced-motion:reduce){text{opacity:1;animation:none}}</style>",
            f'<rect width="{WIDTH}" height="{height}" rx="10" fill="#0d1117" stroke="#30363d"/>',
            dots,
            *rows,
            "</svg>\n",
        ]
    )


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(drawn(list(lines())))
