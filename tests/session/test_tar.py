"""The init's archive as a tar and back; a tar from outside is checked before anything of it is unpacked."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from belljar.errors import FileFailed, UsageError
from belljar.session import tar
from belljar.session.archive import HEAD, Unpacker, packed, whole
from belljar.workspace.beneath import Folder


def _tree(place: Path) -> None:
    (place / "d" / "e").mkdir(parents=True)
    (place / "d" / "e" / "big").write_bytes(os.urandom(600_000))
    (place / "run").write_text("#!/bin/sh\n")
    (place / "run").chmod(0o755)
    (place / "link").symlink_to("../outside")
    (place / ("n" * 120)).write_text("a long name")
    (place / "empty").write_text("")


async def test_a_tree_is_the_same_after_both_ways(tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.mkdir()
    target.mkdir()
    _tree(source)
    with Folder.at(source) as folder:
        archive = b"".join(packed(whole(folder)))

    async def pieces() -> AsyncIterator[bytes]:
        for at in range(0, len(archive), 1000):
            yield archive[at : at + 1000]

    made = b"".join([part async for part in tar.as_tar(pieces())])
    with tarfile.open(fileobj=io.BytesIO(made)) as opened:
        assert "d/e/big" in opened.getnames()
    tar.check(io.BytesIO(made))
    with Folder.at(target) as folder:
        unpacker = Unpacker(folder)
        for part in tar.from_tar(io.BytesIO(made)):
            unpacker.feed(part)
    assert unpacker.done
    assert (target / "d/e/big").read_bytes() == (source / "d/e/big").read_bytes()
    assert (target / "run").stat().st_mode & 0o777 == 0o755
    assert os.readlink(target / "link") == "../outside"
    assert sorted(os.listdir(target)) == sorted(os.listdir(source))


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, target: str = ""
) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "members",
    [
        [_member("/etc/x")],
        [_member("a/../../x")],
        [_member("dev", tarfile.CHRTYPE)],
        [_member("fifo", tarfile.FIFOTYPE)],
        [_member("hard", tarfile.LNKTYPE, "../x")],
        [_member("to nothing", tarfile.LNKTYPE, "x")],
        [
            _member("x", tarfile.SYMTYPE, "y"),
            _member("to a link", tarfile.LNKTYPE, "x"),
        ],
        [
            _member("x"),
            _member("x", tarfile.SYMTYPE, "y"),
            _member("to what was replaced", tarfile.LNKTYPE, "x"),
        ],
        [_member("up", tarfile.SYMTYPE, ".."), _member("up/x")],
    ],
    ids=lambda members: members[-1].name,
)
def test_a_tar_that_leads_elsewhere_is_refused_whole(
    members: list[tarfile.TarInfo],
) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for member in members:
            made.addfile(member)
    with pytest.raises(UsageError, match="nothing was unpacked"):
        tar.check(file)


def test_what_is_no_tar_says_so() -> None:
    with pytest.raises(UsageError, match="no tar"):
        tar.check(io.BytesIO(b"x" * 2000))


def test_a_hard_link_is_unpacked_as_the_file_it_is(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        first = _member("d/x")
        first.size = 3
        made.addfile(first, io.BytesIO(b"one"))
        made.addfile(_member("hard", tarfile.LNKTYPE, "d/x"))
        made.addfile(_member("d/x", tarfile.SYMTYPE, "later"))
    tar.check(file)
    with Folder.at(tmp_path) as folder:
        unpacker = Unpacker(folder)
        for part in tar.from_tar(file):
            unpacker.feed(part)
    assert (tmp_path / "hard").read_bytes() == b"one"
    assert os.readlink(tmp_path / "d/x") == "later"


@pytest.mark.parametrize(
    "archive",
    [
        HEAD.pack(b"l", 0, 1 << 40, 1) + b"l",
        HEAD.pack(b"f", 0, 0, 4) + b"../x",
        HEAD.pack(b"x", 0, 0, 1) + b"x",
    ],
    ids=["an endless link", "a name that leads elsewhere", "an unknown kind"],
)
async def test_an_archive_of_a_hostile_sandbox_is_no_tar(archive: bytes) -> None:
    async def pieces() -> AsyncIterator[bytes]:
        yield archive

    with pytest.raises(FileFailed):
        _ = [part async for part in tar.as_tar(pieces())]
