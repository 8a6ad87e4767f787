"""A session's page and its views, with made-up sessions; changes for real are in test_real_service.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .conftest import live, until


def test_commands_say_in_words_how_they_ended(client: Callable[..., Any]) -> None:
    text = client().get("/sessions/s001").text
    for word in ("running", "exited", "timed out", "out of memory", "killed"):
        assert f"</span> {word}</td>" in text


def test_every_line_of_output_is_an_address(client: Callable[..., Any]) -> None:
    caller = client()
    text = caller.get("/sessions/s001/commands/c001").text
    assert text.count('class="line"') == 120
    assert "\x1b" not in text
    marked = caller.get("/sessions/s001/commands/c001?at=40").text
    assert marked.count('aria-current="location"') == 1


def test_the_views_of_a_session(open_page: Callable[..., Any], made_up: Any) -> None:
    _, site = made_up(3, 1)
    page = live(open_page(site.url, "/sessions/s001"))
    assert page.get_by_role("article").count() == 1
    names = ("Commands", "Changes", "Files", "Network", "Limits", "Audit", "Terminal")
    assert page.get_by_role("navigation", name="Session").get_by_role(
        "link"
    ).all_inner_texts() == list(names)
    tables = {
        "Commands": "Commands",
        "Changes": "Changed files",
        "Files": "Files",
        "Network": "Network",
        "Limits": "Limits as verified",
        "Audit": "Audit",
    }
    for view, table in tables.items():
        page.get_by_role("navigation", name="Session").get_by_role(
            "link", name=view
        ).click()
        page.get_by_role("table", name=table, exact=True).wait_for()
    page.go_back()
    live(page)


def test_output_is_searched_and_followed(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 0)
    world.positions["c001"] = 10**6
    page = live(open_page(site.url, "/sessions/s001"))
    page.keyboard.press("/")
    page.keyboard.type("epoch")
    page.get_by_role("status", name="Found").get_by_text("1 of ").wait_for()
    page.keyboard.press("Enter")
    page.get_by_role("status", name="Found").get_by_text("2 of ").wait_for()
    world.print(world.sessions["s001"], "a new line at the end")
    page.get_by_role("log").get_by_text("a new line at the end").wait_for()
    follow = page.get_by_role("button", name="Follow")
    assert follow.get_attribute("aria-pressed") == "true"
    follow.click()
    assert follow.get_attribute("aria-pressed") == "false"
    until(page, "document.querySelector('#log').scrollHeight > 0")


def test_nothing_is_selected_and_what_runs_later_is_asked_about(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 0)
    page = live(open_page(site.url, "/sessions/s001/changes"))
    assert page.locator("input:checked").count() == 0
    assert page.get_by_role("checkbox", name="Hunk 1 of 2").count() == 1
    page.get_by_role("checkbox", name="Select .github/workflows/test.yml").check()
    page.get_by_role("button", name="Apply selected").click()
    dialog = page.get_by_role("dialog", name="These run on your machine later")
    assert ".github/workflows/test.yml" in dialog.inner_text()
    page.keyboard.press("Escape")
    dialog.wait_for(state="detached")
    page.keyboard.press("v")
    page.get_by_role("table", name="Hunk 1, side by side").first.wait_for()


def test_who_may_not_run_can_stop_nothing(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 0, scopes=("read",))
    page = live(open_page(site.url, "/sessions/s001"))
    page.wait_for_timeout(300)
    assert (
        page.get_by_role("button", name="Stop").get_attribute("aria-disabled") == "true"
    )
