"""Audit, policy, usage and keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from belljar.surfaces.http.dashboard.books import BUCKETS, drawn

from .conftest import live


def test_charts_are_made_of_the_records_of_their_time() -> None:
    records = [
        {"kind": "verdict", "time": 10.0, "verdict": {"decision": "deny"}},
        {"kind": "start", "time": 10.0},
        {"kind": "end", "time": 11.0, "duration": 2.0},
        {"kind": "end", "time": 11.5, "duration": 4.0},
    ]
    load, took, denials = drawn(records, 0.0, float(BUCKETS))
    assert load["table"]["rows"][0]["cells"][1] == "1"
    assert took["table"]["rows"][0]["cells"][1:] == ["2 s", "4 s"]
    assert denials["table"]["rows"][0]["cells"][1:] == ["1", "1"]


def test_a_search_finds_words_in_any_field(client: Callable[..., Any]) -> None:
    caller = client()
    assert 'id="record-' in caller.get("/audit?q=exited").text
    assert "No record matches." in caller.get("/audit?q=nothing-like-it").text


def test_the_policy_box(open_page: Callable[..., Any], made_up: Any) -> None:
    _, site = made_up(1, 0)
    page = live(open_page(site.url, "/policy"))
    page.get_by_role("textbox", name="Command").fill("sudo make install")
    assert page.get_by_role("combobox", name="Policy").input_value() == "default"
    page.get_by_role("button", name="Check").click()
    verdict = page.get_by_role("region", name="Verdict")
    assert "Asks" in verdict.inner_text()
    assert verdict.get_by_role("heading", level=3).all_inner_texts() == [
        "Words",
        "Effects",
        "Rules",
        "What the agent is told",
    ]


def test_each_chart_has_its_table(open_page: Callable[..., Any], made_up: Any) -> None:
    _, site = made_up(3, 0)
    page = live(open_page(site.url, "/usage"))
    assert page.get_by_role("table", name="Tenants").is_visible()
    for name in ("Load", "Duration of commands", "Denials"):
        region = page.get_by_role("region", name=name)
        region.get_by_text("Numbers").click()
        assert region.get_by_role("table", name=name).is_visible()


def test_making_a_key_asks_for_its_scopes(
    open_page: Callable[..., Any], made_up: Any
) -> None:
    _, site = made_up(1, 0)
    page = live(open_page(site.url, "/keys"))
    heads = (
        page.get_by_role("table", name="Keys")
        .get_by_role("columnheader")
        .all_inner_texts()
    )
    assert heads == ["Name", "Scopes", "Tenant", "Made", "Last used", "Expires"]
    page.get_by_role("button", name="New key").click()
    dialog = page.get_by_role("dialog", name="New key")
    for scope in ("run", "read", "approve", "admin"):
        assert dialog.get_by_role("checkbox", name=scope).is_visible()
    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Revoke ci-agents").click()
    page.get_by_role("dialog", name="Revoke ci-agents?").get_by_role(
        "button", name="Cancel"
    ).click()
