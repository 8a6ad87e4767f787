"""Host paths of `upload` and `download`: no link that a command left in the workspace is followed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest

from belljar import Session
from belljar.errors import UsageError
from belljar.session.host_paths import HostPath


@pytest.fixture
async def box(base_image: str, workspace: Path) -> AsyncIterator[Session]:
    async with Session(workspace, policy="permissive") as session:
        await session.files.mkdir("/tmp/tree")
        await session.files.write("/tmp/tree/f", "from inside")
        yield session


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir(mode=0o755)
    (place / "key").write_text("s3cret")
    return place


@pytest.mark.parametrize("target", ["out", "out/deeper", "sub/../out", "."])
async def test_no_link_below_the_workspace_is_written_through(
    box: Session, workspace: Path, outside: Path, target: str
) -> None:
    """A command makes the link. Then the caller downloads a directory or a file to that place."""
    for name in ("out", "tree"):
        assert (await box.run(["ln", "-s", str(outside), name])).ok
    for source in ("/tmp/tree", "/tmp/tree/f"):
        with suppress(UsageError):  # or the link itself is replaced
            await box.files.download(source, workspace / target)
    assert os.listdir(outside) == ["key"]


@pytest.mark.parametrize("source", ["out", "out/key", "file"])
async def test_no_link_below_the_workspace_is_read_through(
    box: Session, workspace: Path, outside: Path, source: str
) -> None:
    assert (await box.run(["ln", "-s", str(outside), "out"])).ok
    assert (await box.run(["ln", "-s", str(outside / "key"), "file"])).ok
    with pytest.raises(UsageError, match="link"):
        await box.files.upload(workspace / source, "/tmp/got")
    assert "s3cret" not in (await box.run("cat /tmp/got /tmp/got/key")).stdout


async def test_plain_files_in_the_workspace_can_be_uploaded_and_downloaded(
    box: Session, workspace: Path
) -> None:
    await box.files.download("/tmp/tree", workspace / "new" / "tree")
    await box.files.download("/tmp/tree/f", workspace / "new" / "g")
    await box.files.download("/tmp/tree/f", workspace / "new")
    assert sorted(os.listdir(workspace / "new")) == ["f", "g", "tree"]
    assert (workspace / "new" / "tree" / "f").read_text() == "from inside"
    await box.files.upload(workspace / "new", "/tmp/again")
    await box.files.upload(workspace / "new" / "g", "/tmp/g")
    assert (await box.run("cat /tmp/again/tree/f /tmp/g")).stdout == "from inside" * 2


async def test_a_caller_s_own_link_outside_the_workspace_is_followed(
    box: Session, tmp_path: Path, outside: Path
) -> None:
    (tmp_path / "link").symlink_to(outside)
    await box.files.download("/tmp/tree", tmp_path / "link")
    await box.files.upload(tmp_path / "link" / "key", "/tmp/key")
    assert (outside / "f").read_text() == "from inside"
    assert (await box.run("cat /tmp/key")).stdout == "s3cret"


async def test_links_in_the_workspace_are_refused_also_through_an_alias_of_it(
    box: Session, workspace: Path, tmp_path: Path, outside: Path
) -> None:
    (tmp_path / "alias").symlink_to(workspace)
    assert (await box.run(["ln", "-s", str(outside), "out"])).ok
    with pytest.raises(UsageError, match="link"):
        await box.files.download("/tmp/tree", tmp_path / "alias" / "out")
    assert os.listdir(outside) == ["key"]


@pytest.mark.parametrize("target", ["through/f", "up/../out/f", "through"])
async def test_a_caller_s_link_into_the_workspace_follows_no_link_of_a_command(
    box: Session, workspace: Path, tmp_path: Path, outside: Path, target: str
) -> None:
    """The caller's link leads to a place in the workspace. A command has put a link there since."""
    (workspace / "sub").mkdir()
    (tmp_path / "through").symlink_to(workspace / "out")
    (tmp_path / "up").symlink_to(workspace / "sub")
    assert (await box.run(["ln", "-s", str(outside), "out"])).ok
    for source in ("/tmp/tree", "/tmp/tree/f"):
        with suppress(UsageError):  # or the caller's link is replaced
            await box.files.download(source, tmp_path / target)
    with pytest.raises(UsageError, match="link"):
        await box.files.upload(tmp_path / "up/../out/key", "/tmp/got")
    assert os.listdir(outside) == ["key"]


async def test_a_path_that_leaves_the_workspace_again_goes_through_no_link(
    box: Session, workspace: Path, tmp_path: Path, outside: Path
) -> None:
    (outside / "sub").mkdir()
    assert (await box.run(["ln", "-s", str(outside / "sub"), "out"])).ok
    await box.files.download("/tmp/tree/f", f"{workspace}/out/../../f")
    assert (tmp_path / "f").read_text() == "from inside"
    await box.files.download("/tmp/tree", f"{workspace}/out/../../new")
    assert (tmp_path / "new" / "f").read_text() == "from inside"


async def test_a_loop_of_links_is_refused(box: Session, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(UsageError, match="too many links"):
        await box.files.download("/tmp/tree", tmp_path / "loop" / "f")


async def test_a_pipe_can_be_uploaded_through_proc_self_fd(box: Session) -> None:
    """As in `belljar cp <(program) ID:file`."""
    reading, writing = os.pipe()
    os.write(writing, b"said")
    os.close(writing)
    await box.files.upload(f"/proc/self/fd/{reading}", "/tmp/piped")
    os.close(reading)
    assert await box.files.read("/tmp/piped") == b"said"


@pytest.mark.parametrize("within", [True, False])
def test_a_directory_to_fill_is_made_with_its_parents(
    tmp_path: Path, within: bool
) -> None:
    descriptor = os.open(tmp_path, os.O_PATH | os.O_DIRECTORY)
    try:
        path = HostPath(tmp_path / "a" / "b" / "c", descriptor if within else None)
        assert not path.is_directory()
        for _ in range(2):
            with path.folder(make=True) as folder:
                folder.write("f", b"x")
        assert path.is_directory()
        with HostPath(tmp_path, descriptor if within else None).folder(
            make=True
        ) as top:
            assert top.exists("a/b/c/f")
    finally:
        os.close(descriptor)
