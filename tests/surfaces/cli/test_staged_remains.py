"""Staged changes that outlived their session."""

from __future__ import annotations

from pathlib import Path

from tests.owners import give
from tests.surfaces.cli.test_staged_commands import CHANGE, areas, run_staged
from tests.surfaces.cli.test_staged_commands import place as place
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

from belljar import host
from belljar.staged.area import StagedArea


def test_with_several_staged_sessions_one_must_be_named(place: Path) -> None:
    ids = {run_staged(place), run_staged(place, CHANGE, "--new")}
    complaint = belljar("diff", cwd=place).complaint
    assert all(id in complaint for id in ids)


def test_sessions_that_ended_are_listed_with_their_changes(place: Path) -> None:
    id = run_staged(place)
    listed = belljar("session", "list").stdout
    (line,) = [each for each in listed.splitlines() if id in each]
    assert "ended" in line
    assert "+1 −1 ~1" in line
    facts = {each["id"]: each for each in belljar("session", "list", "--json").json}
    assert (facts[id]["ended"], facts[id]["changes"]) == (True, "+1 −1 ~1")


def test_prune_names_unapplied_changes_and_drops_them_only_when_asked(
    place: Path,
) -> None:
    id = run_staged(place)
    answer = belljar("prune")
    assert f"unapplied changes: {id} +1 −1 ~1" in answer.stderr
    assert id in areas()
    assert "--yes" in belljar("prune", "--staged").stderr
    assert id in areas()
    assert id in belljar("prune", "--staged", "--yes", "--json").json["staged_dropped"]
    assert areas() == []


def test_prune_asks_on_a_terminal_and_accepts_only_yes(place: Path) -> None:
    id = run_staged(place)
    for answer, left in (("", [id]), ("n", [id]), ("y", [])):
        terminal = Terminal.belljar("prune", "--staged")
        assert id in terminal.until("for good? [y/N] ")
        terminal.type(answer + "\n")
        terminal.rest()
        assert [each for each in areas() if each == id] == left


def test_changes_of_a_replaced_directory_do_not_block_the_new_one(place: Path) -> None:
    old = run_staged(place)
    assert belljar("apply", "b.txt", cwd=place).status == 0
    place.rename(place.with_name("moved"))
    place.mkdir()
    give(place)
    assert (
        "no staged changes of this directory" in belljar("changes", cwd=place).complaint
    )
    new = run_staged(place, "echo new > n")
    assert belljar("changes", cwd=place).stdout == "+ n\n"
    assert f"belljar discard {old}" in belljar("diff", old, cwd=place).complaint
    assert belljar("apply", cwd=place).complaint == "belljar: 1 applied"
    assert (
        f"belljar: 1 taken back, applied by {new}"
        in belljar("apply", "--undo", cwd=place).complaint
    )
    (line,) = [
        each for each in belljar("session", "list").stdout.splitlines() if old in each
    ]
    assert "workspace gone" in line
    assert belljar("discard", old).status == 0
    assert old not in areas()
    assert new


def test_of_a_deleted_workspace_only_unapplied_changes_are_kept(place: Path) -> None:
    done = run_staged(place, "echo 1 > 1; mkdir d; echo 2 > d/2; rm c.txt")
    waiting = run_staged(place, "echo 3 > 3", "--new")
    assert belljar("apply", done).status == 0
    place.rename(place.with_name("moved"))
    listed = belljar("session", "list").stdout
    assert done not in listed
    assert "workspace gone" in next(
        line for line in listed.splitlines() if waiting in line
    )
    belljar("prune")
    assert [id for id in areas() if id in (done, waiting)] == [waiting]


def test_prune_drops_only_what_is_old_enough_and_of_the_directory_that_was_named(
    place: Path,
) -> None:
    old, new = run_staged(place), run_staged(place, CHANGE, "--new")
    area = StagedArea.find(host.default().staged_root, old)
    area._note(created=area.meta["created"] - 8 * 86400)
    assert belljar("prune", "--older", "7d").status == 2
    elsewhere = belljar("prune", "--staged", "--yes", "--json", "--workspace", "/usr")
    assert elsewhere.json["staged_dropped"] == []
    assert "no staged changes to drop" in elsewhere.stderr
    asked = belljar("prune", "--staged", "--older", "7d", "--workspace", place)
    assert f"unapplied changes: {old} +1 −1 ~1 of {place}, 8d ago" in asked.stderr
    assert new not in asked.stderr
    dropped = belljar(
        "prune",
        "--staged",
        "--yes",
        "--json",
        "--older",
        "7d",
        "--workspace",
        place.parent,
    )
    assert dropped.json["staged_dropped"] == [old]
    assert [id for id in areas() if id in (old, new)] == [new]
