"""Files that the host would run are held back until a person approves them."""

from __future__ import annotations

import contextlib

import pytest
from tests.staged.conftest import Stage

from belljar.errors import Conflict, UsageError
from belljar.staged.apply import apply
from belljar.staged.review import Review


def test_a_file_that_the_host_would_run_is_applied_only_with_runs_later(
    stage: Stage,
) -> None:
    (stage.merged / ".envrc").write_text("evil")
    (stage.merged / "x").write_text("x")
    result = apply(stage.area)
    assert (result.held, result.paths) == ([".envrc"], ["x"])
    with pytest.raises(UsageError, match=r"run \.envrc by itself; --runs-later"):
        apply(stage.area, [".envrc"])
    apply(stage.area, [".envrc"], runs_later=True)
    assert (stage.host / ".envrc").read_text() == "evil"


def test_a_commit_is_applied_and_a_planted_hook_is_held(stage: Stage) -> None:
    (stage.host / ".git" / "objects").mkdir(parents=True)
    (stage.host / ".git" / "config").write_text("[core]\n\tbare = false\n")
    (stage.merged / ".git" / "objects" / "aa").write_text("blob")
    (stage.merged / ".git" / "index").write_text("index")
    assert apply(stage.area).held == []
    (stage.merged / ".git" / "hooks").mkdir()
    (stage.merged / ".git" / "hooks" / "pre-commit").write_text("evil")
    assert apply(stage.area).held == [".git"]
    (stage.merged / ".git" / "hooks" / "pre-commit").unlink()
    (stage.merged / ".git" / "config").write_text(
        "[core]\n\tbare = false\n\tfsmonitor = evil\n"
    )
    assert apply(stage.area).held == [".git"]


@pytest.mark.parametrize(
    "path",
    [
        ".git",
        "sub/.git",
        ".git/hooks",
        ".git/config",
        ".vscode",
        "sub/.claude",
        ".github",
    ],
)
def test_a_link_to_a_file_that_is_run_is_held_back(stage: Stage, path: str) -> None:
    (stage.merged / path).parent.mkdir(exist_ok=True)
    (stage.merged / "harmless").mkdir()
    (stage.merged / path).symlink_to(stage.host / "harmless")
    assert [held for held in apply(stage.area).held if path.startswith(held)]
    assert not (stage.host / path).is_symlink()


def test_settings_too_long_to_be_read_are_held_back(stage: Stage) -> None:
    (stage.host / ".git").mkdir()
    (stage.merged / ".git" / "config").write_text(
        "#" * (2 << 20) + "\n[core]\n\tfsmonitor = evil\n"
    )
    assert apply(stage.area).held == [".git"]


@pytest.mark.parametrize("when", ["read", "journal"])
def test_settings_that_a_running_sandbox_swaps_meanwhile_are_not_applied(
    stage: Stage, when: str
) -> None:
    (stage.host / ".git").mkdir()
    config = stage.merged / ".git" / "config"
    config.write_text("[core]\n\tbare = false\n")

    def swap(step: str) -> None:
        if step == when:
            config.write_text("[core]\n\tfsmonitor = evil\n")

    with contextlib.suppress(Conflict):
        apply(stage.area, step=swap)
    applied = stage.host / ".git" / "config"
    assert not applied.exists() or "evil" not in applied.read_text()


def test_a_yes_to_a_directory_is_none_to_what_the_host_would_run_in_it(
    stage: Stage,
) -> None:
    (stage.merged / "new").mkdir()
    (stage.merged / "new" / ".envrc").write_text("evil")
    (stage.merged / "new" / "x").write_text("x")
    review = Review(stage.area)
    seen = {
        change: review.show(change)
        for change in review.changes()
        if not change.runs_later
    }
    assert review.apply_chosen(seen, {}).paths == ["new", "new/x"]
    assert not (stage.host / "new" / ".envrc").exists()
