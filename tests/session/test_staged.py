"""Staged sessions in real sandboxes: review, apply, discard, checkpoints, and what outlives the session."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import belljar
from belljar import host as hosts
from belljar.errors import Conflict, UsageError
from belljar.session.session import Session
from belljar.staged.area import StagedArea
from belljar.staged.review import Review

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.engine]
ENGINES = [
    pytest.param("docker", marks=pytest.mark.docker),
    pytest.param("oci", marks=pytest.mark.oci),
]
Open = Callable[..., Session]


@pytest.fixture(params=ENGINES)
def engine_name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["workspace", "root_workspace"])
def place(request: pytest.FixtureRequest) -> Path:
    """Once a user's own workspace, once root's, which is id-mapped."""
    path: Path = request.getfixturevalue(request.param)
    return _filled(path)


def _filled(path: Path) -> Path:
    owner = path.stat()
    (path / "dir").mkdir()
    for name, text in {"a.txt": "one\n", "b.txt": "b\n", "dir/c.txt": "c\n"}.items():
        (path / name).write_text(text)
    for each in path.rglob("*"):
        os.chown(each, owner.st_uid, owner.st_gid)
    return path


@pytest.fixture
def mine(workspace: Path) -> Path:
    return _filled(workspace)


@pytest.fixture
def staged(place: Path, engine_name: str) -> Open:
    return lambda **more: Session(place, changes="staged", engine=engine_name, **more)


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    yield
    for area in StagedArea.all(root()):
        area.remove()


def root() -> Path:
    return hosts.default().staged_root


async def test_a_file_changed_on_the_host_meanwhile_is_a_conflict(
    staged: Open, place: Path
) -> None:
    async with staged() as box:
        await box.run("echo sandbox > a.txt")
        (place / "a.txt").write_text("host\n")
        with pytest.raises(Conflict, match=r"a\.txt"):
            await box.apply()
        assert (place / "a.txt").read_text() == "host\n"
        await box.apply(force=True)
        assert (place / "a.txt").read_text() == "sandbox\n"


async def test_a_checkpoint_waits_until_nothing_runs_beside_it(staged: Open) -> None:
    async with staged() as box:
        shell = await box.start("sleep 300")
        with pytest.raises(UsageError, match=shell.id):
            await box.checkpoint()
        await shell.kill()
        await box.checkpoint()


async def test_a_fork_and_its_origin_change_independently(staged: Open) -> None:
    async with staged() as box:
        await box.run("echo common > x")
        twin = await box.fork()
        try:
            await box.run("echo left > y")
            await twin.run("echo right > y; rm a.txt")
            assert (await twin.run("cat x y")).stdout == "common\nright\n"
            assert (await box.run("cat x y a.txt")).stdout == "common\nleft\none\n"
            between = await box.diff(against=twin)
            assert "-left\n+right\n" in between
            assert "common" not in between
        finally:
            await twin.close()
        assert (await box.run("cat x y")).stdout == "common\nleft\n"


@pytest.mark.parametrize("wish", ["keep", "discard", "apply", None])
async def test_the_end_keeps_discards_or_applies_as_it_was_told(
    mine: Path, engine_name: str, wish: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with Session(
        mine, changes="staged", engine=engine_name, on_close=wish
    ) as box:
        await box.run("echo two > a.txt")
        id = box.id
    assert (mine / "a.txt").read_text() == ("two\n" if wish == "apply" else "one\n")
    left = [area.id for area in StagedArea.all(root()) if area.changes()]
    assert left == ([id] if wish in ("keep", None) else [])
    said = [
        record.getMessage()
        for record in caplog.records
        if record.name == "belljar.staged"
    ]
    assert len(said) == (wish is None)
    assert all(
        f"~1 kept as {id}: `belljar review --session {id}` shows" in each
        for each in said
    )


async def test_a_session_whose_block_raised_applies_nothing(
    mine: Path, engine_name: str
) -> None:
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 the block is what is tested
        async with Session(
            mine, changes="staged", engine=engine_name, on_close="apply"
        ) as box:
            await box.run("echo two > a.txt")
            raise ZeroDivisionError
    assert (mine / "a.txt").read_text() == "one\n"
    assert len(StagedArea.all(root())) == 1


async def test_an_apply_at_the_end_that_meets_a_conflict_says_so_and_keeps_the_changes(
    mine: Path, engine_name: str
) -> None:
    async with Session(
        mine, changes="staged", engine=engine_name, on_close="apply", keep=True
    ) as box:
        await box.run("echo two > a.txt")
        (mine / "a.txt").write_text("host\n")
        with pytest.raises(Conflict, match=r"a\.txt"):
            await box.stop()
    assert len(StagedArea.all(root())) == 1


def test_only_a_staged_session_has_an_end_to_choose(mine: Path) -> None:
    with pytest.raises(UsageError, match='on_close="apply" is for changes="staged"'):
        Session(mine, on_close="apply")
    with pytest.raises(UsageError, match="on_close: 'drop' is not known"):
        Session(mine, changes="staged", on_close="drop")  # type: ignore[arg-type]


async def test_before_risky_commands_a_checkpoint_is_made(staged: Open) -> None:
    async with staged(checkpoints="auto") as box:
        await box.run("echo x > x")
        assert box.checkpoints() == []
        await box.run("rm -rf dir")
        assert [point.name for point in box.checkpoints()] == ["before rm -rf dir"]
        await box.rollback()
        assert (await box.run("cat x dir/c.txt")).stdout == "x\nc\n"


async def test_the_policy_allows_reversible_commands(
    mine: Path, engine_name: str
) -> None:
    subprocess.run(["git", "-c", "safe.directory=*", "init", "-q", mine], check=True)
    for command in ("rm -rf *", "git reset --hard"):
        async with Session(mine, changes="staged", engine=engine_name) as box:  # type: ignore[arg-type]
            verdict = (await box.admit(command)).verdict
            assert (verdict.decision, verdict.risk) == ("allow", "high")
    assert belljar.Policy.load("default").judge("rm -rf *").decision != "allow"
    async with Session(mine, changes="staged", engine=engine_name) as box:  # type: ignore[arg-type]
        await box.run("rm -rf *")
        assert (await box.run("ls")).stdout == ""
        assert (mine / "a.txt").exists()
        await box.discard()
        assert (await box.run("cat a.txt dir/c.txt")).stdout == "one\nc\n"


async def test_a_file_that_the_host_would_run_is_reported_and_held_back(
    staged: Open, place: Path
) -> None:
    async with staged(approve=lambda verdict: True) as box:
        result = await box.run("echo evil > .envrc; echo x > x")
        assert result.runs_later == (".envrc",)
        done = await box.apply()
        assert (done.held, done.paths) == ([".envrc"], ["x"])
        assert not (place / ".envrc").exists()
        await box.checkpoint()
        assert (await box.run("echo more >> .envrc")).runs_later == (".envrc",)
        assert (await box.run("rm .envrc")).runs_later == ()


async def test_git_status_rereads_no_file_because_of_its_owner(
    staged: Open, place: Path
) -> None:
    for each in place.rglob("*"):
        os.utime(each, (1e9, 1e9))
    git = ["git", "-c", "safe.directory=*", "-C", str(place)]
    for words in (["init", "-q"], ["add", "-A"]):
        subprocess.run([*git, *words], check=True)
    async with staged() as box:
        assert (await box.run("git status --porcelain | wc -l")).stdout.strip() == "3"
        assert not (box.staged.area.path / "upper" / ".git" / "index").exists()


OTHER = """
import json, sys, anyio, belljar

