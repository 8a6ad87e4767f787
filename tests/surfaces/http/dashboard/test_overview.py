"""The overview in a real browser, with made-up sessions: what it shows, its keys, the cards, the order, the filters."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import live, until

ROWS = "#rows tr"


def card(page: Any, name: str) -> Any:
    return page.get_by_role("article", name=re.compile(re.escape(name)))


def focused(page: Any) -> str:
    return str(page.evaluate("document.activeElement.id"))


def test_fifty_rows_stand_whole_in_the_window_with_three_cards(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(50, 3)
    page = live(open_page(site.url))
    assert page.get_by_role("grid", name="Sessions").get_by_role("row").count() == 51
    boxes = page.evaluate(
        "[...document.querySelectorAll('#rows tr')].map(r => r.getBoundingClientRect()).map(b => [b.height, b.bottom])"
    )
    assert len(boxes) == 50
    assert max(height for height, _ in boxes) <= 18
    assert max(bottom for _, bottom in boxes) <= 1080
    assert page.get_by_role("article").count() == 3
    assert page.title() == "(3) Belljar"


def test_the_first_html_has_cards_and_rows_without_any_script(
    browser: Any, made_up: Any
) -> None:
    _, site = made_up(3, 1)
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{site.url}/login")
    page.get_by_label("Key", exact=True).fill("bj_" + "k" * 40)
    page.get_by_role("button", name="Sign in").click()
    assert page.get_by_role("article", name="Critical · agent-01").is_visible()
    assert page.get_by_role("row").count() == 4
    assert (
        page.get_by_role("mark").inner_text() == "sudo"
        if page.get_by_role("mark").count()
        else True
    )
    context.close()


def test_landmarks_and_the_first_thing_in_tab_order(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 1)
    page = live(open_page(site.url))
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main"
    for role, name in (
        ("banner", None),
        ("navigation", "Main"),
        ("main", None),
        ("group", "Show"),
        ("status", "Connection"),
    ):
        assert page.get_by_role(role, name=name).count() == 1, role
    for region in ("Waiting for you", "Sessions", "Output", "Last events"):
        assert page.get_by_role("region", name=region, exact=True).count() == 1, region
    heads = page.get_by_role("columnheader").all_inner_texts()
    assert heads == [
        "State",
        "Session",
        "Command",
        "For",
        "Last output",
        "CPU",
        "Memory",
        "Left",
        "Changes",
    ]


def test_one_key_allows_what_is_not_critical(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 2)
    page = live(open_page(site.url))
    page.keyboard.press("j")
    page.keyboard.press("j")
    assert focused(page) == "approval-a002"
    page.keyboard.press("a")
    card(page, "agent-02").get_by_text("Allowed once by ana").wait_for()
    assert world.approvals["a002"]["decided"]["scope"] == "once"
    assert focused(page) == "waiting-h"
    until(page, "document.title === '(1) Belljar'")


def test_a_critical_one_needs_another_key(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    page = live(open_page(site.url))
    page.keyboard.press("w")
    page.keyboard.press("a")
    confirm = page.get_by_role("group", name="Confirm")
    assert confirm.get_by_role("button", name="Cancel").evaluate(
        "e => e === document.activeElement"
    )
    page.keyboard.press("a")
    page.keyboard.press("Enter")
    assert confirm.count() == 0
    assert world.approvals["a001"]["state"] == "waiting"
    page.keyboard.press("a")
    page.keyboard.press("y")
    card(page, "agent-01").get_by_text("Allowed once by ana").wait_for()


def test_yes_stands_where_no_button_stood(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 1)
    page = live(open_page(site.url))
    first = card(page, "agent-01")
    before = [button.bounding_box() for button in first.get_by_role("button").all()]
    allow = before[0]
    page.mouse.dblclick(allow["x"] + 10, allow["y"] + 10)
    yes = first.get_by_role("button", name="Yes, allow once")
    if yes.count() == 0:  # the second click of the pair was Cancel
        first.get_by_role("button", name="Allow once").click()
    box = yes.bounding_box()
    assert all(
        box["y"] >= each["y"] + each["height"] or box["x"] >= each["x"] + each["width"]
        for each in before
    )
    cancel = first.get_by_role("button", name="Cancel").bounding_box()
    assert abs(cancel["x"] - allow["x"]) < 2
    assert abs(cancel["y"] - allow["y"]) < 2
    yes.click()
    first.get_by_text("Allowed once by ana").wait_for()


def test_for_this_session_is_always_two_steps(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 2)
    page = live(open_page(site.url))
    second = card(page, "agent-02")
    second.get_by_role("button", name="Allow for this session").click()
    second.get_by_role("button", name="Yes, allow for this session").click()
    second.get_by_text("Allowed for this session by ana").wait_for()
    assert world.approvals["a002"]["decided"]["scope"] == "session"


def test_denying_sends_the_reason_and_esc_goes_back(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    page = live(open_page(site.url))
    page.keyboard.press("w")
    page.keyboard.press("d")
    assert page.get_by_label("Reason for the agent").input_value() == ""
    page.keyboard.press("Escape")
    assert page.get_by_label("Reason for the agent").count() == 0
    assert focused(page) == "approval-a001"
    page.keyboard.press("d")
    page.keyboard.type("not as root, please")
    page.keyboard.press("Enter")
    card(page, "agent-01").get_by_text("Denied by ana: not as root, please").wait_for()
    assert world.approvals["a001"]["decided"]["reason"] == "not as root, please"


def test_without_focus_no_key_decides(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    page = live(open_page(site.url))
    for key in "asdyxp":
        page.keyboard.press(key)
    assert page.get_by_role("dialog").count() == 0
    assert page.get_by_role("group", name="Confirm").count() == 0
    assert world.approvals["a001"]["state"] == "waiting"


def test_single_keys_can_be_turned_off(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 1)
    page = live(open_page(site.url))
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Keys")
    dialog.get_by_label("Single keys").uncheck()
    dialog.get_by_role("button", name="Close").click()
    page.keyboard.press("w")
    assert focused(page) != "approval-a001"
    page.get_by_role("button", name="Keyboard").click()
    page.get_by_label("Single keys").check()


def test_a_card_that_comes_shifts_no_press_to_another(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(5, 2)
    page = live(open_page(site.url))
    page.mouse.move(1800, 600)
    page.evaluate("""() => { window.seen = []; new MutationObserver(all => all.forEach(m =>
      m.target.getAttribute('aria-disabled') === 'true' && seen.push(m.target.closest('article').id)))
      .observe(document.querySelector('#cards'),
        {subtree: true, attributes: true, attributeFilter: ['aria-disabled']}) }""")
    world.ask(3, risk="critical", text="sudo true")
    until(page, "document.querySelectorAll('article').length === 3")
    until(page, "seen.includes('approval-a002') && seen.includes('approval-a003')")
    assert "approval-a001" not in page.evaluate("seen")
    until(page, "!document.querySelector('article [aria-disabled=true]')")
    assert page.evaluate(
        "[...document.querySelectorAll('article')].map(a => a.id)"
    ) == [
        "approval-a001",
        "approval-a003",
        "approval-a002",
    ]
    until(
        page,
        "document.querySelector('#news').textContent === 'New approval: critical, agent-04, sudo true. 3 waiting.'",
    )


def test_under_a_pointer_new_cards_go_below(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(5, 2)
    page = live(open_page(site.url))
    card(page, "agent-02").hover()
    world.ask(3, risk="critical", text="sudo true")
    until(page, "document.querySelectorAll('article').length === 3")
    order = "[...document.querySelectorAll('article')].map(a => a.id)"
    assert page.evaluate(order) == ["approval-a001", "approval-a002", "approval-a003"]
    page.mouse.move(1800, 600)
    until(page, f"{order}.join() === 'approval-a001,approval-a003,approval-a002'")


def test_decided_elsewhere_is_told_in_its_place(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    page = live(open_page(site.url))
    found = world.approvals["a001"]
    found.update(
        state="denied",
        decided={
            "by": "k2",
            "name": "ben",
            "at": time.time(),
            "decision": "deny",
            "scope": "once",
            "reason": "no <b>root</b>",
        },
    )
    world.put("approvals", found)
    card(page, "agent-01").get_by_text("Denied by ben: no <b>root</b>").wait_for()
    assert card(page, "agent-01").get_by_role("button", name="Deny").count() == 0
    card(page, "agent-01").wait_for(state="detached")
    assert page.get_by_text("Nothing is waiting.").is_visible()


def test_a_text_that_changed_is_shown_before_anything_is_allowed(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    page = live(open_page(site.url))
    world.approvals["a001"].update(text="sudo rm other", token="other")
    world.put("approvals", world.approvals["a001"])
    page.get_by_text("This changed while you looked.").wait_for()
    assert "sudo rm other" in card(page, "agent-01").inner_text()


def test_who_may_not_decide_sees_no_buttons(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 1, scopes=("read",))
    page = live(open_page(site.url))
    assert (
        card(page, "agent-01")
        .get_by_text("Your key may look, not decide.")
        .is_visible()
    )
    assert card(page, "agent-01").get_by_role("button").count() == 0
    page.keyboard.press("w")
    page.keyboard.press("a")
    assert page.get_by_role("group", name="Confirm").count() == 0


def test_the_number_on_a_button_is_the_number_of_rows_it_leaves(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(50, 3)
    page = live(open_page(site.url))
    for name in ("Denied", "Failing", "Running", "All"):
        button = page.get_by_role("group", name="Show").get_by_role("button", name=name)
        if button.get_attribute("aria-pressed") != "true":
            button.click()
        number = int(button.inner_text().split()[-1])
        until(page, f"document.querySelectorAll('#rows tr').length === {number}")
    page.get_by_role("button", name="Denied").click()
    assert "state=denied" in page.url
    page.get_by_role("button", name="Denied").click()
    assert page.locator(ROWS).count() == 50
    page.get_by_role("searchbox", name="Filter sessions").fill("no such thing")
    assert page.get_by_text("No session matches.").is_visible()
    page.get_by_role("button", name="Show all").click()
    assert page.locator(ROWS).count() == 50


def test_stopping_asks_first_and_pausing_does_not(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 0)
    page = live(open_page(site.url))
    page.keyboard.press("t")
    assert focused(page).startswith("session-")
    id = "s003"
    page.locator(f"#session-{id}").focus()
    page.keyboard.press("p")
    page.locator(f"#session-{id}").get_by_text("paused").wait_for()
    page.keyboard.press("p")
    page.keyboard.press("x")
    dialog = page.get_by_role("dialog", name=f"Stop {world.sessions[id]['name']}?")
    assert dialog.get_by_role("button", name="Cancel").evaluate(
        "e => e === document.activeElement"
    )
    page.keyboard.press("Enter")
    dialog.wait_for(state="detached")
    assert world.sessions[id]["state"] != "ended"
    page.keyboard.press("x")
    page.keyboard.press("y")
    page.locator(f"#session-{id}").get_by_text("ended", exact=True).wait_for()


def test_a_swarm_is_stopped_after_its_number_is_typed(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(5, 0)
    page = live(open_page(site.url))
    assert page.get_by_role("button", name="Stop shown").count() == 0
    page.get_by_role("searchbox", name="Filter sessions").fill("agent-0")
    page.get_by_role("button", name="Stop shown").click()
    dialog = page.get_by_role("dialog", name="Stop 5 sessions?")
    dialog.get_by_role("button", name="Stop them").click(force=True)
    assert all(session["state"] != "ended" for session in world.sessions.values())
    dialog.get_by_label("Type 5 to confirm").fill("5")
    dialog.get_by_role("button", name="Stop them").click()
    until(
        page,
        "[...document.querySelectorAll('#rows [data-f=word]')].every(e => e.textContent === 'ended')",
    )


def test_output_of_the_chosen_session_runs_beside_the_table(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(5, 0)
    page = live(open_page(site.url))
    page.locator("#session-s001 td.command").click()
    page.get_by_role("heading", name="Output of agent-01").wait_for()
    page.wait_for_timeout(500)
    world.print(
        world.sessions["s001"],
        "\x1b[31mred\x1b[0m <img src=x onerror=alert(1)> \u202eevil \x07",
    )
    line = page.get_by_role("log").get_by_text(
        "red <img src=x onerror=alert(1)> ⟨U+202E⟩evil ␇"
    )
    line.wait_for()
    assert page.get_by_role("log").locator("img").count() == 0
    assert "session=s001" in page.url


def test_names_and_commands_of_hostile_agents_stay_text(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    evil = "<script>window.owned=1</script>\u202e\u200b"
    world.sessions["s001"]["name"] = evil
    world.approvals["a001"].update(
        text=f"echo '{evil}'\n" * 20, effects=[evil] * 8, marks=["echo"]
    )
    page = live(open_page(site.url))
    page.wait_for_timeout(600)
    found = card(page, "Critical")
    assert "⟨U+202E⟩⟨U+200B⟩" in found.get_by_role("heading").inner_text()
    assert "and 3 more" in found.inner_text()
    assert "21 lines" in found.inner_text()
    assert page.evaluate("window.owned") is None
    assert page.locator("mark").first.inner_text() == "echo"


def test_a_server_that_goes_is_told_and_comes_back(
    open_page: Callable[..., Any], made_up: Any, watched: Any
) -> None:
    from .conftest import Site
    from .made_up import application

    watched.expected = ("ERR_CONNECTION_REFUSED", "net::ERR")
    world, site = made_up(5, 2)
    page = live(open_page(site.url))
    page.keyboard.press("w")
    site.stop()
    page.get_by_role("alert").filter(
        has_text=re.compile(r"^Not live since \d\d:\d\d:\d\d\. Trying again\.$")
    ).wait_for()
    assert page.title() == "(!) Belljar"
    assert page.evaluate("document.documentElement.dataset.live") == "false"
    assert (
        page.get_by_role("button", name="Allow once").first.get_attribute(
            "aria-disabled"
        )
        == "true"
    )
    page.keyboard.press("d")
    assert page.get_by_label("Reason for the agent").count() == 0
    again = Site(application(world), site.port)
    live(page)
    until(page, "document.title === '(2) Belljar'")
    assert page.get_by_role("alert").filter(has_text="Not live").count() == 0
    assert page.locator("article").count() == 2
    assert page.locator(ROWS).count() == 5
    assert focused(page) == "approval-a001"
    again.stop()


def test_enter_leads_from_the_filter_to_what_it_found(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(5, 0)
    page = live(open_page(site.url))
    page.keyboard.press("/")
    page.keyboard.type("agent-03")
    page.keyboard.press("Enter")
    assert focused(page) == "session-s003"
    page.keyboard.press("x")
    page.get_by_role("dialog", name="Stop agent-03?").wait_for()


def test_many_tabs_share_one_stream(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(5, 2)
    page = live(open_page(site.url))
    for _ in range(7):
        live_tab = page.context.new_page()
        live_tab.goto(site.url)
        live(live_tab)
    assert world.streams == 1
    page.keyboard.press("w")
    page.keyboard.press("d")
    page.keyboard.press("Enter")
    live_tab.get_by_text("Denied by ana: A person said no.").wait_for()


def test_on_a_phone_nothing_scrolls_sideways_and_deny_is_away_from_allow(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(5, 2)
    world.approvals["a001"]["text"] = "sudo " + "x" * 400
    page = live(open_page(site.url, viewport={"width": 360, "height": 740}))
    page.wait_for_timeout(500)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    first = page.get_by_role("article").first
    boxes = {
        name: first.get_by_role("button", name=name).bounding_box()
        for name in ("Allow once", "Allow for this session", "Deny", "Explain")
    }
    assert all(box["height"] >= 44 and box["width"] >= 44 for box in boxes.values())
    assert (
        boxes["Deny"]["y"]
        - (
            boxes["Allow for this session"]["y"]
            + boxes["Allow for this session"]["height"]
        )
        >= 44
    )


@pytest.mark.parametrize("seconds", [12, pytest.param(60, marks=pytest.mark.soak)])
def test_fifty_sessions_with_ten_events_a_second_block_and_leak_nothing(
    open_page: Callable[..., Any], made_up: Any, seconds: int
) -> None:
    world, site = made_up(50, 3)
    page = live(open_page(site.url, "/?session=s001"))
    page.wait_for_timeout(1500)
    client = page.context.new_cdp_session(page)
    client.send("HeapProfiler.enable")
    page.evaluate(
        """() => { window.long = [];
        new PerformanceObserver(list => list.getEntries().forEach(e => long.push(e.duration)))
          .observe({type: 'longtask'}) }"""
    )

    def heap() -> float:
        client.send("HeapProfiler.collectGarbage")
        return float(client.send("Runtime.getHeapUsage")["usedSize"])

    def busy(until: float) -> None:
        """Ten rounds a second, each a change of every session."""
        beat = 0
        while time.monotonic() < until:
            beat += 1
            for session in world.sessions.values():
                world.print(session, f"line {beat} of {session['name']} " + "x" * 60)
            page.wait_for_timeout(100)

    start = time.monotonic()
    busy(start + seconds / 4)
    first = heap()
    page.evaluate("long.length = 0")
    busy(start + seconds)
    blocked = page.evaluate("long")
    last = heap()
    assert last <= max(first * 1.1, first + 2_000_000)
    assert page.locator("#log .line").count() <= 2000
    assert sum(blocked) < seconds * 1000 / 4, (
        blocked
    )  # a task of 50 ms counts; alone on a machine there is none
    until(
        page,
        "[...document.querySelectorAll('#rows .line')].some(e => e.textContent.startsWith('line '))",
    )


def test_a_failed_write_is_told_in_its_place_and_not_tried_again(
    open_page: Callable[..., Any], made_up: Any, watched: Any
) -> None:
    watched.expected = ("429",)
    _, site = made_up(3, 2)
    page = live(open_page(site.url))
    asked = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(
            status=429,
            headers={"Retry-After": "7"},
            json={"detail": "too many requests.", "code": "x"},
        )

    page.route("**/v1/approvals/*", refuse)
    card(page, "agent-02").get_by_role("button", name="Allow once").click()
    alert = (
        card(page, "agent-02").get_by_role("alert").filter(has_text="Could not allow")
    )
    assert "Could not allow: too many requests. Try again in 7 s." in alert.inner_text()
    assert len(asked) == 1
    alert.get_by_role("button", name="Dismiss").click()
    assert alert.count() == 0
    page.unroute("**/v1/approvals/*")
    card(page, "agent-02").get_by_role("button", name="Allow once").click()
    card(page, "agent-02").get_by_text("Allowed once by ana").wait_for()


def test_a_bypass_in_force_stands_above_everything_and_can_be_ended(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    world, site = made_up(3, 1)
    world.sessions["s002"].update(
        bypass_until=time.time() + 600, bypass={"by": "ben", "let_through": 4}
    )
    page = live(open_page(site.url))
    region = page.get_by_role("region", name="Bypass")
    region.get_by_text(
        re.compile(r"^agent-02 by ben, ends in 9:\d\d, 4 let through$")
    ).wait_for()
    region.get_by_role("button", name="End bypass").click()
    region.wait_for(state="hidden")
    assert world.sessions["s002"]["bypass_until"] is None


def test_two_hundred_rows_and_fifty_cards_are_shown_and_the_rest_on_demand(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(230, 63)
    page = live(open_page(site.url))
    until(page, "document.querySelectorAll('#rows tr').length === 200")
    assert page.get_by_role("article").count() == 50
    page.get_by_role("button", name="13 more, show").click()
    until(page, "document.querySelectorAll('article').length === 63")
    page.get_by_role("button", name="Show 100 more").click()
    until(page, "document.querySelectorAll('#rows tr').length === 230")


def test_without_shared_workers_the_page_has_a_stream_of_its_own(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(3, 1)
    page = live(open_page(site.url))
    page.context.add_init_script("delete window.SharedWorker")
    page.reload()
    live(page)
    until(page, "document.title === '(1) Belljar'")
