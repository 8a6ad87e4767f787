"""Both sides changed a text file: changes to different lines are merged, changes to the same lines are a conflict."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.staged.conftest import Stage

from belljar.errors import Conflict
from belljar.staged import apply as applying
from belljar.staged import merge
from belljar.staged.apply import apply, undo
from belljar.staged.merge import merged

BASE = "".join(f"{n}\n" for n in range(10))


@pytest.fixture
def text(stage: Stage) -> Stage:
    """The sandbox has changed the first line of `a.txt`, and its changes have been listed."""
    (stage.host / "a.txt").write_text(BASE)
    stage.area._note(
        since=stage.area.since + 10**9
    )  # as if the session had started only now
    (stage.merged / "a.txt").write_text(BASE.replace("0\n", "sandbox\n"))
    assert stage.kinds() == {"a.txt": "modified"}
    stage.area._note(since=stage.area.since - 10**9)
    return stage


def _host(stage: Stage, old: str, new: str) -> None:
    file = stage.host / "a.txt"
    file.write_text(file.read_text().replace(old, new))


def test_changes_to_different_lines_are_both_kept(text: Stage) -> None:
    _host(text, "9\n", "host\n")
    with pytest.raises(Conflict):
        apply(text.area)
    assert list(apply(text.area, merge=True).merged) == ["a.txt"]
    assert (text.host / "a.txt").read_text() == BASE.replace(
        "0\n", "sandbox\n"
    ).replace("9\n", "host\n")
    assert text.kinds() == {}, (
        "nothing is left to apply, though the sandbox has not seen the host's change"
    )


def test_what_the_sandbox_does_after_a_merge_is_merged_again(text: Stage) -> None:
    _host(text, "9\n", "host\n")
    apply(text.area, merge=True)
    (text.merged / "a.txt").write_text(
        (text.merged / "a.txt").read_text().replace("5\n", "more\n")
    )
    with pytest.raises(Conflict):  # it would undo the host's change
        apply(text.area)
    apply(text.area, merge=True)
    assert (
        text.host / "a.txt"
    ).read_text() == "sandbox\n1\n2\n3\n4\nmore\n6\n7\n8\nhost\n"


def test_a_merge_can_be_undone_and_repeated(text: Stage) -> None:
    _host(text, "9\n", "host\n")
    apply(text.area, merge=True)
    undo(text.area)
    assert (text.host / "a.txt").read_text() == BASE.replace("9\n", "host\n")
    assert text.kinds() == {"a.txt": "modified"}
    apply(text.area, merge=True)
    assert (text.host / "a.txt").read_text() == BASE.replace(
        "0\n", "sandbox\n"
    ).replace("9\n", "host\n")


def test_changes_to_the_same_lines_are_a_conflict_and_nothing_is_applied(
    text: Stage,
) -> None:
    _host(text, "0\n", "host\n")
    (text.merged / "new").write_text("x")
    with pytest.raises(Conflict):
        apply(text.area, merge=True)
    assert not (text.host / "new").exists()


def test_without_a_base_version_a_conflict_is_not_merged(text: Stage) -> None:
    (base,) = (text.area.path / merge.FOLDER).iterdir()
    base.write_bytes(base.read_bytes()[:-1])  # as if a crash had cut it off
    _host(text, "9\n", "host\n")
    with pytest.raises(Conflict):
        apply(text.area, merge=True)


def test_the_host_s_own_change_is_never_taken_for_a_base(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text("sandbox\ntwo\nthree\n")
    (stage.host / "a.txt").write_text("one\ntwo\nhost\n")
    stage.changes()
    with pytest.raises(Conflict):
        apply(stage.area, merge=True)


def test_settings_of_git_that_are_merged_are_judged_as_they_will_be(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A running sandbox could show harmless settings to the check, and other ones to the merge."""
    lines = [
        "[user]",
        "name = a",
        "email = a",
        "[init]",
        "defaultbranch = a",
        "[pull]",
        "ff = true",
        "",
    ]
    own = stage.host / ".git" / "config"
    own.parent.mkdir()
    own.write_text("\n".join(lines))
    stage.area._note(since=stage.area.since + 10**9)
    staged = stage.merged / ".git" / "config"
    harmless, harmful = (
        "\n".join([*lines, *more])
        for more in (["[user]", "name = b", ""], ["[core]", "pager = b", ""])
    )
    staged.write_text(harmless)
    stage.changes()
    stage.area._note(since=stage.area.since - 10**9)
    own.write_text("\n".join(lines).replace("name = a", "name = host"))

    def conflicts(*given: Any) -> dict[str, str]:
        staged.write_text(harmful)
        return found(*given)

    found = applying.conflicts
    monkeypatch.setattr(applying, "conflicts", conflicts)
    with pytest.raises(Conflict, match="while it was looked at"):
        apply(
            stage.area, merge=True, step=lambda _: staged.write_text(harmless) and None
        )
    assert "pager" not in own.read_text()


@pytest.mark.skipif(shutil.which("git") is None, reason="compared with git's own merge")
def test_merges_agree_with_git_merge_file(tmp_path: Path) -> None:
    chance = random.Random(7)
    clean = 0
    for _ in range(150):
        base = [b"%d\n" % chance.randrange(8) for _ in range(12)]
        sides = [_edited(base, chance) for _ in range(2)]
        found = merged(base, *sides)
        for name, lines in zip(
            ("ours", "base", "theirs"), (sides[0], base, sides[1]), strict=True
        ):
            (tmp_path / name).write_bytes(b"".join(lines))
        done = subprocess.run(["git", "merge-file", "-p", "ours", "base", "theirs"], cwd=tmp_path, capture_output=True,
                              check=False)  # fmt: skip
        if found is not None and done.returncode == 0:
            clean += _same_lines(b"".join(found), done.stdout)
    assert clean > 30


def _same_lines(one: bytes, other: bytes) -> bool:
    assert sorted(one.splitlines()) == sorted(other.splitlines())
    return True


def _edited(lines: list[bytes], chance: random.Random) -> list[bytes]:
    at = chance.randrange(len(lines))
    return [
        *lines[:at],
        b"new %d\n" % chance.randrange(9),
        *lines[at + chance.randrange(3) :],
    ]


def test_a_merge_that_was_refused_loses_nothing_of_the_sandbox(text: Stage) -> None:
    """Another file's overlapping changes refuse it; the next merge begins from the same base."""
    (text.host / "b.txt").write_text("b\n")
    text.area._note(since=text.area.since + 10**9)
    (text.merged / "b.txt").write_text("sandbox b\n")
    assert text.kinds() == {"a.txt": "modified", "b.txt": "modified"}
    text.area._note(since=text.area.since - 10**9)
    (text.host / "b.txt").write_text("host b\n")
    _host(text, "9\n", "host\n")
    with pytest.raises(Conflict, match=r"b\.txt"):
        apply(text.area, merge=True)
    assert list(apply(text.area, ["a.txt"], merge=True).merged) == ["a.txt"]
    assert (text.host / "a.txt").read_text() == BASE.replace(
        "0\n", "sandbox\n"
    ).replace("9\n", "host\n")


def test_what_was_merged_is_the_base_of_the_next_merge(text: Stage) -> None:
    """So the sandbox may change its own lines again."""
    _host(text, "9\n", "host\n")
    apply(text.area, merge=True)
    (text.merged / "a.txt").write_text(BASE.replace("0\n", "other\n"))
    apply(text.area, merge=True)
    assert (text.host / "a.txt").read_text() == BASE.replace("0\n", "other\n").replace(
        "9\n", "host\n"
    )
