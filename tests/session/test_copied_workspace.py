"""Staged sessions without shared files: the workspace is copied in, and changes are copied out."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from anyio import to_thread
from tests.owners import give
from tests.surfaces.invoking import belljar as cli

import belljar
from belljar import Session
from belljar import host as hosts
from belljar.errors import BelljarError, Conflict, SandboxLost, UsageError
from belljar.session.copied_workspace import CopiedWorkspace
from belljar.session.files import Files, Sink, Source
from belljar.staged.area import StagedArea
from belljar.staged.review import Review

pytestmark = [pytest.mark.anyio, pytest.mark.bridge]


@pytest.fixture
def place(
    workspace: Path, base_image: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    hosts.default().forget()
    (workspace / "dir").mkdir(mode=0o750)
    for name, text in {"a.txt": "one\n", "b.txt": "b\n", "dir/c.txt": "c\n"}.items():
        (workspace / name).write_text(text)
    (workspace / "run.sh").touch(mode=0o755)
    (workspace / "link").symlink_to("a.txt")
    for each in workspace.rglob("*"):
        give(each)
    yield workspace
    for area in StagedArea.all(hosts.default().staged_root):
        area.remove()
    hosts.default().forget()


async def kinds(box: Session) -> dict[str, str]:
    return {change.path: change.kind for change in await box.changes()}


async def test_the_workspace_is_copied_in_and_changes_are_copied_out(
    place: Path,
) -> None:
    async with Session(place, changes="staged") as box:
        assert (
            await box.run("cat a.txt link dir/c.txt; stat -c %a dir run.sh")
        ).stdout == "one\none\nc\n750\n755\n"
        assert await kinds(box) == {}
        os.setxattr(place / "a.txt", "user.kept", b"1")
        await box.run(
            "echo two >> a.txt; rm b.txt; mkdir new; echo x > new/x; echo y > new/y; chmod 600 run.sh; rm -r dir"
        )
        assert (place / "a.txt").read_text() == "one\n"
        assert await kinds(box) == {"a.txt": "modified", "b.txt": "deleted", "dir": "deleted", "new": "added",
                                    "new/x": "added", "new/y": "added", "run.sh": "mode"}  # fmt: skip
        assert "+two\n" in await box.diff(["a.txt"])
        assert await box.discard(["new/x", "dir"]) == ["dir", "new/x"]
        assert (
            await box.run("cat dir/c.txt; stat -c %a dir; ls new")
        ).stdout == "c\n750\ny\n"
        await box.apply(
            ["a.txt"], force=True
        )  # force, because the attribute is newer than the session
        assert (place / "a.txt").read_text() == "one\ntwo\n"
        assert os.getxattr(place / "a.txt", "user.kept") == b"1"
        await box.run("echo abc > a.txt")
        assert await kinds(box) == {"a.txt": "modified", "b.txt": "deleted", "new": "added", "new/y": "added",
                                    "run.sh": "mode"}  # fmt: skip
        id = box.id
    Review(StagedArea.find(hosts.default().staged_root, id)).apply()
    assert (place / "a.txt").read_text() == "abc\n"
    assert stat.S_IMODE((place / "run.sh").stat().st_mode) == 0o600
    assert not (place / "b.txt").exists()


async def test_checkpoints_rollback_and_fork_work_on_a_copy(place: Path) -> None:
    async with Session(place, changes="staged") as box:
        await box.run("echo good > a.txt; rm -r dir")
        point = await box.checkpoint()
        await box.run("rm -rf *; mkdir a.txt")
        async with await box.fork() as twin:
            assert (await twin.run("ls -F")).stdout == "a.txt/\n"
            await box.rollback(point)
            assert (
                await box.run("cat a.txt; ls")
            ).stdout == "good\na.txt\nb.txt\nlink\nrun.sh\n"
            assert "-good\n" in await box.diff(against=twin)
        assert await kinds(box) == {"a.txt": "modified", "dir": "deleted"}


async def test_what_the_host_changed_or_deleted_meanwhile_is_a_conflict(
    place: Path,
) -> None:
    async with Session(place, changes="staged") as box:
        await box.run("echo x > a.txt; echo x > b.txt")
        (place / "a.txt").write_text("host")
        (place / "b.txt").unlink()
        with pytest.raises(Conflict) as caught:
            await box.apply()
        assert set(caught.value.paths) == {"a.txt", "b.txt"}


async def test_links_and_odd_names_are_copied_out_and_fifos_refused(
    place: Path,
) -> None:
    name = "odd\nname \udcff"
    async with Session(place, changes="staged") as box:
        await box.run(
            "mkfifo fifo; ln -s /etc/passwd out; rm a.txt; mkdir a.txt; echo i > a.txt/i"
        )
        await box.run(r"echo x > $'odd\nname \xff'")
        assert await kinds(box) == {
            "a.txt": "type",
            "a.txt/i": "added",
            "fifo": "added",
            name: "added",
            "out": "added",
        }
        done = await box.apply()
        assert done.refused == ["fifo"]
    assert os.readlink(place / "out") == "/etc/passwd"
    assert (place / name).read_text() == "x\n"
    assert (place / "a.txt" / "i").read_text() == "i\n"


async def test_a_workspace_or_change_too_large_to_copy_is_refused(place: Path) -> None:
    small = belljar.Limits(memory="64m")
    async with Session(place, changes="staged", limits=small) as box:
        await box.run("truncate -s 900M sparse")
        with pytest.raises(
            UsageError, match="900 MiB in 1 files changed: more than the 32 MiB"
        ):
            await box.changes()
        await box.run("rm sparse")
        assert await box.changes() == []
    (place / "big").write_bytes(bytes(17 << 20))
    with pytest.raises(
        UsageError, match=r"holds 17 MiB in 7 files.* has room for 16 MiB"
    ):
        await Session(place, changes="staged", limits=small).open()


async def test_a_lost_sandbox_keeps_the_changes_that_were_seen_and_says_so(
    place: Path,
) -> None:
    box = await Session(place, changes="staged").open()
    await box.run("echo seen > a.txt")
    await box.changes()
    await box.run("echo unseen > a.txt")
    await to_thread.run_sync(box.sandbox.engine.destroy, box.sandbox.launched.id)
    with pytest.raises(SandboxLost):
        await box.run("true")
    id = box.id
    await box.close()
    area = StagedArea.find(hosts.default().staged_root, id)
    assert area.incomplete
    Review(area).apply()
    assert (place / "a.txt").read_text() == "seen\n"


def test_the_command_line_looks_into_a_running_session(place: Path) -> None:
    id = cli("session", "start", "--staged", cwd=place).stdout.strip()
    try:
        cli("run", "--session", id, "echo two > a.txt; rm b.txt")
        assert cli("changes", cwd=place).stdout == "~ a.txt\n- b.txt\n"
        assert cli("discard", "b.txt", cwd=place).complaint == "belljar: 1 discarded"
        assert cli("run", "--session", id, "cat b.txt").stdout == "b\n"
    finally:
        cli("session", "stop", id)
    assert cli("changes", cwd=place).stdout == "~ a.txt\n"


@pytest.mark.parametrize(
    ("listed", "complaint"),
    [
        (b"d 755 0 0 ..\0\0f 644 0 0 ../x\0\0", "cannot be copied out"),
        (
            b"d 755 0 0 d\0\0d 755 0 0 d/..\0\0f 644 0 0 d/../x\0\0",
            "cannot be copied out",
        ),
        (b"f 644 0 0 " + b"n" * 300 + b"\0\0", "cannot be copied out"),
        (
            b"".join(b"f 644 0 0 %d\0\0" % number for number in range(40)),
            "40 files changed",
        ),
        (b"f 644 -9000 0 a\0\0f 644 9000 0 b\0\0", "cannot be read"),
    ],
)
async def test_an_init_that_lies_about_what_changed_is_refused(
    tmp_path: Path, listed: bytes, complaint: str
) -> None:
    says = b""

    async def run(
        argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        if callable(sink):
            sink(says)
        return 0, b""

    (tmp_path / "workspace").mkdir()
    status = (tmp_path / "workspace").stat()
    inode = (status.st_dev, status.st_ino)
    given = (tmp_path / "state", "bj-" + "0" * 12, f"{tmp_path}/workspace", inode, 0, 0)
    area = await to_thread.run_sync(StagedArea.create, *given)
    copied = CopiedWorkspace(area, Files(run), 1000, 10)
    await copied.copy_in()
    says = listed
    with pytest.raises(BelljarError, match=complaint):
        await copied.copy_out()
    assert not list((area.path / "upper").iterdir())
