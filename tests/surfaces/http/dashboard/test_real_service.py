"""The dashboard of a real `belljar serve`, with real sandboxes, in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.surfaces.http.serving import KEY, Serving

from .conftest import live, until

ASKED = 'rm -rf "$NOWHERE"; echo done'
pytestmark = pytest.mark.engine


def begin(server: Serving, session: str, command: str) -> dict[str, Any]:
    return server.run(session, command, wait=0)


def wait_for_approval(server: Serving, session: str) -> str:
    """The id of the session's only waiting approval."""
    items = server.client.get(f"/v1/approvals?state=waiting&session={session}").json()[
        "items"
    ]
    return str(items[0]["id"])


def test_an_agent_asks_a_person_denies_and_the_agent_is_told(
    server: Serving, open_page: Callable[..., Any]
) -> None:
    session = server.session(name="agent-deny")
    command = begin(server, session, ASKED)
    page = live(open_page(server.url, key=KEY))
    card = page.get_by_role("article", name="Critical · agent-deny")
    assert ASKED in card.inner_text()
    assert card.locator("mark").count() >= 1
    page.keyboard.press("j")
    page.keyboard.press("d")
    page.keyboard.type("use a path that you know")
    page.keyboard.press("Enter")
    card.get_by_text("Denied by first: use a path that you know").wait_for()
    ended = server.client.get(
        f"/v1/sessions/{session}/commands/{command['id']}",
        headers={"Prefer": "wait=10"},
    ).json()
    assert ended["error"]["detail"] == "use a path that you know"
    page.locator(f"#session-{session}").get_by_text("denied", exact=True).wait_for()


def test_two_browsers_and_one_approval(
    server: Serving, open_page: Callable[..., Any], watched: Any
) -> None:
    watched.expected = ("409",)
    session = server.session(name="agent-two")
    command = begin(server, session, ASKED)
    first, second = (live(open_page(server.url, key=KEY)) for _ in range(2))
    cards = [page.get_by_role("article", name="agent-two") for page in (first, second)]
    for card in cards:
        card.get_by_role("button", name="Allow once").click()
    for card in cards:
        card.get_by_role("button", name="Yes, allow once").click(no_wait_after=True)
    for card in cards:
        card.get_by_text("Allowed once by first").wait_for()
    ended = server.client.get(
        f"/v1/sessions/{session}/commands/{command['id']}",
        headers={"Prefer": "wait=20"},
    ).json()
    assert ended["result"]["stdout"] == "done\n"


def test_what_runs_is_seen_and_stopped(
    server: Serving, open_page: Callable[..., Any]
) -> None:
    session = server.session(name="agent-runs")
    begin(server, session, "for i in $(seq 500); do echo line $i; sleep 0.2; done")
    page = live(open_page(server.url, key=KEY))
    row = page.locator(f"#session-{session}")
    row.get_by_text(re.compile(r"^line \d+$")).wait_for()
    row.get_by_role("img", name=re.compile(r"^CPU \d+ %$")).wait_for()
    row.locator("td.command").click()
    page.get_by_role("log").get_by_text(re.compile(r"^line \d+$")).first.wait_for()
    page.keyboard.press("t")
    row.focus()
    page.keyboard.press("p")
    row.get_by_text("paused", exact=True).wait_for()
    page.keyboard.press("p")
    row.get_by_text("running", exact=True).wait_for()
    page.keyboard.press("x")
    page.get_by_role("dialog", name="Stop agent-runs?").get_by_role(
        "button", name="Stop it"
    ).click()
    row.get_by_text("ended", exact=True).wait_for()
    assert server.client.get(f"/v1/sessions/{session}").json()["reason"] == "deleted"


def test_hostile_output_stays_text_on_every_page(
    server: Serving, open_page: Callable[..., Any]
) -> None:
    session = server.session(name="<img src=x onerror=alert(1)>\u202e")
    hostile = r"printf '<script>owned=1</script>\n\033]0;title\007\033[31mred\033[0m\n\342\200\256bidi\nhalf\rwhole\n'"
    server.run(session, hostile)
    server.run(session, "head -c 10000000 /dev/zero | tr '\\0' x; echo; echo after")
    page = live(open_page(server.url, f"/sessions/{session}", key=KEY))
    assert (
        page.get_by_role("heading", level=1).inner_text()
        == "<img src=x onerror=alert(1)>⟨U+202E⟩"
    )
    page.get_by_role("log").get_by_text("… 9,998,000 more characters").wait_for()
    page.get_by_role("link", name=re.compile("printf")).click()
    log = page.get_by_role("log")
    log.get_by_text("<script>owned=1</script>").wait_for()
    lines = log.locator(".line bdi").all_inner_texts()
    assert lines == [
        "<script>owned=1</script>",
        "␛]0;title␇red",
        "⟨U+202E⟩bidi",
        "whole",
    ]
    assert page.evaluate("window.owned") is None
    log.get_by_role("link", name="3", exact=True).click()
    assert "?at=" in page.url
    assert page.locator("[aria-current=location]").inner_text().endswith("bidi")


