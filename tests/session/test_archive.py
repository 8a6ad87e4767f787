"""Archives from a sandbox are not trusted."""

from __future__ import annotations

from pathlib import Path

import pytest

from belljar.errors import FileFailed
from belljar.session.archive import HEAD, Unpacker
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
