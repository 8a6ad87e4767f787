"""The way in and out: the form, where it leads, who may send it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from belljar.surfaces.http.dashboard.sign_in import safe_next

from .conftest import live
from .made_up import KEY


@pytest.mark.parametrize(
    "wanted",
    [
        "//evil.example",
        "https://evil.example/",
        "/\\evil.example",
        "evil",
        "",
        "/\n/x",
        "javascript:alert(1)",
    ],
)
def test_only_a_path_of_this_origin_is_gone_to(wanted: str) -> None:
    assert safe_next(wanted) == "/"


def test_a_right_key_leads_on_and_a_wrong_one_says_so(
    client: Callable[..., Any],
) -> None:
    caller = client(key=None)
    right = caller.post("/login", data={"key": f" {KEY}\n", "next": "/audit?q=x"})
    assert (right.status_code, right.headers["location"]) == (303, "/audit?q=x")
    assert {"httponly", "samesite=strict"} <= {
        part.strip().lower() for part in right.headers["set-cookie"].split(";")
    }
    wrong = caller.post("/login", data={"key": "bj_wrong", "next": "//evil"})
    assert wrong.status_code == 401
    assert "This key is not valid." in wrong.text
    assert 'name="next" value="/"' in wrong.text


def test_a_form_of_another_origin_is_refused(client: Callable[..., Any]) -> None:
    caller = client(key=None)
    for origin in ("https://evil.example", "null"):
        answer = caller.post("/login", data={"key": KEY}, headers={"Origin": origin})
        assert answer.status_code == 403
        assert "set-cookie" not in answer.headers


def test_a_form_without_end_is_not_read(client: Callable[..., Any]) -> None:
    assert (
        client(key=None).post("/login", content=b"key=" + b"x" * 1_000_000).status_code
        == 401
    )


def test_without_a_cookie_every_page_leads_to_the_sign_in(
    client: Callable[..., Any],
) -> None:
    caller = client(key=None)
    for path in ("/", "/audit", "/sessions/s001/changes?view=sides", "/keys"):
        answer = caller.get(path)
        assert answer.status_code == 303
        assert answer.headers["location"].startswith("/login?next=%2F")
    assert (
        "sides" in caller.get("/sessions/s001/changes?view=sides").headers["location"]
    )


def test_only_who_comes_from_elsewhere_tries_the_cookie_again(
    client: Callable[..., Any],
) -> None:
    caller = client(key=None)
    assert "login." not in caller.get("/login", headers={"Sec-Fetch-Site": "none"}).text
    assert (
        "login." in caller.get("/login", headers={"Sec-Fetch-Site": "cross-site"}).text
    )


def test_a_link_from_elsewhere_finds_who_is_signed_in(
    open_page: Callable[..., Any], made_up: Any, watched: Any
) -> None:
    _, site = made_up(3, 0)
    page = live(open_page(site.url))
    watched.expected = ("401",)
    page.goto(f"http://localhost:{site.port}/login")  # another site for a browser
    with page.expect_response("**/login?next=*"):
        page.evaluate(f"location.href = '{site.url}/sessions/s002'")
    page.get_by_role("heading", name="agent-02", level=1).wait_for()


def test_the_page_of_the_sign_in(
    open_page: Callable[..., Any], made_up: Any, watched: Any
) -> None:
    watched.expected = ("401",)
    _, site = made_up(1, 1)
    page = open_page(site.url, "/login?next=%2Faudit", key=None)
    assert page.title() == "Sign in · Belljar"
    assert page.get_by_role("heading", name="Sign in", level=1).is_visible()
    assert page.get_by_label("Key").get_attribute("autocomplete") == "current-password"
    page.get_by_label("Key").fill("bj_wrong")
    page.keyboard.press("Enter")
    assert page.get_by_role("alert").inner_text() == "This key is not valid."
    page.get_by_label("Key").fill(KEY)
    page.get_by_role("button", name="Sign in").click()
    page.wait_for_url("**/audit")
