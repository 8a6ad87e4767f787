"""Which files of a workspace the host may run by itself, and how they are reported."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.workspace.conftest import git

from belljar.workspace import git_settings, host_run_files
from belljar.workspace.host_run_files import FileState, HostRunFiles


def test_an_unchanged_workspace_reports_nothing(root: int) -> None:
    watch = HostRunFiles(root)
    assert watch.since(watch.before()) == ()


def test_many_long_settings_are_reported_and_not_read(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them once took the host minutes, after a command of two seconds."""
    watch, settings, looked_at = HostRunFiles(root), git_settings.settings, 0

    def counted(content: bytes) -> set[git_settings.Setting] | None:
        nonlocal looked_at
        looked_at += len(content)
        return settings(content)

    monkeypatch.setattr(git_settings, "settings", counted)
    before = watch.before()
    for number in range(100):
        made = tmp_path / f"d{number}/.git"
        made.mkdir(parents=True)
        (made / "HEAD").write_text("ref: refs/heads/main\n")
        (made / "config").write_text("[core]\nhooksPath = x\n[color]\n" + "ui = auto\n" * 20_000)
    told = watch.since(before)
    assert looked_at < 8 * host_run_files.READ
    assert sum(len(content or b"") for _, content in watch._contents.values()) <= host_run_files.READ
    assert len([name for name in told if name.endswith("config")]) >= 99
    assert watch.since(watch.before()) == (".",), "where hooks may be that nobody looks at"