async def main():
    box = await belljar.Session.attach(sys.argv[1], engine=sys.argv[2])
    {work}
    await box.close()

anyio.run(main)
"""


def elsewhere(id: str, engine: str, *work: str) -> str:
    """Do `work` with the session in another process. Returns what it prints."""
    script = OTHER.format(work="\n    ".join(work))
    done = subprocess.run(
        [sys.executable, "-c", script, id, engine],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def test_another_process_can_attach_read_changes_apply_and_roll_back(
    mine: Path, engine_name: str
) -> None:
    import anyio.to_thread

    def other(*work: str) -> str:
        return elsewhere(box.id, engine_name, *work)

    box = await Session(
        mine, changes="staged", engine=engine_name, keep=True, lease=60
    ).open()  # type: ignore[arg-type]
    try:
        await box.persistent.run("cd dir; echo two > ../a.txt")
        seen = await anyio.to_thread.run_sync(
            other, "print([c.path for c in await box.changes()])"
        )
        assert seen == "['a.txt']\n"
        await anyio.to_thread.run_sync(other, "await box.checkpoint('theirs')")
        await box.persistent.run("echo here > ../new; echo new >> c.txt")
        await box.run("echo here > other")
        done = await anyio.to_thread.run_sync(other, "print((await box.apply()).paths)")
        assert done == "['a.txt', 'dir/c.txt', 'new', 'other']\n"
        assert (mine / "new").read_text() == "here\n"
        assert [point.name for point in box.checkpoints()] == ["theirs"]
        await anyio.to_thread.run_sync(other, "await box.rollback('theirs')")
        assert (await box.run("cat a.txt")).stdout == "two\n"
    finally:
        await box.stop()


async def test_a_kept_sessions_changes_survive_its_host(
    mine: Path, engine_name: str
) -> None:
    await _survives(mine, engine_name, "await box.close(); print(box_id, flush=True)")


async def test_changes_survive_a_killed_host(mine: Path, engine_name: str) -> None:
    await _survives(
        mine, engine_name, "print(box_id, flush=True); os.kill(os.getpid(), 9)"
    )


BEGIN = """
import os, sys, anyio, belljar

async def main():
    box = await belljar.Session(sys.argv[1], changes="staged", engine=sys.argv[2], keep=True, lease=60).open()
    box_id = box.id
    await box.run("echo two > a.txt; rm b.txt")
    {end}

anyio.run(main)
"""


async def _survives(mine: Path, engine: str, end: str) -> None:
    import anyio

    command = [sys.executable, "-c", BEGIN.format(end=end), str(mine), engine]
    done = await anyio.run_process(command, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    area = StagedArea.find(root(), done.stdout.decode().strip())
    assert [change.path for change in area.changes()] == ["a.txt", "b.txt"]
    Review(area).apply()
    assert (mine / "a.txt").read_text() == "two\n"
    assert not (mine / "b.txt").exists()
    box = await Session.attach(area.id, engine=engine)  # type: ignore[arg-type]
    await box.stop()
