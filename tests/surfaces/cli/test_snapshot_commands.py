"""`belljar snapshots make|list|remove` and `--snapshot`, over separate calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.surfaces.http.serving import KEY, serving
from tests.surfaces.invoking import belljar


@pytest.fixture
def ready(workspace: Path) -> Iterator[str]:
    """A snapshot of a staged session."""
    id = belljar(
        "session", "start", "--staged", "--pids", "99", "--workspace", workspace
    ).stdout.strip()
    assert (
        belljar("run", "--session", id, "echo staged > file; echo t > /tmp/t").status
        == 0
    )
    assert belljar("start", "--session", id, "sleep 600").status == 0
    made = belljar("snapshots", "make", id, "ready")
    assert (made.status, made.stdout) == (0, "ready\n"), made.stderr
    assert "not in it: processes" in made.stderr
    assert belljar("session", "stop", id).status == 0
    yield "ready"
    belljar("snapshots", "remove", "ready")


def test_a_run_begins_with_a_snapshot(
    ready: str, workspace: Path, tmp_path: Path
) -> None:
    answer = belljar("run", "--snapshot", ready, "cat file /tmp/t; pwd", cwd=tmp_path)
    assert answer.stdout == "staged\nt\n/workspace\n"
    assert "staged as" in answer.stderr, "it is staged, as the original was"
    assert not (workspace / "file").exists()
    id = belljar(
        "session", "start", "--snapshot", ready, "--memory", "300m"
    ).stdout.strip()
    (listed,) = [
        each for each in belljar("session", "list", "--json").json if each["id"] == id
    ]
    assert (listed["snapshot"], listed["workspace"]) == (ready, str(workspace))
    assert listed["limits"]["memory"] == 300 << 20
    assert belljar("session", "stop", id).status == 0


def test_snapshots_are_listed_and_removed(ready: str, workspace: Path) -> None:
    (listed,) = belljar("snapshots", "list", "--json").json
    assert (listed["name"], listed["workspace"], listed["left_out"]) == (
        "ready",
        str(workspace),
        ["processes"],
    )
    assert "ready" in belljar("snapshots", "list").stdout
    assert belljar("snapshots", "remove", "ready").status == 0
    assert belljar("snapshots", "list", "--json").json == []
    refused = belljar("run", "--snapshot", "ready", "true")
    assert (refused.status, "belljar snapshots list" in refused.stderr) == (2, True)


def test_snapshots_at_a_service_are_made_listed_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as server:
        monkeypatch.setenv("BELLJAR_URL", server.url)
        monkeypatch.setenv("BELLJAR_KEY", KEY)
        session = server.session(env={"OWN": "1"})
        server.run(session, "echo w > file")
        made = belljar("snapshots", "make", session, "there")
        assert (made.status, made.stdout) == (0, "there\n"), made.stderr
        assert [
            each["name"] for each in belljar("snapshots", "list", "--json").json
        ] == ["there"]
        answer = belljar(
            "run", "--snapshot", "there", "cat file; echo $OWN", cwd=tmp_path
        )
        assert answer.stdout == "w\n1\n", answer.stderr
        assert belljar("snapshots", "remove", "there").status == 0
        assert belljar("snapshots", "list", "--json").json == []
