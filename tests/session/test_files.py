"""Files of a sandbox, through the init's tools. Here the tools run as a process on the host."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.init import compiled

from belljar.errors import FileFailed, UsageError
from belljar.session import files as module
from belljar.session.files import File, Files, Sink, Source


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled.tools(tmp_path_factory.mktemp("tools"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    place = tmp_path / "workspace"
    place.mkdir()
    return place


@pytest.fixture
def files(program: Path, root: Path) -> Files:
    async def run(
        argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            str(program), *argv, stdin=pipe, stdout=pipe, stderr=pipe, cwd=root
        )
        data = b""
        if isinstance(source, AsyncIterator):
            async for part in source:
                data += part
        elif isinstance(source, File):
            data = os.read(source.fileno(), 1 << 30)
        data += argv[-1].encode() if argv[0] == "put" else b""
        out, said = await process.communicate(data)
        for at in range(0, len(out), 1000):
            if callable(sink):
                sink(out[at : at + 1000])
            else:
                os.write(sink.fileno(), out[at : at + 1000])
        return process.returncode or 0, said

    return Files(run)


async def test_a_file_is_written_read_and_removed(files: Files, root: Path) -> None:
    await files.mkdir("src/deep")
    await files.write("src/deep/a.py", "print(1)\n", mode=0o755)
    await files.append("src/deep/a.py", b"more")
    assert await files.read("src/deep/a.py") == b"print(1)\nmore"
    assert await files.read("src/deep/a.py", offset=6, length=3) == b"1)\n"
    assert (root / "src/deep/a.py").stat().st_mode & 0o777 == 0o755
    assert (await files.stat("src/deep/a.py")).size == 13
    assert [each.path for each in await files.list("src", depth=5)] == [
        "deep",
        "deep/a.py",
    ]
    await files.remove("src")
    assert not await files.exists("src")


async def test_a_failed_read_says_why(files: Files, root: Path) -> None:
    with pytest.raises(FileFailed, match="nosuch: No such file") as caught:
        await files.read("nosuch")
    assert caught.value.errno == 2
    with pytest.raises(UsageError):
        await files.read("a\0b")


async def test_an_error_is_also_the_one_that_open_would_raise(
    files: Files, root: Path
) -> None:
    (root / "file").write_text("")
    with pytest.raises(FileNotFoundError, match="nosuch"):
        await files.read("nosuch")
    with pytest.raises(IsADirectoryError, match="directory"):
        await files.read(".")
    with pytest.raises(IsADirectoryError):
        await files.write(".", "x")
    with pytest.raises(NotADirectoryError):
        await files.read("file/below")
    with pytest.raises(NotADirectoryError):
        await files.write("file/below", "x")
    assert issubclass(FileFailed, OSError)


async def test_any_path_of_the_sandbox_is_reached(
    files: Files, root: Path, tmp_path: Path
) -> None:
    (root / "out").symlink_to("/etc/passwd")
    (root / "up").symlink_to("../beside")
    passwd = Path("/etc/passwd").read_bytes()
    assert [
        await files.read(path) for path in ("/etc/passwd", "out", "/../etc/passwd")
    ] == [passwd] * 3
    await files.write(str(tmp_path / "beside/deep/file"), "far")
    assert (
        await files.read("../beside/deep/file")
        == await files.read("up/deep/file")
        == b"far"
    )
    assert [each.path for each in await files.list(str(tmp_path / "beside"))] == [
        "deep"
    ]


async def test_a_link_can_be_looked_at_itself(files: Files, root: Path) -> None:
    (root / "loop").symlink_to("loop")
    (root / "nowhere").symlink_to("no/such/place")
    assert [
        (await files.stat(name, follow=False)).target for name in ("loop", "nowhere")
    ] == ["loop", "no/such/place"]
    assert (
        (await files.stat(".", follow=False)).kind
        == (await files.stat("/", follow=False)).kind
        == "directory"
    )
    for name, error in (
        ("missing", FileNotFoundError),
        ("nowhere/below", FileNotFoundError),
        ("loop/below", OSError),
    ):
        with pytest.raises(error):
            await files.stat(name, follow=False)
    with pytest.raises(FileNotFoundError):
        await files.stat("nowhere")


async def test_writing_makes_the_directory(files: Files, root: Path) -> None:
    await files.write("a/b/c", "1")
    await files.append("a/d/log", "2")
    assert await files.read("a/b/c") == b"1"
    assert await files.read("a/d/log") == b"2"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write any file")
async def test_a_read_only_file_is_not_replaced(files: Files, root: Path) -> None:
    (root / "file").write_text("old")
    (root / "file").chmod(0o444)
    with pytest.raises(PermissionError):
        await files.write("file", "new")


async def test_more_names_than_the_host_should_keep_are_refused(
    files: Files, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "crowd").mkdir()
    for number in range(100):
        (root / "crowd" / f"{number}-{'x' * 100}").touch()
    assert len(await files.list("crowd")) == 100
    monkeypatch.setattr(module, "ANSWER_MAX", 10_000)
    with pytest.raises(FileFailed, match="name a directory further down"):
        await files.list("crowd")


async def test_a_search_finds_lines(files: Files, root: Path) -> None:
    (root / "a.txt").write_text("one\nneedle\n")
    (found,) = await files.search("ne+dle")
    assert (found.path, found.line, found.text) == ("a.txt", 2, "needle")


async def test_modes_of_directories_are_kept_and_a_read_only_one_can_be_removed(
    files: Files, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "there" / "locked" / "deep").mkdir(parents=True)
    (tmp_path / "there" / "locked" / "deep" / "f").write_text("x")
    (tmp_path / "there" / "locked" / "deep").chmod(0o700)
    (tmp_path / "there" / "locked").chmod(0o555)
    await files.upload(tmp_path / "there", "in")
    listed = {each.path: each.mode & 0o777 for each in await files.list("in", depth=3)}
    assert listed == {"locked": 0o555, "locked/deep": 0o700, "locked/deep/f": 0o644}
    await files.remove("in")
    assert not (root / "in").exists()


async def test_directories_are_uploaded_and_downloaded(
    files: Files, root: Path, tmp_path: Path
) -> None:
    there = tmp_path / "there"
    (there / "d" / "empty").mkdir(parents=True)
    (there / "d" / "big").write_bytes(os.urandom(2_000_000))
    (there / "d" / "run").write_text("x")
    (there / "d" / "run").chmod(0o755)
    (there / "l").symlink_to("d/big")
    os.mkfifo(there / "fifo")
    await files.upload(there, "in")
    assert (root / "in/d/big").read_bytes() == (there / "d/big").read_bytes()
    await files.download("in", tmp_path / "back")
    assert (tmp_path / "back/d/big").read_bytes() == (there / "d/big").read_bytes()
    assert (tmp_path / "back/d/run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(tmp_path / "back/l") == "d/big"
    assert (tmp_path / "back/d/empty").is_dir()
    await files.download("in", tmp_path / "plain", links=False)
    assert [path.name for path in (tmp_path / "plain").iterdir()] == ["d"]
    await files.download("in/d/run", tmp_path / "one")
    assert (tmp_path / "one").read_text() == "x"
