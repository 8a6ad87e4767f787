"""What browsers keep: names by content, imports that follow them, all of it small."""

from __future__ import annotations

import re

from belljar.surfaces.http.dashboard import assets

MOST = 100_000


def _is_of_the_terminal(name: str) -> bool:
    stem, _, _ = name.partition(".")
    return stem in {
        each.partition(".")[0] for each in assets.TERMINAL_ONLY
    } or name.startswith("LICENSE")


def test_all_but_the_terminals_are_small_together() -> None:
    found = {
        name: len(each.body)
        for name, each in assets.all_assets().items()
        if not _is_of_the_terminal(name)
    }
    icon = len(assets.favicon(99, lost=False))
    assert sum(found.values()) + icon <= MOST, found


def test_every_import_names_an_asset_that_is_there() -> None:
    known = assets.all_assets()
    for name, each in known.items():
        if name.endswith(".js"):
            for found in re.findall(
                r'from "\./([^"]+)"|new URL\("\./([^"]+)"', each.body.decode()
            ):
                assert "".join(found) in known, name


def test_names_follow_the_contents() -> None:
    assert re.fullmatch(r"/static/style\.[0-9a-f]{12}\.css", assets.url("style.css"))
    assert assets.url("style.css").removeprefix("/static/") in assets.all_assets()


def test_no_asset_reaches_elsewhere() -> None:
    for name, each in assets.all_assets().items():
        if not _is_of_the_terminal(name):
            assert not re.search(rb"https?://(?!www\.w3\.org)", each.body), name
            assert b"innerHTML" not in each.body, name


def test_the_icon_shows_the_number_and_the_loss() -> None:
    assert ">3<" in assets.favicon(3, lost=False)
    assert ">99<" in assets.favicon(1000, lost=False)
    assert ">!<" in assets.favicon(3, lost=True)
    assert "<text" not in assets.favicon(0, lost=False)
