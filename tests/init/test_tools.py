"""The init's small tools alone: files beneath a root, archives, searching."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.init import compiled


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compiled.tools(tmp_path_factory.mktemp("tools"))


class Tools:
    def __init__(self, program: Path, root: Path) -> None:
        self.program, self.root = program, root

    def __call__(
        self,
        name: str,
        path: str,
        *more: str,
        stdin: bytes = b"",
        root: Path | None = None,
    ) -> bytes:
        command = [str(self.program), name, path, *more]
        ended = subprocess.run(
            command,
            cwd=root or self.root,
            input=stdin,
            capture_output=True,
            check=False,
        )
        if ended.returncode:
            raise OSError(int(ended.stderr.split(b" ")[0]), ended.stderr.decode())
        return ended.stdout


@pytest.fixture
def tools(program: Path, tmp_path: Path) -> Tools:
    root = tmp_path / "root"
    root.mkdir()
    return Tools(program, root)


def test_a_cut_off_upload_does_not_replace_the_file(tools: Tools) -> None:
    (tools.root / "f").write_bytes(b"old")
    for cut_off in (b"", b"half", b"half and mar"):
        with pytest.raises(OSError, match="Broken pipe"):
            tools("put", "f", "644", "mark", stdin=cut_off)
    assert tools("get", "f") == b"old"
    assert [each.name for each in tools.root.iterdir()] == ["f"]


def test_a_file_goes_in_and_comes_out(tools: Tools) -> None:
    blob = os.urandom(3_000_000)
    tools("put", "f", "6755", "mark", stdin=blob + b"mark")
    assert tools("get", "f") == blob
    assert tools("get", "f", "1000", "10") == blob[1000:1010]
    assert (tools.root / "f").stat().st_mode & 0o7777 == 0o755
    tools("append", "f", stdin=b"more")
    assert tools("get", "f").endswith(b"more")
    assert [each.name for each in tools.root.iterdir()] == ["f"]


def test_links_are_followed_and_a_put_replaces_a_link(tools: Tools) -> None:
    (tools.root / "d").mkdir()
    (tools.root / "d" / "f").write_text("inside")
    (tools.root / "relative").symlink_to("d/../d/f")
    (tools.root / "full").symlink_to(tools.root / "d")
    assert tools("get", "relative") == b"inside"
    assert tools("get", "full/f") == b"inside"
    tools("put", "relative", "644", "mark", stdin=b"newmark")
    assert not (tools.root / "relative").is_symlink()
    assert (tools.root / "d" / "f").read_text() == "inside"


def test_a_listing_has_kinds_sizes_and_link_targets(tools: Tools) -> None:
    (tools.root / "d").mkdir()
    (tools.root / "d" / "odd\nname").write_text("12345")
    (tools.root / "l").symlink_to("nowhere")
    os.mkfifo(tools.root / "p")
    fields = tools("list", ".", "5").split(b"\0")
    found = {
        fields[n].split(b" ", 4)[4]: (fields[n].split(b" ")[0], fields[n + 1])
        for n in range(0, len(fields) - 1, 2)
    }
    assert found == {
        b"d": (b"d", b""),
        b"d/odd\nname": (b"f", b""),
        b"l": (b"l", b"nowhere"),
        b"p": (b"p", b""),
    }
    assert tools("stat", "d/odd\nname").startswith(b"f 644 5 ")


def test_reading_a_fifo_does_not_wait(tools: Tools) -> None:
    os.mkfifo(tools.root / "p")
    with pytest.raises(OSError, match="Invalid"):
        tools("get", "p")


def test_directories_are_made_and_removed(tools: Tools, tmp_path: Path) -> None:
    tools("mkdir", "a/b/c")
    tools("mkdir", "a/b/c")
    (tools.root / "a" / "b" / "f").write_text("x")
    with pytest.raises(FileExistsError):
        tools("mkdir", "a/b/f")
    with pytest.raises(NotADirectoryError):
        tools("mkdir", "a/b/f/g")
    (tools.root / "a" / "out").symlink_to(tmp_path)
    tools("remove", "a")
    assert list(tools.root.iterdir()) == []
    assert tmp_path.exists()
    with pytest.raises(FileNotFoundError):
        tools("remove", "a")


def test_an_archive_carries_a_tree(tools: Tools, tmp_path: Path) -> None:
    (tools.root / "d" / "e").mkdir(parents=True)
    (tools.root / "d" / "run").write_bytes(os.urandom(700_000))
    (tools.root / "d" / "run").chmod(0o755)
    (tools.root / "l").symlink_to("/anywhere")
    other = tmp_path / "other"
    other.mkdir()
    tools("unpack", ".", stdin=tools("pack", "."), root=other)
    assert (other / "d" / "run").read_bytes() == (tools.root / "d" / "run").read_bytes()
    assert (other / "d" / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(other / "l") == "/anywhere"
    assert (other / "d" / "e").is_dir()


def entry(kind: bytes, path: bytes, data: bytes = b"") -> bytes:
    return (
        kind
        + (0o644).to_bytes(4, "little")
        + len(data).to_bytes(8, "little")
        + len(path).to_bytes(2, "little")
        + path
        + data
    )


@pytest.mark.parametrize(
    "archive",
    [
        entry(b"f", b"../x", b"x"),
        entry(b"f", b"/x", b"x"),
        entry(b"f", b"a/../../x", b"x"),
        entry(b"f", b"a\0b", b"x"),
        entry(b"c", b"dev"),
        entry(b"l", b"long", b"x" * 5000),
        entry(b"f", b"cut", b"xxxx")[:-2],
        b"",
    ],
)
def test_a_malformed_archive_writes_nothing_elsewhere(
    tools: Tools, archive: bytes
) -> None:
    with pytest.raises(OSError, match=r"^\[Errno"):
        tools("unpack", ".", stdin=archive)
    assert [each.name for each in tools.root.parent.iterdir()] == ["root"]


def test_a_search_finds_lines_in_text_files(tools: Tools) -> None:
    (tools.root / "a.txt").write_text("one\nneedle here\nlast needle")
    (tools.root / "bin").write_bytes(b"\0needle")
    (tools.root / ".git").mkdir()
    (tools.root / ".git" / "x").write_text("needle")
    assert (
        tools("search", ".", "ne+dle", "10")
        == b"a.txt\x002\x00needle here\x00a.txt\x003\x00last needle\x00"
    )
    assert tools("search", ".", "ne+dle", "1").count(b"\0") == 3
    with pytest.raises(OSError, match="Invalid"):
        tools("search", ".", "(", "1")
