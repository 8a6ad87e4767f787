"""Whole files to and from a real sandbox, over pipes that the host reads and writes directly."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.images.archives import member, tar

from belljar import Session, host
from belljar.errors import BelljarError


@pytest.fixture
async def session(workspace: Path, base_image: str) -> AsyncIterator[Session]:
    async with Session(workspace) as box:
        yield box


@pytest.mark.parametrize("size", [0, 1000, 5_000_000])
async def test_a_file_goes_in_and_comes_back_the_same(
    session: Session, tmp_path: Path, size: int
) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    there.write_bytes(os.urandom(size))
    there.chmod(0o754)
    await session.files.upload(there, "file")
    assert (await session.files.stat("file")).mode == 0o754
    await session.files.download("file", back)
    assert back.read_bytes() == there.read_bytes()


async def test_files_are_read_and_written_wherever_the_user_may(
    session: Session, tmp_path: Path
) -> None:
    files = session.files
    await files.write("/tmp/deep/er/file", "far")
    await files.write("new/file", "near")
    assert await files.read("/tmp/deep/er/file") == b"far"
    assert (await files.read("/etc/os-release")).startswith(b"PRETTY_NAME")
    assert any(info.path == "env" for info in await files.list("/usr/bin"))
    await session.run(
        "ln -s /tmp/deep out; echo locked > locked; chmod 0 locked; echo kept > kept; chmod 400 kept"
    )
    assert await files.read("out/er/file") == b"far"
    with pytest.raises(PermissionError, match="locked"):
        await files.read("locked")
    with pytest.raises(PermissionError, match="kept"):
        await files.write("kept", "lost")
    with pytest.raises(OSError, match="Read-only file system"):
        await files.write("/usr/new", "x")
    assert (await session.run("cat kept")).stdout == "kept\n"


async def test_commands_run_in_any_directory_of_the_sandbox(session: Session) -> None:
    await session.files.mkdir("/tmp/sub")
    for cwd in ("/usr/bin", "/tmp/sub", "/"):
        assert (await session.run("pwd", cwd=cwd)).stdout == f"{cwd}\n"
    assert (
        await session.run("rm -rf deep; pwd", cwd="/tmp")
    ).stdout == "/tmp\n"  # judged as a deletion in /tmp


async def test_an_upload_that_is_given_up_leaves_neither_file_nor_descriptor(
    session: Session, tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "endless")
    keeper = os.open(tmp_path / "endless", os.O_RDWR)
    os.write(keeper, b"begun")
    await session.run("true")  # the first command opens what all need
    before = len(os.listdir("/proc/self/fd"))
    with anyio.move_on_after(0.5):
        await session.files.upload(tmp_path / "endless", "endless")
    os.close(keeper)
    with anyio.fail_after(60):
        while len(os.listdir("/proc/self/fd")) >= before:
            await session.run("true")
    assert await session.files.list() == []


async def test_closing_a_session_ends_its_downloads(
    session: Session, tmp_path: Path
) -> None:
    await session.run("truncate -s 900M big")
    async with anyio.create_task_group() as tasks:

        async def download() -> None:
            with pytest.raises(BelljarError):
                await session.files.download("big", tmp_path / "back")

        tasks.start_soon(download)
        while not any(tmp_path.glob(".*")):
            await anyio.lowlevel.checkpoint()
        await session.close()
    assert not (tmp_path / "back").exists()


UPLOADER = """
import asyncio, sys
from belljar import Session
async def main():
    box = await Session(sys.argv[1], keep=True, lease=60).open()
    print(box.id, flush=True)
    await box.files.upload(sys.argv[2], "file")
asyncio.run(main())
"""


def upload_half(workspace: Path, fifo: Path) -> str:
    """Start an upload in a process and kill it half-way. Returns the id of the session that it leaves."""
    uploader = [sys.executable, "-c", UPLOADER, str(workspace), str(fifo)]
    with subprocess.Popen(uploader, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        id = process.stdout.readline().decode().strip()
        with fifo.open("wb", buffering=0) as half:
            half.write(
                bytes(300_000)
            )  # more than the FIFO holds, so the upload has begun
            process.kill()
            process.wait()
    return id


async def test_a_host_killed_during_an_upload_leaves_the_old_file(
    workspace: Path, tmp_path: Path, base_image: str
) -> None:
    os.mkfifo(tmp_path / "half")
    (workspace / "file").write_text("old")
    id = await anyio.to_thread.run_sync(upload_half, workspace, tmp_path / "half")
    box = await Session.attach(id)
    assert await box.files.read("file") == b"old"
    assert [each.path for each in await box.files.list()] == ["file"]
    await box.stop()


@pytest.fixture(scope="module")
def empty_image(docker_client: Any) -> Iterator[str]:
    """An empty image: no shell, no library."""
    name = f"belljar-test/empty:{os.getpid()}"
    docker_client.api.import_image_from_data(
        tar([member("nothing", b"")]), *name.split(":")
    )
    yield name
    docker_client.images.remove(name, force=True)


@pytest.mark.bridge
@pytest.mark.parametrize("link", ["socket", "bridge"])
async def test_file_operations_work_in_an_empty_image_over_every_link(
    empty_image: str,
    workspace: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    link: str,
) -> None:
    if link == "bridge":
        monkeypatch.setenv("BELLJAR_LINK", link)
    host.default().forget()
    try:
        async with Session(workspace, image=empty_image) as box:
            await box.files.mkdir("sub")
            await box.files.write("sub/notes.txt", "written\n")
            assert await box.files.read("sub/notes.txt") == b"written\n"
            assert [each.path for each in await box.files.list("sub")] == ["notes.txt"]
            assert [match.line for match in await box.files.search("writ", "sub")] == [
                1
            ]
            await box.files.download("sub", tmp_path / "sub")
            assert (tmp_path / "sub/notes.txt").read_text() == "written\n"
            await box.files.remove("sub")
            assert not await box.files.exists("sub")
    finally:
        host.default().forget()
