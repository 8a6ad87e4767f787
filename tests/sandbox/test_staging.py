"""What a sandbox sees as its workspace when changes are staged."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.owners import give
from tests.session.test_copied_workspace import kinds
from tests.session.test_staged import Open
from tests.session.test_staged import _nothing_stays as _nothing_stays
from tests.session.test_staged import engine_name as engine_name
from tests.session.test_staged import place as place
from tests.session.test_staged import staged as staged

from belljar import Session
from belljar.errors import ProtectionMissing
from belljar.staged import overlay
from belljar.workspace.idmap import unmount

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.engine]


async def test_the_host_sees_nothing_until_it_is_applied(
    staged: Open, place: Path
) -> None:
    async with staged() as box:
        result = await box.run(
            "echo two >> a.txt; rm b.txt; mkdir new; echo x > new/x; cat a.txt"
        )
        assert result.stdout == "one\ntwo\n"
        assert (place / "a.txt").read_text() == "one\n"
        assert await kinds(box) == {
            "a.txt": "modified",
            "b.txt": "deleted",
            "new": "added",
            "new/x": "added",
        }
        assert "+two\n" in await box.diff(["a.txt"])
        await box.apply(["a.txt"])
        assert (place / "a.txt").read_text() == "one\ntwo\n"
        assert "a.txt" not in await kinds(box)
        assert await box.discard(["b.txt"]) == ["b.txt"]
        assert (await box.run("cat b.txt")).stdout == "b\n"
        await box.apply()
        assert await kinds(box) == {}
        assert (place / "new" / "x").stat().st_uid == place.stat().st_uid
        assert await box.undo_apply() == ["new", "new/x"]
        assert not (place / "new").exists()


async def test_git_works_inside_and_a_commit_is_one_change(
    staged: Open, place: Path
) -> None:
    git: list[Any] = [
        "git",
        "-c",
        "safe.directory=*",
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "-C",
        place,
    ]
    for words in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    owner = place.stat()
    for each in place.rglob("*"):
        os.chown(each, owner.st_uid, owner.st_gid, follow_symlinks=False)
    async with staged(env={"GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b",
                           "GIT_COMMITTER_NAME": "a", "GIT_COMMITTER_EMAIL": "a@b"}) as box:  # fmt: skip
        assert (await box.run("git status --porcelain")).stdout == ""
        done = await box.run(
            "echo two > a.txt && git commit -qam two && git log --oneline | wc -l"
        )
        assert done.stdout == "2\n", done.stderr
        assert await kinds(box) == {".git": "modified", "a.txt": "modified"}
        assert (await box.apply()).held == []
    log = subprocess.run(
        [*git, "log", "--format=%s"], check=True, capture_output=True, text=True
    )
    assert log.stdout == "two\none\n"
    clean = subprocess.run(
        [*git, "status", "--porcelain"], check=True, capture_output=True, text=True
    )
    assert clean.stdout == ""


async def test_a_workspace_on_an_overlay_is_staged_and_one_on_two_of_them_refused(
    tmp_path: Path, base_image: str, engine_name: str
) -> None:
    stack = [tmp_path / "bottom"]
    stack[0].mkdir()
    (stack[0] / "a.txt").write_text("one\n")
    try:
        for number in range(2):
            upper, work, merged = (
                tmp_path / f"{name}-{number}" for name in ("upper", "work", "merged")
            )
            for each in (upper, work, merged):
                each.mkdir()
            overlay.mount([stack[-1]], upper, work, merged)
            stack.append(merged)
            for each in (merged, merged / "a.txt"):
                give(each)
        async with Session(stack[1], changes="staged", engine=engine_name) as box:
            await box.run("echo two >> a.txt; mkdir new")
            await box.apply()
        assert (stack[1] / "a.txt").read_text() == "one\ntwo\n"
        with pytest.raises(ProtectionMissing, match="stacks at most two overlays"):
            await Session(stack[2], changes="staged", engine=engine_name).open()
    finally:
        for each in reversed(stack[1:]):
            unmount(each)
