"""Which files of a workspace the host may run by itself, and how they are reported."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.runs_later.conftest import git

from belljar.runs_later import git_settings, ground, values
from belljar.runs_later.watch import Watch


def test_an_unchanged_workspace_reports_nothing(root: int) -> None:
    watch = Watch(root)
    assert watch.since(watch.before()) == ()


def test_many_long_settings_are_reported_and_not_read(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading them once took the host minutes, after a command of two seconds."""
    watch, settings, looked_at = Watch(root), git_settings.settings, 0

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
        (made / "config").write_text(
            "[core]\nhooksPath = x\n[color]\n" + "ui = auto\n" * 20_000
        )
    told = watch.since(before)
    assert looked_at < 16 * values.LONGEST
    assert len([name for name in told if name.endswith("config")]) >= 99
    assert watch.since(watch.before()) == (".",), (
        "where hooks may be that nobody looks at"
    )


def test_hook_samples_and_other_files_are_not_reported(
    root: int, tmp_path: Path
) -> None:
    watch = Watch(root)
    before = watch.before()
    for name in (
        ".git/hooks/pre-commit.sample",
        ".git/hooks/README.md",
        "Makefile",
        "sub.bashrc",
        "conftest.py",
    ):
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
def test_hooks_and_files_that_they_read_are_reported(
    root: int, tmp_path: Path, name: str
) -> None:
    watch = Watch(root)
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
    repositories: tuple[Path, Watch], place: str
) -> None:
    top, watch = repositories
    before = watch.before()
    (top / place).parent.mkdir(exist_ok=True)
    (top / place).write_text("evil")
    assert watch.since(before) == (place,)


def test_a_new_nested_repository_is_reported_if_it_runs_something(
    root: int, tmp_path: Path
) -> None:
    watch = Watch(root)
    before = watch.before()
    (tmp_path / "new").mkdir()
    git("init", "-q", cwd=tmp_path / "new")
    assert watch.since(before) == (), "a clone is an everyday thing"
    before = watch.before()
    (tmp_path / "new/.git/hooks/pre-commit").write_text("evil")
    assert watch.since(before) == ("new/.git/hooks/pre-commit",)


def test_a_new_bare_repository_is_reported_if_it_runs_something(
    root: int, tmp_path: Path
) -> None:
    watch = Watch(root)
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
    watch = Watch(root)
    (tmp_path / name).mkdir()
    texts = {
        "HEAD": "ref: refs/heads/main",
        "config": "[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = evil\n",
    }
    for file in sorted(texts, key=last.__eq__):
        before = watch.before()
        (tmp_path / name / file).write_text(texts[file])
        told = watch.since(before)
    assert {f"{name}/config", f"{name}/HEAD"} & set(told)


def test_many_directories_hide_no_repository(root: int, tmp_path: Path) -> None:
    for number in range(200):
        (tmp_path / f"a{number:03}").mkdir()
    (tmp_path / "old").mkdir()
    watch = Watch(root)
    for name in ("old", "zz"):
        before = watch.before()
        git("init", "-q", name, cwd=tmp_path)
        (tmp_path / name / ".git/hooks/pre-commit").write_text("evil")
        assert watch.since(before) == (f"{name}/.git/hooks/pre-commit",)


