"""Choosing what to apply: forwards and backwards, by directory, by hunk, by hand."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.staged.conftest import Stage
from tests.staged.conftest import host as host
from tests.staged.conftest import stage as stage

from belljar.staged.review import Review
from belljar.surfaces.cli import editing, staged_choice
from belljar.surfaces.cli.staged_choice import Choice, items_of


@pytest.fixture(autouse=True)
def many(stage: Stage) -> None:
    (stage.merged / "a.txt").write_text(
        "1\ntwo\nthree\n" + "".join(f"{n}\n" for n in range(20))
    )
    (stage.merged / "b.txt").write_text("changed\n")
    (stage.merged / "dir" / "c.txt").write_text("changed\n")
    (stage.merged / "dir" / "e.txt").write_text("new\n")
    (stage.merged / "new" / "deep").mkdir(parents=True)
    (stage.merged / "new" / "deep" / "f").write_text("f\n")
    (stage.merged / "new" / "g").write_text("g\n")
    (stage.merged / "pic").write_bytes(b"\0" * 3000)


def choose(stage: Stage, monkeypatch: pytest.MonkeyPatch, *answers: str) -> list[str]:
    given: Iterator[str] = iter(answers)
    monkeypatch.setattr(staged_choice, "ask", lambda question: next(given))
    review = Review(stage.area)
    done = Choice(review, items_of(review.listed())).made()
    assert next(given, None) is None, "every answer was asked for"
    return done.paths


def test_a_new_directory_is_one_question_and_a_binary_file_has_its_size(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # a.txt, b.txt, dir/c.txt, dir/e.txt, new/, pic
    assert choose(stage, monkeypatch, "n", "n", "n", "n", "y", "n") == [
        "new",
        "new/deep",
        "new/deep/f",
        "new/g",
    ]
    shown = capsys.readouterr().out
    assert "+ new/  2 new, 4 bytes" in shown
    assert "# binary, 2.9 KiB" in shown


def test_one_file_is_kept_and_the_rest_left_with_four_keys(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(stage, monkeypatch, "n", "y", "q") == ["b.txt"]


def test_all_or_none_of_a_directory_is_one_letter(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(stage, monkeypatch, "n", "n", "a", "n", "n") == [
        "dir/c.txt",
        "dir/e.txt",
    ]


def test_none_of_a_directory_and_back_again(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(stage, monkeypatch, "y", "k", "n", "n", "d", "k", "y", "y", "n") == [
        "dir/e.txt", "new", "new/deep", "new/deep/f", "new/g",
    ]  # fmt: skip


def test_a_new_directory_is_unfolded(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose(stage, monkeypatch, "/", "new/g", "s", "n", "y", "q") == [
        "new",
        "new/g",
    ]
    assert not (stage.host / "new" / "deep").exists()


def test_what_was_edited_is_applied(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nsed -i s/changed/mine/ "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    monkeypatch.delenv("VISUAL", raising=False)
    assert choose(stage, monkeypatch, "j", "e", "q") == ["b.txt"]
    assert (stage.host / "b.txt").read_text() == "mine\n"
    assert editing.edited(b"changed", "x.py") == b"mine"


def test_what_the_host_would_run_is_asked_about_by_itself(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.merged / "new" / ".envrc").write_text("evil")
    names = [item.change.path for item in items_of(Review(stage.area).listed())]
    assert names == [
        "a.txt",
        "b.txt",
        "dir/c.txt",
        "dir/e.txt",
        "new",
        "new/.envrc",
        "pic",
    ]
    assert "new/.envrc" not in choose(stage, monkeypatch, "a")


def test_a_change_of_both_sides_is_asked_about_by_itself_and_can_keep_both(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Review(stage.area).listed()  # remembers how it was
    (stage.host / "b.txt").write_text("host\n")
    (stage.host / "dir" / "c.txt").write_text("c\nhost\n")
    (stage.merged / "dir" / "c.txt").write_text("sandbox\nc\n")
    assert choose(stage, monkeypatch, "n", "y", "t", "m", "n", "n", "n") == [
        "b.txt",
        "dir/c.txt",
    ]
    shown = capsys.readouterr().out
    assert "# changed on the host, changed in the sandbox" in shown
    assert (
        "# what you changed\n--- before\n+++ you\n@@ -1 +1,2 @@\n c\n+host\n# what the sandbox changed\n"
        in shown
    )
    assert (stage.host / "b.txt").read_text() == "changed\n"
    assert (stage.host / "dir" / "c.txt").read_text() == "sandbox\nc\nhost\n"


def test_all_of_a_directory_leaves_out_what_the_host_changed(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage.host / "dir" / "d.txt").write_text("host\n")
    (stage.merged / "dir" / "d.txt").write_text("sandbox\n")
    assert choose(stage, monkeypatch, "n", "n", "a", "n", "n") == [
        "dir/c.txt",
        "dir/e.txt",
    ]
