"""What all pages share: escaping, the title, errors as pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from belljar.surfaces.http.dashboard.pages import render


def test_everything_that_is_put_into_a_page_is_escaped() -> None:
    answer = render("login.html", 200, next='/"><script>x</script>', problem="<b>")
    text = bytes(answer.body).decode()
    assert "<script>x" not in text
    assert "&lt;b&gt;" in text


def test_the_title_counts_what_waits(client: Callable[..., Any]) -> None:
    caller = client(3, 2)
    for path, title in (
        ("/", "(2) Belljar"),
        ("/audit", "(2) Audit · Belljar"),
        ("/sessions/s001", "(2) agent-01 · Belljar"),
        ("/sessions/none", "(2) Not found · Belljar"),
    ):
        assert f"<title>{title}</title>" in caller.get(path).text
    assert "<title>Belljar</title>" in client(3, 0).get("/").text


def test_each_page_has_one_heading_and_marks_itself_in_the_navigation(
    client: Callable[..., Any],
) -> None:
    caller = client()
    for path, heading in (
        ("/", "Overview"),
        ("/audit", "Audit"),
        ("/policy", "Policy"),
        ("/usage", "Usage"),
        ("/keys", "Keys"),
        ("/sessions/s002", "agent-02"),
    ):
        text = caller.get(path).text
        assert text.count("<h1") == 1
        assert f">{heading}</h1>" in text
        assert text.count('aria-current="page"') == 1
