"""Whatever git, an editor or an agent runs is found, under any name; and live and staged workspaces agree about it."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from belljar.runs_later.watch import Watch
from belljar.staged import overlay
from belljar.staged.area import StagedArea
from belljar.workspace.idmap import unmount

Change = Callable[[Path], object]


def _write(path: str, text: str, mode: int = 0o644) -> Change:
    def write(top: Path) -> None:
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).unlink(missing_ok=True)
        (top / path).write_text(text)
        (top / path).chmod(mode)

    return write


def _link(path: str, target: str) -> Change:
    def link(top: Path) -> None:
        if (top / path).is_dir() and not (top / path).is_symlink():
            return
        (top / path).parent.mkdir(parents=True, exist_ok=True)
        (top / path).unlink(missing_ok=True)
        (top / path).symlink_to(target)

    return link


def _git(*words: str) -> Change:
    return lambda top: subprocess.run(
        ["git", *words], cwd=top, check=True, capture_output=True
    )


def _at_first(top: Path) -> None:
    """A project as somebody has it: hooks that lead elsewhere, settings of editors and agents."""
    subprocess.run(["git", "init", "-q", str(top)], check=True)
    for change in (
        _write("scripts/check", "#!/bin/sh\n./scripts/lint.sh\n", 0o755),
        _write("scripts/lint.sh", "true\n"),
        _write("scripts/clean.py", "x\n", 0o755),
        _link(".git/hooks/pre-commit", "../../scripts/check"),
        _git("config", "filter.mine.clean", "scripts/clean.py --fast"),
        _write(".claude/settings.json", '{"hooks": {"a": "old"}, "model": "x"}'),
        _write(".vscode/settings.json", '{"editor.tabSize": 2}'),
        _write(
            ".vscode/tasks.json",
            '{"tasks": [{"command": "make", "runOptions": {"runOn": "folderOpen"}}]}',
        ),
        _write("src/app.py", "x\n"),
        _link("agents", "other"),
        _write("other/x.md", "x\n"),
        _link("sub/.cursor", "../other"),
        _write("armed/hooks/post-merge", "x\n", 0o755),
        _write("set/config", "[core]\n\tfsmonitor = x\n"),
    ):
        change(top)
    time.sleep(0.02)  # files get their times from a clock that ticks slowly


RUN = {
    "R2 an escaped key": (_write(".claude/settings.json", '{"h\\u006foks": {"a": "new"}}'), ".claude/settings.json"),
    "R2 another command in an old hook": (
        _write(".claude/settings.json", '{"hooks": {\n"a": "old2"}, "model": "x"}'), ".claude/settings.json"),
    "R2 another command in an old task": (
        _write(".vscode/tasks.json", '{"tasks": [{"command": "evil", "runOptions": {"runOn": "folder\\u004fpen"}}]}'),
        ".vscode/tasks.json"),
    "R2 a setting with a comment": (
        _write(".vscode/settings.json", '{/* "x": 1 */ "python.defaultInterpreterPath" : "./evil",}'),
        ".vscode/settings.json"),
    "R5 what a hook links to": (_write("scripts/check", "evil", 0o755), "scripts/check"),
    "R5 what a hook calls": (_write("scripts/lint.sh", "evil"), "scripts/lint.sh"),
    "R6 a planted submodule": (
        _write(".git/modules/m/hooks/post-checkout", "evil"), ".git/modules/m/hooks/post-checkout"),
    "R6 a worktree's settings": (
        _write(".git/worktrees/w/config.worktree", "[core]\n\tfsmonitor = x\n"), ".git/worktrees/w/config.worktree"),
    "R8 mergeoptions": (_git("config", "branch.main.mergeoptions", "-F /etc/passwd"), ".git/config"),
    "R8 mirror": (_git("config", "remote.origin.mirror", "true"), ".git/config"),
    "R9 a rebase that runs something": (
        _write(".git/rebase-merge/git-rebase-todo", "pick 1\nexec evil\n"), ".git/rebase-merge/git-rebase-todo"),
    "R9 a sequencer": (_write(".git/sequencer/todo", "x evil\n"), ".git/sequencer/todo"),
    "R10 a program that a filter names": (_write("scripts/clean.py", "evil", 0o755), "scripts/clean.py"),
    "R10 .devcontainer.json": (_write(".devcontainer.json", "{}"), ".devcontainer.json"),
    "R10 a code workspace": (_write("a.code-workspace", '{"tasks": {"tasks": []}}'), "a.code-workspace"),
    "R10 lefthook": (_write("lefthook.yml", "x"), "lefthook.yml"),
    "R10 opencode": (_write("opencode.json", '{"mcp": {"x": 1}}'), "opencode.json"),
    "R10 pre-commit": (_write("pkg/.pre-commit-config.yaml", "x"), "pkg/.pre-commit-config.yaml"),
    "R10 an agent's hooks": (_write(".claude/hooks/deep/x", "x"), ".claude/hooks/deep/x"),
    "a linked directory of an agent": (_write("other/mcp.json", "{}"), "other/mcp.json"),
    "hooks in a package's file": (_write("package.json", '{"husky": {"hooks": {"a": "b"}}}'), "package.json"),
    "a nested repository": (_write("a/b/c/.git/hooks/post-merge", "x"), "a/b/c/.git/hooks/post-merge"),
    "a file for a git directory": (_write("a/.git", "gitdir: ../evil"), "a/.git"),
    "a link for an envrc": (_link("deep/.envrc", "x"), "deep/.envrc"),
    "what makes a directory with hooks one of git's": (_write("armed/HEAD", "ref: refs/heads/x\n"), "armed/HEAD"),
    "what makes a directory with settings one of git's": (_write("set/HEAD", "ref: refs/heads/x\n"), "set/HEAD"),
    "other objects": (_write(".git/objects/info/alternates", "/x"), ".git/objects/info/alternates"),
}  # fmt: skip
HARMLESS: dict[str, Change] = {
    "source": _write("src/app.py", "y\n"),
    "a new file": _write("src/new/app.py", "y\n"),
    "a package": _write("package.json", '{"scripts": {"test": "x"}}'),
    "an agent's model": _write(
        ".claude/settings.json", '{"hooks": {"a": "old"}, "model": "y"}'
    ),
    "an editor's tabs": _write(
        ".vscode/settings.json", '{"editor.tabSize": 4, // wide\n}'
    ),
    "a remote": _git("config", "remote.origin.url", "https://there/x"),
    "a ref": _write(".git/refs/heads/hooks/x", "0" * 40),
    "a rebase": _write(".git/rebase-merge/git-rebase-todo", "pick 1 exec\n# exec x\n"),
    "a sample": _write(".git/hooks/x.sample", "x"),
    "CI of a package": _write("node_modules/p/.travis.yml", "x"),
    "a repository": _git("init", "-q", "fresh"),
    "a bare repository": _git("init", "-q", "--bare", "fresh.git"),
    "a file HEAD": _write("doc/HEAD", "x"),
}


def _live(top: Path, changes: list[Change]) -> set[str]:
    descriptor = os.open(top, os.O_PATH | os.O_DIRECTORY)
    try:
        watch = Watch(descriptor)
        before = watch.before()
        for change in changes:
            change(top)
        return {*watch.since(before)}
    finally:
        os.close(descriptor)


class _Staged:
    def __init__(self, top: Path, state: Path) -> None:
        status = top.stat()
        id = f"bj-{len(list(state.glob('*'))):012x}"
        self.area = StagedArea.create(
            state, id, str(top), (status.st_dev, status.st_ino), 0, 0
        )
        self.merged = state.parent / f"merged-{id}"
        self.merged.mkdir()
        overlay.mount([top], self.area.path / "upper", self.area.work, self.merged)

    def __enter__(self) -> _Staged:
        return self

    def __exit__(self, *_: object) -> None:
        unmount(self.merged)

    def held(self) -> set[str]:
        """What would be held back at an apply."""
        with self.area.layers() as layers:
            return {
                single.path
                for change in layers.changes()
                for single in (change.members or (change,))
                if single.runs_later
            }


def _staged(top: Path, state: Path, changes: list[Change]) -> tuple[set[str], set[str]]:
    """Held back at an apply, and in the result of the command that did it."""
    with _Staged(top, state) as stage:
        host, upper = (
            os.open(path, os.O_PATH | os.O_DIRECTORY)
            for path in (top, stage.area.path / "upper")
        )
        watch = Watch(upper, host=host)
        before = watch.before()
        for change in changes:
            change(stage.merged)
        told = {*watch.since(before)}
        for descriptor in (host, upper):
            os.close(descriptor)
        return stage.held(), told


@pytest.fixture
def state(tmp_path: Path) -> Path:
    if os.geteuid() != 0:
        pytest.skip("only root can mount an overlay")
    (tmp_path / "state").mkdir()
    return tmp_path / "state"


@pytest.mark.parametrize("name", RUN)
def test_what_runs_later_is_found_live_and_staged(
    tmp_path: Path, state: Path, name: str
) -> None:
    change, path = RUN[name]
    top = tmp_path / "top"
    _at_first(top)
    assert _staged(top, state, [change]) == ({path}, {path})
    assert _live(top, [change]) == {path}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_not_told(tmp_path: Path, state: Path, name: str) -> None:
    top = tmp_path / "top"
    _at_first(top)
    assert _staged(top, state, [HARMLESS[name]]) == (set(), set())
    assert _live(top, [HARMLESS[name]]) == set()


@pytest.mark.parametrize("seed", range(25))
def test_live_and_staged_agree_about_any_changes(
    tmp_path: Path, state: Path, seed: int
) -> None:
    chance = random.Random(seed)
    first, second = tmp_path / "one", tmp_path / "two"
    _at_first(first)
    shutil.copytree(first, second, symlinks=True)
    names = [
        *(
            "src",
            "a",
            "b/c",
            ".git",
            ".git/hooks",
            ".git/modules/x",
            "bare.git",
            ".claude",
            "other",
            "scripts",
        ),
        *(".husky", ".vscode", "sub", ".github/workflows", "node_modules/p", ".idea"),
    ]
    files = [
        *(
            "HEAD",
            "config",
            "hooks/pre-push",
            "settings.json",
            "tasks.json",
            ".envrc",
            "x.sh",
            "index",
            "commondir",
        ),
        *(
            "lefthook.yml",
            ".mcp.json",
            "package.json",
            "startup.xml",
            "x/y.yml",
            "refs/heads/x",
            "README.md",
        ),
    ]
    texts = [
        "x",
        "{}",
        '{"hooks": 1}',
        "[core]\n\tfsmonitor = ./x.sh\n",
        "[user]\n\tname = x\n",
        "ref: refs/heads/main\n",
    ]
    changes: list[Change] = []
    for _ in range(chance.randrange(1, 12)):
        path = f"{chance.choice(names)}/{chance.choice(files)}"
        if chance.random() < 0.15:
            changes.append(
                _link(
                    path,
                    chance.choice(["../scripts", "../src", "x.sh", "../../other/x.md"]),
                )
            )
        else:
            changes.append(
                _write(path, chance.choice(texts) + "\n" * chance.randrange(3))
            )

    def tolerant(change: Change) -> Change:
        def run(top: Path) -> None:
            try:
                change(top)
            except (OSError, subprocess.CalledProcessError):
                return

        return run

    calm = [tolerant(change) for change in changes]
    held, told = _staged(second, state, calm)
    live = _live(first, calm)
    assert live == held
    assert told == held
