"""The words of the first HTML, and that the scripts say the same of the same things."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from belljar.surfaces.http.dashboard import assets, present

from .made_up import World

NOW = 1_800_000_000.0
READY: dict[str, Any] = {
    "id": "s1",
    "name": "a",
    "state": "ready",
    "created": NOW - 60,
    "expires": NOW + 900,
}
SESSIONS: dict[str, dict[str, Any]] = {
    "idle": {**READY},
    "running": {**READY, "current": {"id": "c", "command": "x", "started": NOW - 5}},
    "waiting": {
        **READY,
        "waiting": 1,
        "current": {"id": "c", "command": "x", "started": NOW - 5},
    },
    "failing": {
        **READY,
        "last": {"id": "c", "command": "x", "cause": "timeout", "ended": NOW - 9},
    },
    "lost": {**READY, "state": "ended", "reason": "lost"},
    "starting": {**READY, "state": "pulling"},
    "paused": {**READY, "state": "paused", "paused": True},
    "ended": {
        **READY,
        "state": "ended",
        "reason": "deleted",
        "last": {"cause": "timeout"},
    },
}
TEXTS = (
    "plain",
    "tab\tand\nline",
    "bidi \u202eevil\u2066",
    "zero\u200bwidth \U000e0041",
    "\x1b[31mred\x1b[0m",
    "bell\x07 and \x7f",
    "é ✓ 漢字",
    "\x1b]52;c;Zm9v\x07",
    "",
)
NUMBERS = (0, 59, 60, 3599, 3600, 90_000)
SIZES = (0, 1023, 1024, 61 << 20, 1 << 30, 1_610_612_736)


@pytest.mark.parametrize("word", SESSIONS)
def test_the_state_is_the_first_that_fits(word: str) -> None:
    assert present.status(SESSIONS[word]) == word


def test_a_plain_exit_code_is_an_agents_everyday() -> None:
    assert (
        present.status({**READY, "last": {"cause": "exited", "exit_code": 1}}) == "idle"
    )


def test_what_needs_a_person_comes_first() -> None:
    found = sorted(
        SESSIONS, key=lambda word: present.rank({**SESSIONS[word], "id": word}, NOW)
    )
    assert found == [
        "waiting",
        "lost",
        "failing",
        "running",
        "starting",
        "paused",
        "idle",
        "ended",
    ]
    hot = {**SESSIONS["running"], "hot": True}
    assert present.badges({**hot, "denied": NOW - 299, "expires": NOW + 299}, NOW) == [
        "denied",
        "hot",
        "ends soon",
    ]
    assert present.rank(hot, NOW) < present.rank(SESSIONS["running"], NOW)


def test_risky_words_are_marked_where_they_are_words() -> None:
    assert present.marked("sudo sudoku; rm -rf /x", ["sudo", "-rf"]) == [
        ("sudo", True),
        (" sudoku; rm ", False),
        ("-rf", True),
        (" /x", False),
    ]
    assert present.marked("echo", []) == [("echo", False)]


def test_a_card_lists_five_effects_and_how_many_more() -> None:
    approval = {
        **World(1, 1).approvals["a001"],
        "effects": [f"effect {n}" for n in range(12)],
    }
    assert present.card(approval, "x", NOW)["effects"][-1] == "and 7 more"


def test_the_scripts_say_the_same(open_page: Callable[..., Any], made_up: Any) -> None:
    world, site = made_up(20, 2)
    page = open_page(site.url, "/login", key=None)

    def told(function: str, values: Any) -> Any:
        return page.evaluate(
            """async ([url, name, values]) => {
              const all = await import(url); return values.map(each => all[name](...each)) }""",
            [assets.url("present.js"), function, json.loads(json.dumps(values))],
        )

    sessions = [*SESSIONS.values(), *world.sessions.values()]
    approvals = [(each["text"], each["marks"]) for each in world.approvals.values()] + [
        ("a.b sudo rm/x -rf", ["sudo", "rm", "-rf", "a.b"])
    ]
    for function, mine, values in (
        ("status", present.status, [(each,) for each in sessions]),
        ("badges", present.badges, [(each, NOW) for each in sessions]),
        ("shown", present.shown, [(each,) for each in TEXTS]),
        ("oneLine", present.one_line, [(each,) for each in TEXTS]),
        ("outputText", present.output_text, [(each,) for each in TEXTS]),
        (
            "plainReason",
            present.plain_reason,
            [("It deletes. (delete: /x)",), ("as it is",)],
        ),
        (
            "linesChanged",
            present.lines_changed,
            [({"added": 0, "removed": 0},), ({"added": 2, "removed": 0},), (None,)],
        ),
        ("clock", present.clock, [(each,) for each in NUMBERS]),
        ("size", present.size, [(each,) for each in SIZES]),
        (
            "marked",
            lambda *given: [list(each) for each in present.marked(*given)],
            approvals,
        ),
        ("eventWord", present.event_word, [(each,) for each in world.records]),
        ("eventText", present.event_text, [(each,) for each in world.records]),
    ):
        assert told(function, values) == [mine(*each) for each in values], function
    ranks = told("rank", [(each, NOW) for each in sessions])
    assert [each[0] for each in ranks] == [
        present.rank(each, NOW)[0] for each in sessions
    ]
