"""Every link in the documents leads somewhere, and every document is found from the README in two clicks."""

from __future__ import annotations

import re
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CLICKS = 2


def _documents() -> list[str]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [name for name in listed.stdout.splitlines() if (ROOT / name).exists()]


@cache
def _text(document: str) -> str:
    """Without what is shown as code, where brackets are no links."""
    text = re.sub(
        r"^```.*?^```",
        "",
        (ROOT / document).read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    return re.sub(r"`[^`\n]*`", "code", text)


def _links(document: str) -> list[str]:
    text = _text(document)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(
        r"(?:src|href)=\"([^\"]+)\"", text
    )
    return [each for each in found if not re.match(r"[a-z]+:", each)]


@cache
def _anchors(document: str) -> set[str]:
    """What GitHub calls the headings."""
    text = re.sub(
        r"^```.*?^```",
        "",
        (ROOT / document).read_text(),
        flags=re.DOTALL | re.MULTILINE,
    )
    headings = re.findall(r"^#+ +(.+?) *$", text, re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings
    }


def _target(document: str, link: str) -> tuple[str, str]:
    path, _, anchor = link.partition("#")
    place = (ROOT / document).parent / path if path else ROOT / document
    return str(place.resolve().relative_to(ROOT)), anchor


@pytest.mark.parametrize("document", _documents())
def test_every_link_leads_to_a_file_and_a_heading(document: str) -> None:
    for link in _links(document):
        path, anchor = _target(document, link)
        assert (ROOT / path).exists(), f"{document} links to {path}, which is not there"
        if anchor:
            assert anchor in _anchors(path), (
                f"{document}: {path} has no heading #{anchor}"
            )


def test_every_document_is_found_from_the_readme_in_two_clicks() -> None:
    found = {"README.md"}
    for _ in range(CLICKS):
        found |= {
            _target(each, link)[0]
            for each in tuple(found)
            if each.endswith(".md")
            for link in _links(each)
        }
    assert sorted(set(_documents()) - found) == []
