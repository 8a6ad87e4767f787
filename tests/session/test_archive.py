"""Archives from a sandbox are not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar.errors import FileFailed
from belljar.session.archive import CHUNK, HEAD, Unpacker, packed, whole
from belljar.workspace.beneath import Folder


def entry(kind: bytes, name: bytes, data: bytes = b"") -> bytes:
    return HEAD.pack(kind, 0o644, len(data), len(name)) + name + data


def _feed(unpacker: Unpacker, archive: bytes) -> None:
    for at in range(len(archive)):
        unpacker.feed(archive[at : at + 1])


@pytest.mark.parametrize(
    "archive",
    [
        entry(b"f", b"../x", b"x"),
        entry(b"f", b"/x", b"x"),
        entry(b"f", b"a/../../x", b"x"),
        entry(b"l", b"l", b"/tmp") + entry(b"f", b"l/x", b"x"),
        entry(b"l", b"l", b"..") + entry(b"d", b"l/x"),
        entry(b"c", b"dev"),
        entry(b"f", b"a\0b", b"x"),
        HEAD.pack(b"l", 0, 1 << 40, 1) + b"l",
    ],
)
def test_an_archive_of_a_hostile_sandbox_writes_nothing_outside_its_target(
    tmp_path: Path, archive: bytes
) -> None:
    target = tmp_path / "target"
    target.mkdir()
    with Folder.at(target) as folder, pytest.raises((FileFailed, OSError)):
        _feed(Unpacker(folder), archive)
    assert [each.name for each in tmp_path.iterdir()] == ["target"]


def test_data_after_the_end_of_an_archive_is_refused(tmp_path: Path) -> None:
    with Folder.at(tmp_path) as folder:
        unpacker = Unpacker(folder)
        unpacker.feed(HEAD.pack(b"e", 0, 0, 0))
        with pytest.raises(FileFailed, match="after its end"):
            unpacker.feed(bytes(1 << 20))


def test_many_small_files_go_in_few_pieces_and_arrive_whole(tmp_path: Path) -> None:
    """Each piece costs a turn of the event loop and of a thread."""
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "empty" / "deep").mkdir(parents=True)
    target.mkdir()
    contents = {f"f{number}": b"%d" % number * 50 for number in range(500)}
    contents |= {"big": b"b" * (CHUNK + 1), "exact": b"e" * CHUNK, "nothing": b""}
    for name, content in contents.items():
        (source / name).write_bytes(content)
    with Folder.at(source) as folder, Folder.at(target) as into:
        pieces = list(packed(whole(folder)))
        unpacker = Unpacker(into)
        for piece in pieces:
            unpacker.feed(piece)
    assert unpacker.done
    assert len(pieces) < 10
    assert max(map(len, pieces)) <= CHUNK
    arrived = {
        path.name: path.read_bytes() for path in target.iterdir() if path.is_file()
    }
    assert arrived == contents
    assert (target / "empty" / "deep").is_dir()