def test_directories_that_are_not_searched_are_reported_each_time(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("belljar.runs_later.watch.MOST_NEW", 20)
    watch = Watch(root)
    before = watch.before()
    for number in range(21):
        (tmp_path / f"a{number:03}").mkdir()
    assert watch.since(before) == (".",)
    assert watch.since(watch.before()) == (".",)


def test_a_workspace_that_becomes_a_bare_repository_is_reported(tmp_path: Path) -> None:
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    watch = Watch(descriptor)
    before = watch.before()
    (tmp_path / "HEAD").write_text("ref: refs/heads/main")
    (tmp_path / "config").write_text("[core]\n\tfsmonitor = evil\n")
    assert watch.since(before) == ("HEAD", "config")
    os.close(descriptor)


def test_nothing_behind_a_link_is_searched(
    root: int, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside")
    watch = Watch(root)
    before = watch.before()
    (tmp_path / ".git").rename(tmp_path / "was")
    (tmp_path / ".git").symlink_to(outside)
    assert watch.since(before) == (".git",)
    before = watch.before()
    (outside / "config").write_text("[core]\n\tfsmonitor = evil\n")
    assert watch.since(before) == ()


def test_changes_by_the_user_between_commands_are_not_reported(
    root: int, tmp_path: Path
) -> None:
    watch = Watch(root)
    watch.since(watch.before())
    (tmp_path / ".envrc").write_text("mine")
    assert watch.since(watch.before()) == ()


def test_a_file_that_appears_while_other_commands_run_is_reported(
    root: int, tmp_path: Path
) -> None:
    watch = Watch(root)
    watch.since(watch.before())
    (tmp_path / ".envrc").write_text("whose?")
    assert watch.since(watch.before(busy=True)) == (".envrc",)


def test_a_change_within_one_tick_of_the_clock_is_seen(
    root: int, tmp_path: Path
) -> None:
    watch = Watch(root)
    for n in range(20):
        before = watch.before()
        (tmp_path / ".envrc").write_text("x" * (n + 1))
        assert watch.since(before) == (".envrc",)
        (tmp_path / ".envrc").unlink()


def test_of_many_hooks_a_bounded_number_is_looked_at_and_the_rest_reported(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With 20,000 hooks every command once blocked the host's event loop for a tenth of a second."""
    monkeypatch.setattr(ground, "MOST_CANDIDATES", 20)
    for number in range(200):
        (tmp_path / ".git/hooks" / f"{number}").touch()
    watch = Watch(root)
    before = watch.before()
    assert len(before.states) <= 21
    (tmp_path / ".git/hooks/pre-commit").write_text("evil")
    assert "." in watch.since(before)


@pytest.fixture(params=["notified", "by times"])
def told(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Also where the user has no more notifiers."""
    if request.param == "by times":

        def refuse(root: int) -> None:
            raise OSError(24, "Too many open files")

        monkeypatch.setattr("belljar.runs_later.watch.Notifier", refuse)
    return str(request.param)


def test_whatever_is_made_anywhere_is_found(
    root: int, tmp_path: Path, told: str
) -> None:
    watch = Watch(root)
    for number in range(3):
        before = watch.before()
        deep = tmp_path / f"d{number}" / "e" / "f"
        deep.mkdir(parents=True)
        assert watch.since(before) == ()
        before = watch.before()
        (deep / ".envrc").write_text("evil")
        (tmp_path / f"d{number}" / "e" / ".vscode").mkdir()
        (tmp_path / f"d{number}" / "e" / ".vscode" / "mcp.json").write_text("{}")
        assert set(watch.since(before)) == {
            f"d{number}/e/f/.envrc",
            f"d{number}/e/.vscode/mcp.json",
        }
        before = watch.before()
        (tmp_path / f"d{number}").rename(tmp_path / f"m{number}")
        assert set(watch.since(before)) == {
            f"m{number}/e/f/.envrc",
            f"m{number}/e/.vscode/mcp.json",
        }
        before = watch.before()
        (tmp_path / f"m{number}" / "e" / "f" / ".envrc").write_text("more evil")
        assert watch.since(before) == (f"m{number}/e/f/.envrc",)


def test_a_look_at_an_unchanged_workspace_costs_the_same_however_large_it_is(
    root: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(600):
        (tmp_path / f"d{number}").mkdir()
    watch = Watch(root)
    watch.since(watch.before())
    looked: list[object] = []
    for name in ("stat", "listdir", "scandir", "open"):
        real: Callable[..., object] = getattr(os, name)
        monkeypatch.setattr(
            os, name, lambda *a, real=real, **k: looked.append(a) or real(*a, **k)
        )
    assert watch.is_quick()
    assert len(looked) < 10
