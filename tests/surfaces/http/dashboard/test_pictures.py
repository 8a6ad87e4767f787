"""How it looks: readable in light, dark, forced colours and at every width; pictures for whoever wants to see.

`BELLJAR_PICTURES=DIR` keeps the pictures there. `make soak` makes those with few sessions too.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import live

SIZES = {360: 780, 1280: 800, 1920: 1080}
# Text whose colour has less than 4.5 times the contrast of what is behind it (large text 3).
PALE = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = text => { canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data].map(v => v / 255) };
  const light = ([r, g, b]) => { const f = c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b) };
  const behind = element => { for (let e = element; e; e = e.parentElement) {
    const c = rgba(getComputedStyle(e).backgroundColor); if (c[3] > 0.99) return c } return [1, 1, 1, 1] };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    const box = element.getBoundingClientRect();
    if (!text || !box.width || !element.checkVisibility()) continue;
    if (element.closest('.hidden, svg, template, option')) continue;
    const style = getComputedStyle(element), a = light(rgba(style.color)), b = light(behind(element));
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const large = parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.6 && style.fontWeight >= 700);
    if (contrast < (large ? 3 : 4.5)) found.push([text.slice(0, 30), contrast.toFixed(2), element.className]);
  }
  return found;
}"""


def picture(page: Any, name: str) -> None:
    if directory := os.environ.get("BELLJAR_PICTURES"):
        page.screenshot(path=Path(directory, f"{name}.png"))


BROKEN = """() => {
  const found = [];
  for (const each of document.querySelectorAll('h1, .top a, .tabs a, td:not(.mono), th:not(.mono, .command)')) {
    const texts = document.createTreeWalker(each, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) for (const word of texts.currentNode.data.matchAll(/[A-Za-z_]+/g)) {
      const range = document.createRange();
      range.setStart(texts.currentNode, word.index);
      range.setEnd(texts.currentNode, word.index + word[0].length);
      if (new Set([...range.getClientRects()].map(box => box.top)).size > 1) found.push(word[0]);
    }
  }
  return found;
}"""
"""Words that are cut in the middle, where nothing is a path or a command."""
SCROLLING_UP = """() => [...document.querySelectorAll('nav')]
  .filter(each => each.scrollHeight > each.clientHeight && getComputedStyle(each).overflowY !== 'hidden')
  .map(each => each.ariaLabel)"""
"""Rows of links that have a scroll bar at their side."""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", SIZES)
@pytest.mark.parametrize(
    "sessions",
    [
        pytest.param(0, marks=pytest.mark.soak),
        pytest.param(3, marks=pytest.mark.soak),
        50,
    ],
)
def test_the_overview_is_readable_and_never_wider_than_the_screen(
    open_page: Callable[..., Any], made_up: Any, sessions: int, width: int, scheme: str
) -> None:
    world, site = made_up(sessions, min(3, sessions))
    size = {"width": width, "height": SIZES[width]}
    page = live(
        open_page(
            site.url,
            "/?session=s004" if sessions > 3 else "/",
            viewport=size,
            color_scheme=scheme,
        )
    )
    page.wait_for_timeout(700)
    if sessions > 3:
        for beat in range(40):
            world.print(
                world.sessions["s004"],
                f"tests/test_basket.py::test_total_{beat} PASSED",
            )
            page.wait_for_timeout(10)
        page.wait_for_timeout(600)
    picture(page, f"overview-{width}-{scheme}-{sessions}")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(PALE) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_other_pages_are_readable(
    open_page: Callable[..., Any], made_up: Any, scheme: str
) -> None:
    _, site = made_up(3, 1)
    page = live(
        open_page(
            site.url, viewport={"width": 1280, "height": 900}, color_scheme=scheme
        )
    )
    for name, path in (
        ("session", "/sessions/s001"),
        ("changes", "/sessions/s001/changes"),
        ("policy", "/policy?command=sudo%20make%20install"),
        ("usage", "/usage"),
        ("audit", "/audit"),
        ("keys", "/keys"),
    ):
        page.goto(site.url + path)
        live(page)
        picture(page, f"{name}-{scheme}")
        assert page.evaluate(PALE) == [], path
        page.set_viewport_size({"width": 360, "height": 780})
        picture(page, f"{name}-{scheme}-360")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
        assert page.evaluate(BROKEN) == [], path
        assert page.evaluate(SCROLLING_UP) == [], path
        page.set_viewport_size({"width": 1280, "height": 900})


def test_forced_colours_and_reduced_motion(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(5, 2)
    page = live(open_page(site.url, forced_colors="active", reduced_motion="reduce"))
    picture(page, "overview-forced-colours")
    widths = page.evaluate(
        "[...document.querySelectorAll('button, article')].filter(e => e.checkVisibility())"
        ".map(e => parseFloat(getComputedStyle(e).borderLeftWidth))"
    )
    assert min(widths) >= 1
    words = page.locator("#rows [data-f=word]").all_inner_texts()
    marks = page.locator("#rows [data-f=mark]").all_inner_texts()
    assert all(words)
    assert all(marks)
    moving = page.evaluate(
        "[...document.querySelectorAll('*')].filter(e => { const s = getComputedStyle(e);"
        " return s.animationName !== 'none' || parseFloat(s.transitionDuration) > 0 }).length"
    )
    assert moving == 0