def test_a_killed_server_is_told_and_everything_is_there_when_it_is_back(
    server: Serving, open_page: Callable[..., Any], watched: Any
) -> None:
    watched.expected = ("net::ERR", "ERR_")
    session = server.session(name="agent-survives")
    begin(server, session, ASKED)
    page = live(open_page(server.url, key=KEY))
    before = page.locator("#rows tr").count()
    server.kill()
    until(page, "document.documentElement.dataset.live === 'false'")
    card = page.get_by_role("article", name="agent-survives")
    assert (
        card.get_by_role("button", name="Deny").get_attribute("aria-disabled") == "true"
    )
    server.start()
    live(page)
    assert page.locator("#rows tr").count() == before
    assert page.get_by_role("article", name="agent-survives").count() == 1
    card.get_by_role("button", name="Deny").click()
    card.get_by_role("button", name="Send denial").click()
    card.get_by_text("Denied by first: A person said no.").wait_for()


def test_a_revoked_key_signs_the_page_out_without_losing_what_it_shows(
    server: Serving, open_page: Callable[..., Any], watched: Any
) -> None:
    watched.expected = ("401",)
    made = server.key("read", "approve", reach="tenant")
    session = server.session(name="agent-seen")
    page = live(open_page(server.url, key=made["key"]))
    page.locator(f"#session-{session}").wait_for()
    server.client.delete(f"/v1/keys/{made['id']}")
    dialog = page.get_by_role("dialog", name="Signed out")
    dialog.wait_for()
    assert (
        dialog.get_by_role("link", name="Sign in").get_attribute("href")
        == "/login?next=%2F"
    )
    assert page.locator(f"#session-{session}").count() == 1


def test_another_tenants_addresses_look_like_none(
    server: Serving, open_page: Callable[..., Any], watched: Any
) -> None:
    watched.expected = ("404",)
    made = server.client.post("/v1/tenants", json={"name": "neighbours"})
    assert made.status_code in (201, 409)
    theirs = server.key("admin", tenant="neighbours")
    session = server.session(name="agent-ours")
    page = live(open_page(server.url, f"/sessions/{session}", key=theirs["key"]))
    assert page.get_by_role("heading", name="Not found", level=1).is_visible()
    assert "agent-ours" not in page.content()
    page.goto(f"{server.url}/")
    assert page.get_by_text("No sessions yet.").is_visible()


def test_signing_out_ends_the_cookie_on_the_server_too(
    server: Serving, open_page: Callable[..., Any]
) -> None:
    page = live(open_page(server.url, key=KEY))
    (cookie,) = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (
        "belljar",
        True,
        "Strict",
    )
    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url("**/login")
    with httpx.Client(
        base_url=server.url, cookies={"belljar": cookie["value"]}
    ) as caller:
        assert caller.get("/v1/keys/self").status_code == 401


def test_a_foreign_page_can_write_nothing_with_the_cookie(server: Serving) -> None:
    with httpx.Client(base_url=server.url) as caller:
        assert caller.post("/login", data={"key": KEY}).status_code == 303
        assert caller.post("/logout").status_code == 403
        assert caller.get("/v1/keys/self").status_code == 200


def test_a_denial_in_the_trail_leads_to_the_policy_box(
    server: Serving, open_page: Callable[..., Any]
) -> None:
    session = server.session(name="agent-why")
    server.client.post(f"/v1/sessions/{session}/commands", json={"command": "rm -rf /"})
    page = live(open_page(server.url, f"/audit?session={session}", key=KEY))
    page.get_by_role("link", name="Why?").click()
    assert page.get_by_role("textbox", name="Command").input_value() == "rm -rf /"
    assert "Denied" in page.get_by_role("region", name="Verdict").inner_text()
    page.goto(f"{server.url}/audit")
    live(page)
    page.get_by_role("button", name="Verify").click()
    page.get_by_role("status", name="Result").get_by_text(
        re.compile(r"^Intact: [\d,]+ records$")
    ).wait_for()


def test_limits_are_shown_as_verified_and_a_key_is_shown_once(
    server: Serving, open_page: Callable[..., Any]
) -> None:
    session = server.session(name="agent-limits")
    page = live(open_page(server.url, f"/sessions/{session}/limits", key=KEY))
    table = page.get_by_role("table", name="Limits as verified")
    for name in ("memory", "nofile"):
        row = table.get_by_role("row", name=re.compile(f"^{name}"))
        asked, in_force, by = row.get_by_role("cell").all_inner_texts()[1:]
        assert asked == in_force
        assert by in ("kernel", "init", "engine")
    page.goto(f"{server.url}/keys")
    live(page)
    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name").fill("for-ci")
    page.get_by_role("button", name="Make key").click()
    dialog = page.get_by_role("dialog", name="Your new key")
    assert re.fullmatch(
        r"bj_[\w-]{32,}", dialog.get_by_role("textbox", name="Key").input_value()
    )
    dialog.get_by_role("button", name="Close").click()
    page.get_by_role("button", name="Revoke for-ci").click()
    page.get_by_role("button", name="Revoke it").click()
    page.get_by_role("rowheader", name="for-ci").wait_for(state="detached")


def test_the_eleventh_wrong_key_in_a_minute_is_not_even_tried(server: Serving) -> None:
    """The last test of this file: nobody can sign in from here for a minute."""
    with httpx.Client(base_url=server.url) as caller:
        wrong = [
            caller.post("/login", data={"key": "bj_wrong"}).status_code
            for _ in range(11)
        ]
    assert wrong == [401] * 10 + [429]
