"""Staged changes from the command line: run, look, decide."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

from belljar import host

CHANGE = "echo two >> a.txt; echo new > b.txt; rm c.txt"


@pytest.fixture
def place(workspace: Path, base_image: str) -> Iterator[Path]:
    for name in ("a.txt", "c.txt"):
        (workspace / name).write_text("one\n")
        os.chown(workspace / name, workspace.stat().st_uid, workspace.stat().st_gid)
    yield workspace
    belljar("prune", "--staged", "--yes")


def areas() -> list[str]:
    root = host.default().staged_root
    return sorted(entry.name for entry in root.iterdir() if not entry.name.startswith(".")) if root.is_dir() else []


def run_staged(place: Path, command: str = CHANGE) -> str:
    answer = belljar("run", "--staged", "--json", command, cwd=place)
    assert answer.status == 0, answer
    return str(answer.json["session"])


def test_the_three_command_story(place: Path) -> None:
    answer = belljar("run", "--staged", CHANGE, cwd=place)
    assert (answer.status, answer.stdout) == (0, "")
    assert "+1 −1 ~1 staged as bj-" in answer.stderr
    assert (place / "a.txt").read_text() == "one\n"
    assert belljar("changes", cwd=place).stdout == "~ a.txt\n+ b.txt\n- c.txt\n"
    assert "+two\n" in belljar("diff", cwd=place).stdout
    assert belljar("apply", cwd=place).complaint == "belljar: 3 applied"
    assert (place / "a.txt").read_text() == "one\ntwo\n"
    assert not (place / "c.txt").exists()
    assert belljar("apply", "--undo", cwd=place).complaint == "belljar: 3 taken back"
    assert (place / "a.txt").read_text() == "one\n"


def test_the_status_is_the_commands_own_and_json_lists_the_changes(place: Path) -> None:
    answer = belljar("run", "--staged", "--json", "echo x > x; exit 7", cwd=place)
    assert answer.status == 7
    assert [(change["path"], change["kind"]) for change in answer.json["changes"]] == [("x", "added")]


def test_a_run_that_changes_nothing_leaves_nothing(place: Path) -> None:
    before = areas()
    assert belljar("run", "--staged", "cat a.txt", cwd=place).stderr == ""
    assert areas() == before


def test_a_denied_command_leaves_nothing(place: Path) -> None:
    before = areas()
    assert belljar("run", "--staged", "rm -rf /", cwd=place).status == 126
    assert areas() == before


def test_one_file_is_applied_and_the_rest_discarded(place: Path) -> None:
    id = run_staged(place)
    assert belljar("apply", "--session", id, "b.txt").complaint == "belljar: 1 applied"
    assert belljar("discard", "--session", id, "c.txt").complaint == "belljar: 1 discarded"
    assert belljar("changes", "--session", id).stdout == "~ a.txt\n"
    assert belljar("discard", "--session", id).status == 0
    assert sorted(path.name for path in place.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    assert (place / "a.txt").read_text() == "one\n"


def test_several_in_one_directory_must_be_named(place: Path) -> None:
    ids = {run_staged(place), run_staged(place)}
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


def test_prune_names_unapplied_work_and_drops_it_only_when_told_so(place: Path) -> None:
    id = run_staged(place)
    answer = belljar("prune")
    assert f"unapplied changes: {id} +1 −1 ~1" in answer.stderr
    assert id in areas()
    assert "--yes" in belljar("prune", "--staged").stderr
    assert id in areas()
    assert id in belljar("prune", "--staged", "--yes", "--json").json["staged_dropped"]
    assert areas() == []


def test_a_started_session_is_changed_checkpointed_and_taken_back(place: Path) -> None:
    id = belljar("session", "start", "--staged", cwd=place).stdout.strip()
    try:
        belljar("run", "--session", id, "echo two > a.txt")
        assert belljar("checkpoint", "--session", id, "good").stdout == "good\n"
        belljar("run", "--session", id, "echo three > a.txt; rm c.txt")
        assert "- c.txt" in belljar("changes", cwd=place).stdout
        assert belljar("rollback", cwd=place).complaint.startswith("belljar: the files are as they were at 'good'")
        assert belljar("run", "--session", id, "cat a.txt c.txt").stdout == "two\none\n"
        assert "no checkpoint 'bad'; choose from 'good'" in belljar("rollback", "--session", id, "bad").complaint
        assert "do not go together" in belljar("run", "--staged", "--session", id, "true").complaint
    finally:
        belljar("session", "stop", id)
    assert belljar("changes", cwd=place).stdout == "~ a.txt\n"


@pytest.mark.parametrize(("answer", "left"), [("y", "one\ntwo\n"), ("n", "one\n")])
def test_on_a_terminal_it_ends_with_the_list_and_a_question(place: Path, answer: str, left: str) -> None:
    terminal = Terminal.belljar("run", "--staged", "--workspace", place, CHANGE)
    seen = terminal.until("[k]eep for later: ")
    assert "~ a.txt" in seen
    assert "(+1 −1 ~1)" in seen
    terminal.type(answer + "\n")
    terminal.rest()
    assert (place / "a.txt").read_text() == left
    belljar("prune")
    assert belljar("session", "list", "--json").json == []


def test_choosing_hunk_by_hunk_and_keeping(place: Path) -> None:
    lines = [f"{number}\n" for number in range(40)]
    (place / "a.txt").write_text("".join(lines))
    change = "sed -i -e 's/^1$/first/' -e 's/^38$/last/' a.txt; echo new > b.txt"
    terminal = Terminal.belljar("run", "--staged", "--workspace", place, change)
    terminal.until("[k]eep for later: ")
    terminal.type("c\n")
    terminal.until("Apply a.txt? [y,n,s,q,?] ")
    terminal.type("?\n")
    assert "s - decide hunk by hunk" in terminal.until("Apply a.txt? [y,n,s,q,?] ")
    terminal.type("s\n")
    terminal.until("Apply hunk 1 of 2? [y,n,q,?] ")
    terminal.type("n\n")
    terminal.until("Apply hunk 2 of 2? [y,n,q,?] ")
    terminal.type("y\n")
    terminal.until("Apply b.txt? [y,n,q,?] ")
    terminal.type("y\n")
    assert "~1 kept as bj-" in terminal.rest()
    text = (place / "a.txt").read_text()
    assert "last" in text
    assert "first" not in text
    assert belljar("apply", "--undo", cwd=place).complaint == "belljar: 2 taken back"
    assert (place / "a.txt").read_text() == "".join(lines)
    assert not (place / "b.txt").exists()


def test_what_both_sides_changed_is_merged_when_asked_for(place: Path) -> None:
    (place / "a.txt").write_text("1\n2\n3\n4\n5\n")
    run_staged(place, "sed -i s/1/sandbox/ a.txt")
    (place / "a.txt").write_text("1\n2\n3\n4\nhost\n")
    assert "--merge keeps both" in belljar("apply", cwd=place).stderr
    assert "1 of them merged" in belljar("apply", "--merge", cwd=place).stderr
    assert (place / "a.txt").read_text() == "sandbox\n2\n3\n4\nhost\n"


def test_safe_mode_has_the_verbs_and_undoes_a_risky_command(place: Path) -> None:
    terminal = Terminal.belljar("shell", "--staged", "--workspace", place)
    terminal.line("mkdir -p sub && cd sub && echo two > ../a.txt")
    terminal.until("exit 0")
    terminal.line("rm -rf ../*.txt; ls ..")
    terminal.until("exit 0")
    terminal.line(":changes")
    assert "- a.txt" in terminal.until("- c.txt")
    terminal.line(":undo")
    terminal.until("the files are as they were before")
    terminal.line("pwd; cat ../a.txt")
    assert "/workspace/sub" in terminal.until("two")
    terminal.line(":diff a.txt")
    terminal.until("+two")
    terminal.line(":discard sub")
    terminal.until("1 discarded")
    terminal.line(":apply")
    terminal.until("1 applied")
    terminal.line("cd /workspace && echo x > d.txt")
    terminal.until("±1")
    terminal.line(":apply --mrge d.txt")
    terminal.until("--mrge is no option of :apply")
    terminal.line(":apply --merge d.txt")
    terminal.until("1 applied")
    terminal.line(":quit")
    terminal.rest()
    assert (place / "a.txt").read_text() == "two\n"
    assert (place / "d.txt").read_text() == "x\n"


def test_safe_mode_without_staging_does_not_offer_the_verbs(place: Path) -> None:
    terminal = Terminal.belljar("shell", "--workspace", place)
    terminal.line(":undo")
    terminal.until("not available in this session")
    terminal.line(":quit")
    terminal.rest()
