"""Names of sessions."""

from __future__ import annotations

from pathlib import Path

from tests.surfaces.cli.test_attach import session as session
from tests.surfaces.invoking import belljar


def test_a_session_has_a_name_and_only_one_has_it(
    session: str, workspace: Path
) -> None:
    assert belljar("run", "--session", "desk", "echo hi").stdout == "hi\n"
    assert [
        each["name"] for each in belljar("ps", "--json").json if each["id"] == session
    ] == ["desk"]
    assert session in belljar("audit", "show", "--session", "desk").stdout
    again = belljar("session", "start", "--workspace", workspace, "--name", "desk")
    assert again.status == 2
    assert "already" in again.complaint
    wrong = belljar("run", "--session", "dsk", "true")
    assert wrong.status == 2
    assert "did you mean 'desk'?" in wrong.complaint
    other = belljar("run", "--session", "bj-000", "true")
    assert (
        other.complaint
        == "belljar: no session bj-000; `belljar session list` lists them"
    )
    for bad in ("bj-desk", "../x", "-x", ""):
        assert (
            belljar(
                "session", "start", "--workspace", workspace, f"--name={bad}"
            ).status
            == 2
        )


def test_the_changes_of_a_session_can_be_named_after_its_end(workspace: Path) -> None:
    started = belljar(
        "session", "start", "--workspace", workspace, "--staged", "--name", "till-later"
    )
    assert started.status == 0, started.complaint
    belljar("run", "--session", "till-later", "echo 1 > one.txt")
    assert belljar("session", "stop", "till-later").status == 0
    listed = [
        each
        for each in belljar("ps", "--json").json
        if each["id"] == started.stdout.strip()
    ]
    assert [(each["name"], each["ended"]) for each in listed] == [("till-later", True)]
    assert "+1" in belljar("diff", "--session", "till-later").stdout
    again = belljar(
        "session", "start", "--workspace", workspace, "--staged", "--name", "till-later"
    )
    try:
        assert belljar("changes", "--session", "till-later", "--json").json == [], (
            "the one that runs has the name"
        )
    finally:
        belljar("session", "stop", again.stdout.strip())
        belljar("discard", "--session", started.stdout.strip())
