"""What a remote session changed: of a directory of this machine, which was copied up, and of one at the service."""

from __future__ import annotations

from pathlib import Path

import pytest

import belljar
from belljar.errors import UsageError
from belljar.remote.box import RemoteSession
from belljar.remote.host import RemoteHost

pytestmark = pytest.mark.engine


async def test_a_directory_goes_up_and_its_changes_come_back_staged(
    far: RemoteHost, workspace: Path
) -> None:
    (workspace / "keep.txt").write_text("one\n")
    (workspace / "gone.txt").write_text("old\n")
    (workspace / "sub").mkdir()
    (workspace / "sub" / "run.sh").write_text("#!/bin/sh\necho hi\n")
    (workspace / "sub" / "run.sh").chmod(0o755)
    async with belljar.Session(workspace, host=far) as box:
        assert box.is_staged
        assert (await box.run("sub/run.sh; cat keep.txt")).stdout == "hi\none\n"
        assert await box.changes() == []
        await box.run(
            "echo two >> keep.txt; rm gone.txt; mkdir new; echo made > new/file"
        )
        assert {(change.kind, change.path) for change in await box.changes()} == {
            ("modified", "keep.txt"), ("deleted", "gone.txt"), ("added", "new"), ("added", "new/file"),
        }  # fmt: skip
        assert "+two" in await box.diff(["keep.txt"])
        assert (workspace / "keep.txt").read_text() == "one\n"
        assert (await box.apply(["keep.txt"])).paths == ["keep.txt"]
        assert (workspace / "keep.txt").read_text() == "one\ntwo\n"
        assert await box.discard(["gone.txt"]) == ["gone.txt"]
        assert (await box.run("cat gone.txt")).stdout == "old\n"
        await box.checkpoint("first")
        await box.run("echo more > new/file")
        await box.rollback()
        assert (await box.run("cat new/file")).stdout == "made\n"
        shown = await box.show(["new"])
        await box.run("echo late > new/file")
        await box.changes()
        with pytest.raises(belljar.Conflict):
            await box.apply_shown(shown)
        await box.undo_apply()
        assert (workspace / "keep.txt").read_text() == "one\n"
    assert not (workspace / "new").exists()


async def test_changes_wait_here_when_the_session_has_ended(
    far: RemoteHost, workspace: Path
) -> None:
    from belljar import host
    from belljar.staged.area import StagedArea
    from belljar.staged.review import Review

    async with belljar.Session(workspace, host=far) as box:
        await box.run("echo late > late.txt")
    review = Review(StagedArea.find(host.default().staged_root, box.id))
    assert [change.path for change in review.changes()] == ["late.txt"]
    review.apply()
    assert (workspace / "late.txt").read_text() == "late\n"


async def test_links_that_lead_out_stay_what_they_are(
    far: RemoteHost, workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret\n")
    async with belljar.Session(workspace, host=far) as box:
        await box.run(
            f"ln -s {tmp_path}/secret out; ln -s / root; mkdir d; ln -s {tmp_path} d/up"
        )
        await box.apply()
    assert (workspace / "out").is_symlink()
    assert (tmp_path / "secret").read_text() == "secret\n"


async def test_a_workspace_at_the_service_is_reviewed_there(far: RemoteHost) -> None:
    place = far.workspace("review")
    async with belljar.Session(place, host=far) as box:
        await box.run("echo base > file; echo other > other")
    staged: RemoteSession = belljar.Session(place, host=far, changes="staged")
    async with staged as box:
        await box.run("echo more >> file; rm other; echo x > new")
        found = {change.path: change.kind for change in await box.changes()}
        assert found == {"file": "modified", "other": "deleted", "new": "added"}
        assert "+more" in await box.diff()
        tag = await box.staged.etag()
        assert (await box.apply(["file"])).paths == ["file"]
        with pytest.raises(belljar.Conflict):
            await box.staged.apply(["new"], if_match=tag)
        shown = await box.show(["new"])
        assert (await box.apply_shown(shown)).paths == ["new"]
        assert await box.undo_apply() == ["new"]
        point = await box.checkpoint("one")
        await box.run("echo gone > new")
        assert (await box.rollback(point)).name == "one"
        assert [each.name for each in await box.checkpoints()] == ["one"]
        assert (await box.run("cat new")).stdout == "x\n"
        assert sorted(await box.discard()) == ["new", "other"]
    async with belljar.Session(place, host=far) as box:
        assert (await box.run("cat file; ls")).stdout == "base\nmore\nfile\nother\n"


async def test_direct_changes_at_the_service_cannot_be_reviewed(
    box: RemoteSession,
) -> None:
    with pytest.raises(belljar.errors.UsageError, match="staged"):
        await box.changes()


async def test_a_fork_of_a_directory_that_was_copied_up_is_apart(
    far: RemoteHost, workspace: Path
) -> None:
    (workspace / "a.txt").write_text("one\n")
    async with belljar.Session(workspace, host=far, env={"X": "1"}) as box:
        await box.run("echo common > x; rm a.txt")
        twin = await box.fork(env={"X": "2"})
        try:
            await box.run("echo left > y")
            await twin.run("echo right > y")
            assert (await twin.run("cat x y; ls; echo $X")).stdout == (
                "common\nright\nx\ny\n2\n"
            )
            assert (await box.run("cat x y")).stdout == "common\nleft\n"
            assert {change.path for change in await twin.changes()} == {
                "a.txt",
                "x",
                "y",
            }
            assert (await twin.apply(["y"])).paths == ["y"]
            assert (workspace / "y").read_text() == "right\n"
        finally:
            await twin.close()


async def test_a_fork_of_a_session_there_is_apart(far: RemoteHost) -> None:
    options = {"changes": "staged", "policy": "ci", "network": "none", "host": far}
    async with belljar.Session(far.workspace("forked"), **options) as box:
        await box.run("echo common > x")
        async with await box.fork(env={"X": "2"}) as twin:
            await box.run("echo left > y")
            await twin.run("echo right > y")
            assert (await twin.run("cat x y; echo $X")).stdout == "common\nright\n2\n"
            assert "-left\n+right\n" in await box.diff(against=twin)
            assert (await twin.look())["policy"] == "ci"
    async with belljar.Session(host=far) as direct:
        with pytest.raises(UsageError):
            await direct.fork()