def test_hook_samples_and_other_files_are_not_reported(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    before = watch.before()
    for name in (".git/hooks/pre-commit.sample", ".git/hooks/README.md", "Makefile", ".bashrc", "conftest.py"):
        (tmp_path / name).write_text("x")
    assert watch.since(before) == ()


@pytest.mark.parametrize(
    "name",
    [
        ".husky/_/husky.sh",
        ".husky/pre-commit",
        ".githooks/post-merge",
        ".git/hooks/helper.sh",
        ".git/commondir",
        ".git/remotes/origin",
    ],
)
def test_hooks_and_files_that_they_read_are_reported(root: int, tmp_path: Path, name: str) -> None:
    watch = HostRunFiles(root)
    before = watch.before()
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("evil")
    assert watch.since(before) == (name,)


@pytest.mark.parametrize(
    "place",
    [".git/hooks/pre-commit", ".git/modules/vendor/library/hooks/post-checkout", "deep/nested/.git/hooks/pre-commit",
     "mirror.git/hooks/post-receive"],
)  # fmt: skip
def test_hooks_of_nested_repositories_and_submodules_are_reported(
    repositories: tuple[Path, HostRunFiles], place: str
) -> None:
    top, watch = repositories
    before = watch.before()
    (top / place).parent.mkdir(exist_ok=True)
    (top / place).write_text("evil")
    assert watch.since(before) == (place,)


def test_a_new_nested_repository_is_reported_if_it_runs_something(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    before = watch.before()
    (tmp_path / "new").mkdir()
    git("init", "-q", cwd=tmp_path / "new")
    assert watch.since(before) == (), "a clone is an everyday thing"
    before = watch.before()
    (tmp_path / "new/.git/hooks/pre-commit").write_text("evil")
    assert watch.since(before) == ("new/.git/hooks/pre-commit",)


def test_a_new_bare_repository_is_reported_if_it_runs_something(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    before = watch.before()
    git("init", "-q", "--bare", "evil.git", cwd=tmp_path)
    assert watch.since(before) == ()
    before = watch.before()
    (tmp_path / "evil.git/hooks/pre-receive").write_text("evil")
    git("config", "core.fsmonitor", "evil", cwd=tmp_path / "evil.git")
    assert watch.since(before) == ("evil.git/config", "evil.git/hooks/pre-receive")


@pytest.mark.parametrize("name", ["bare", ".vscode"])
@pytest.mark.parametrize("last", ["HEAD", "config"])
def test_a_git_directory_is_reported_in_whatever_order_and_place_it_is_made(
    root: int, tmp_path: Path, name: str, last: str
) -> None:
    watch = HostRunFiles(root)
    (tmp_path / name).mkdir()
    texts = {"HEAD": "ref: refs/heads/main", "config": "[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = evil\n"}
    for file in sorted(texts, key=last.__eq__):
        before = watch.before()
        (tmp_path / name / file).write_text(texts[file])
        told = watch.since(before)
    assert told == (f"{name}/config",)


def test_many_directories_hide_no_repository(root: int, tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"a{number:03}").mkdir()
    (tmp_path / "old").mkdir()
    watch = HostRunFiles(root)
    for name in ("old", "zz"):
        before = watch.before()
        git("init", "-q", name, cwd=tmp_path)
        (tmp_path / name / ".git/hooks/pre-commit").write_text("evil")
        assert watch.since(before) == (f"{name}/.git/hooks/pre-commit",)


def test_directories_that_are_not_searched_are_reported_each_time(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_run_files, "_BELOW", 20)
    watch = HostRunFiles(root)
    before = watch.before()
    for number in range(21):
        (tmp_path / f"a{number:03}").mkdir()
    assert watch.since(before) == (".",)
    assert watch.since(watch.before()) == (".",)


def test_repositories_that_are_not_watched_are_reported(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_run_files, "_WATCHED", 2)
    watch = HostRunFiles(root)
    for number in range(3):
        before = watch.before()
        git("init", "-q", "--bare", f"{number}.git", cwd=tmp_path)
        assert watch.since(before) == (() if number < 2 else (".",))


def test_a_workspace_that_becomes_a_bare_repository_is_reported(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    watch = HostRunFiles(descriptor)
    before = watch.before()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main")
    assert watch.since(before) == ("HEAD",)
    os.close(descriptor)


def test_nothing_behind_a_link_is_searched(root: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    outside = tmp_path_factory.mktemp("outside")
    watch = HostRunFiles(root)
    before = watch.before()
    (tmp_path / ".git").rename(tmp_path / "was")
    (tmp_path / ".git").symlink_to(outside)
    assert watch.since(before) == (".git",)
    before = watch.before()
    (outside / "config").write_text("[core]\n\tfsmonitor = evil\n")
    assert watch.since(before) == ()


def test_changes_by_the_user_between_commands_are_not_reported(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    watch.since(watch.before())
    (tmp_path / ".envrc").write_text("mine")
    assert watch.since(watch.before()) == ()


def test_a_file_that_appears_while_other_commands_run_is_reported(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    watch.since(watch.before())
    (tmp_path / ".envrc").write_text("whose?")
    assert watch.since(watch.before(busy=True)) == (".envrc",)


def test_a_change_within_one_tick_of_the_clock_is_seen(root: int, tmp_path: Path) -> None:
    watch = HostRunFiles(root)
    for n in range(20):
        before = watch.before()
        (tmp_path / ".envrc").write_text("x" * (n + 1))
        assert watch.since(before) == (".envrc",)
        (tmp_path / ".envrc").unlink()


def test_of_many_hooks_a_bounded_number_is_read_and_a_new_one_still_reported(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 20,000 hooks every command once blocked the host's event loop for a tenth of a second."""
    monkeypatch.setattr(host_run_files, "_LISTED", 20)
    looked = 0

    def counted(
        name: str, directory: int, seen: Callable[[str, int], FileState | None] = host_run_files._state_of
    ) -> FileState | None:
        nonlocal looked
        looked += 1
        return seen(name, directory)

    for number in range(200):
        (tmp_path / ".git/hooks" / f"{number}.sample").touch()
    for number in range(200):
        (tmp_path / f"file{number}").touch()
    monkeypatch.setattr(host_run_files, "_state_of", counted)
    watch = HostRunFiles(root)
    before = watch.before()
    assert looked < 100
    (tmp_path / ".git/hooks/pre-commit").write_text("evil")
    assert {".git/hooks/.", ".git/hooks/pre-commit"} & set(watch.since(before))
