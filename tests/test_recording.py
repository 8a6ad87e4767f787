"""The README's picture comes from a real run, and is an svg that a browser can draw."""

from __future__ import annotations

import os
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tests import recording


def test_what_is_printed_cannot_break_the_picture() -> None:
    root = ElementTree.fromstring(recording.svg(["$ echo '<b>&'", "+ x", "y" * 150]))
    texts = [each.text for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert texts == [
        "$ echo '<b>&'",
        "+ x",
        "y" * recording.COLUMNS,
        "y" * (150 - recording.COLUMNS),
    ]


@pytest.mark.engine
def test_the_story_is_as_the_picture_shows_it(tmp_path: Path, base_image: str) -> None:
    lines = recording.record(tmp_path)
    shown = recording.TARGET.read_text()
    assert '+    return "hello, belljar"' in lines
    assert "belljar: 3 applied" in lines
    for line in (
        each for each in lines if each.startswith(("$ belljar", "belljar: 3", "@@"))
    ):
        assert line in _texts(shown)
    assert sorted(os.listdir(tmp_path)) == [".git", "app.py", "test_app.py"]


def _texts(svg: str) -> list[str]:
    return [
        each.text or ""
        for each in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    ]
