"""All places where git looks for programs to run, under any name."""

from __future__ import annotations

from pathlib import Path

from tests.staged.conftest import Stage

from belljar.staged.apply import apply


def test_hooks_of_a_submodule_that_is_named_like_a_store_are_held(stage: Stage) -> None:
    (stage.host / ".git" / "modules" / "x" / "objects").mkdir(parents=True)
    (stage.merged / ".git" / "modules" / "x" / "objects" / "hooks").mkdir()
    (
        stage.merged / ".git" / "modules" / "x" / "objects" / "hooks" / "post-checkout"
    ).write_text("evil")
    assert apply(stage.area).held == [".git"]


def test_a_git_directory_by_another_name_is_held_back(stage: Stage) -> None:
    for name in ("objects", "refs"):
        (stage.merged / "store" / name).mkdir(parents=True)
    (stage.merged / "store" / "config").write_text(
        "[core]\n\tfsmonitor = evil\n\tworktree = .\n"
    )
    (stage.merged / "store" / "HEAD").write_text("ref: refs/heads/main\n")
    assert apply(stage.area).held == ["store/HEAD", "store/config"]
    apply(stage.area, ["store/HEAD", "store/config"], runs_later=True)
    (stage.merged / "store" / "config").write_text(
        "[core]\n\tfsmonitor = worse\n\tworktree = .\n"
    )
    assert apply(stage.area).held == ["store/config"]


def test_files_that_the_host_s_git_settings_point_to_are_held_back(
    stage: Stage, host: Path
) -> None:
    (host / ".git" / "hooks").mkdir(parents=True)
    (host / ".git" / "config").write_text(
        "[core]\n\thooksPath = scripts/hooks\n[include]\n\tpath = ../team\n"
    )
    (host / ".git" / "hooks" / "pre-push").symlink_to("../../scripts/check")
    (host / ".claude").symlink_to("agents")
    wanted = [
        "agents/settings.json",
        "scripts/check",
        "scripts/hooks/pre-commit",
        "team",
    ]
    for path in [*wanted, "scripts/other"]:
        (stage.merged / path).parent.mkdir(exist_ok=True, parents=True)
        (stage.merged / path).write_text("evil")
    assert apply(stage.area).held == wanted
    assert (host / "scripts" / "other").exists()


def test_hooks_in_a_directory_whose_name_begins_with_two_dots_are_held(
    stage: Stage, host: Path
) -> None:
    (host / ".git").mkdir()
    (host / ".git" / "config").write_text("[core]\n\thooksPath = ..hooks\n")
    (stage.merged / "..hooks").mkdir()
    (stage.merged / "..hooks" / "pre-commit").write_text("evil")
    assert apply(stage.area).held == ["..hooks/pre-commit"]
