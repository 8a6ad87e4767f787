"""What a session shows at a glance, of real sandboxes."""

from __future__ import annotations

import time
from typing import Any

from tests.surfaces.http.serving import Serving

from belljar.surfaces.http.vitals import HOT_SECONDS, LOUD_SECONDS, Vitals

PATIENCE = 60.0


def seen(server: Serving, session: str, field: str, expected: Any = None) -> Any:
    """The field, once it is there, and as expected."""
    end = time.monotonic() + PATIENCE
    while (
        found := server.client.get(f"/v1/sessions/{session}").json()[field]
    ) is None or expected not in (
        None,
        found,
    ):
        assert time.monotonic() < end, f"{field} is {found}"
        time.sleep(0.2)
    return found


def test_the_last_line_is_the_last_that_is_not_empty() -> None:
    vitals = Vitals()
    for piece in (b"one\ntwo", b" and more\n\n", b"   \n"):
        vitals.printed(piece)
    assert vitals.line == "two and more"
    vitals.printed(b"10%\r20%\r")
    assert vitals.line == "20%"


def test_it_is_hot_after_a_while_and_not_before() -> None:
    vitals, now = Vitals(), 1000.0
    vitals._hot_since = now
    assert not vitals.as_dict(now + HOT_SECONDS - 1)["hot"]
    assert vitals.as_dict(now + HOT_SECONDS)["hot"]
    vitals._hot_since, vitals._loud_since = None, now
    assert vitals.as_dict(now + LOUD_SECONDS)["hot"]


def test_a_session_tells_its_last_command_its_load_and_its_changes(
    server: Serving,
) -> None:
    session = server.session(changes="staged", workspace="vitals")
    server.run(session, "printf 'a\\nb\\nc\\n' > new; echo written; exit 3")
    found = server.client.get(f"/v1/sessions/{session}").json()
    assert found["last_line"] == "written"
    assert (found["last"]["cause"], found["last"]["exit_code"]) == ("exited", 3)
    assert found["denied"] is None
    seen(server, session, "staged", {"added": 3, "removed": 0, "files": 1})
    usage = seen(server, session, "usage")
    assert usage["memory"] > 0
    assert usage["cpu"] >= 0
    server.client.post(f"/v1/sessions/{session}/commands", json={"command": "rm -rf /"})
    assert seen(server, session, "denied") <= time.time()


def test_a_session_says_what_is_in_force_and_by_whose_word(
    server: Serving, session: str
) -> None:
    found = {
        each["limit"]: each
        for each in server.client.get(f"/v1/sessions/{session}").json()["verified"]
    }
    assert {
        "memory",
        "pids",
        "nofile",
        "network",
        "read_only_root",
        "capabilities",
    } <= set(found)
    assert found["network"]["in_force"] == "none"
    assert all(each["by"] for each in found.values())


def test_the_newest_records_of_the_trail_come_first_if_asked(
    server: Serving, session: str
) -> None:
    server.run(session, "true")
    first = server.client.get("/v1/audit?order=newest&limit=3").json()
    second = server.client.get(
        f"/v1/audit?order=newest&limit=3&cursor={first['next']}"
    ).json()
    order = [record["seq"] for record in [*first["items"], *second["items"]]]
    assert order == sorted(order, reverse=True)
    assert len(set(order)) == len(order)
