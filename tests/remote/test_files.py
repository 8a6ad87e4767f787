"""Files and trees of a remote session, up and down."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from belljar.errors import FileFailed, UsageError
from belljar.remote.box import RemoteSession
from belljar.remote.files import RemoteFiles

pytestmark = pytest.mark.engine


async def test_files_go_up_and_come_down(box: RemoteSession, tmp_path: Path) -> None:
    files = box.files
    await files.write("notes/a.txt", "one\n", mode=0o600)
    await files.append("notes/a.txt", "two\n")
    assert await files.read("notes/a.txt") == b"one\ntwo\n"
    assert await files.read("notes/a.txt", offset=4, length=2) == b"tw"
    info = await files.stat("notes/a.txt")
    assert (info.path, info.kind, info.mode & 0o777, info.size) == (
        "notes/a.txt",
        "file",
        0o600,
        8,
    )
    assert [each.path for each in await files.list("notes")] == ["a.txt"]
    assert [
        (match.path, match.line) for match in await files.search("^tw", "notes")
    ] == [("a.txt", 2)]
    assert (await files.stat("/proc/self/exe", follow=False)).kind == "link"
    with pytest.raises(UsageError):
        await files.search("(", "notes")
    assert not await files.exists("notes/b")
    await files.mkdir("empty/one")
    (tmp_path / "tree" / "sub").mkdir(parents=True)
    (tmp_path / "tree" / "sub" / "big").write_bytes(os.urandom(700_000))
    (tmp_path / "tree" / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "tree" / "run.sh").chmod(0o755)
    (tmp_path / "tree" / "link").symlink_to("run.sh")
    await files.upload(tmp_path / "tree", "up")
    assert (await box.run("test -x up/run.sh && readlink up/link")).stdout == "run.sh\n"
    await files.download("up", tmp_path / "down")
    assert (tmp_path / "down/sub/big").read_bytes() == (
        tmp_path / "tree/sub/big"
    ).read_bytes()
    await files.download("up", tmp_path / "plain", links=False)
    assert {path.name for path in (tmp_path / "plain").iterdir()} == {"run.sh", "sub"}
    await files.download("notes/a.txt", tmp_path / "a")
    assert (tmp_path / "a").read_text() == "one\ntwo\n"
    await files.remove("notes")
    assert not await files.exists("notes")


async def test_a_file_larger_than_a_piece_keeps_every_byte(box: RemoteSession) -> None:
    data = os.urandom(9_000_001)
    await box.files.write("large", data)
    assert await box.files.read("large") == data


@pytest.mark.parametrize(
    ("path", "kind"),
    [("missing/x", FileNotFoundError), ("/etc/shadow", PermissionError)],
)
async def test_failures_are_oserrors_too(
    box: RemoteSession, path: str, kind: type[OSError]
) -> None:
    with pytest.raises(kind) as failed:
        await box.files.read(path)
    assert isinstance(failed.value, FileFailed)


async def test_a_nul_in_a_path_is_refused_here(box: RemoteSession) -> None:
    assert isinstance(box.files, RemoteFiles)
    with pytest.raises(UsageError):
        await box.files.read("a\0b")
