"""The init's archive as a tar and back; a tar from outside is checked before anything of it is unpacked."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from belljar.errors import UsageError
from belljar.session import tar
from belljar.session.archive import Unpacker, packed, whole
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


def _member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
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
        [_member("up", tarfile.SYMTYPE, ".."), _member("up/x")],
    ],
    ids=lambda members: members[-1].name,
)
def test_a_tar_that_leads_elsewhere_is_refused_whole(members: list[tarfile.TarInfo]) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as made:
        for member in members:
            made.addfile(member)
    with pytest.raises(UsageError, match="nothing was unpacked"):
        tar.check(file)


def test_what_is_no_tar_says_so() -> None:
    with pytest.raises(UsageError, match="no tar"):
        tar.check(io.BytesIO(b"x" * 2000))
