"""Packing is the opposite of unpacking, to the last byte."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from tests.images.archives import directory, link, member, tar
from tests.images.conftest import unpacked

from belljar.errors import ImageInvalid
from belljar.images.pack import pack, pack_for_caller
from belljar.images.unpack import Allowance, Metered, unpack

root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root makes whiteouts of files"
)
TREE = [
    directory("etc", 0o750),
    member("etc/name", b"n" * 5000, mtime=1_700_000_000, mode=0o640),
    link("etc/same", "etc/name", tarfile.LNKTYPE),
    link("etc/soft", "../../outside"),
    member("etc/pipe", type=tarfile.FIFOTYPE),
    member(f"long/{'x' * 200}/{'ü' * 100}", b"long"),
    member("raw\udcff", b"not UTF-8"),
]


def packed(tree: Path, name: str = "packed.tar") -> bytes:
    target = tree.parent / name
    pack(tree, target)
    return target.read_bytes()


def test_what_is_packed_unpacked_and_packed_again_is_the_same(tmp_path: Path) -> None:
    once = packed(unpacked(tmp_path, tar(TREE)))
    (tmp_path / "again").mkdir()
    unpack(Metered(io.BytesIO(once), 1 << 30), tmp_path / "again", Allowance())
    assert packed(tmp_path / "again", "again.tar") == once


def test_the_order_in_which_files_were_made_does_not_show(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for base, members in (
        (one, TREE),
        (two, [*TREE[:1], *reversed(TREE[4:]), *TREE[1:4]]),
    ):
        base.mkdir()
        unpacked(base, tar(members))
    assert packed(one / "layer") == packed(two / "layer")


@root
def test_deleted_and_replaced_directories_stay_so(tmp_path: Path) -> None:
    marks = [member("etc/.wh.gone"), member("etc/.wh..wh..opq")]
    data = packed(unpacked(tmp_path, tar([directory("etc"), *marks])))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert archive.getnames() == [
            ".",
            "./etc",
            "./etc/.wh..wh..opq",
            "./etc/.wh.gone",
        ]


def test_links_are_packed_as_links_and_their_targets_never_read(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    tree = unpacked(tmp_path, tar([link("out", "../secret"), link("up", "..")]))
    data = packed(tree)
    assert b"secret\0" in data  # the link's own text
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        assert [each.issym() for each in archive] == [False, True, True]


def test_directories_nested_too_deeply_are_one_clear_error(tmp_path: Path) -> None:
    deep = tmp_path / "layer"
    deep.mkdir()
    at = os.open(deep, os.O_RDONLY)
    for _ in range(sys.getrecursionlimit()):
        os.mkdir("d", dir_fd=at)
        below = os.open("d", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    os.close(at)
    with pytest.raises(ImageInvalid, match="too deeply"):
        pack(deep, tmp_path / "deep.tar")


def test_the_program_that_packs_for_an_ordinary_user_does_the_same(
    tmp_path: Path,
) -> None:
    tree = unpacked(tmp_path, tar(TREE))
    program = [sys.executable, "-P", "-m", "belljar.images.pack"]
    subprocess.run([*program, tree, tmp_path / "other.tar"], check=True)
    assert (tmp_path / "other.tar").read_bytes() == packed(tree)


def test_the_digest_is_that_of_the_tar(tmp_path: Path) -> None:
    tree = unpacked(tmp_path, tar(TREE))
    one, two = (pack_for_caller(tree, tmp_path / name) for name in ("1.tar", "2.tar"))
    assert one == two
    assert len(one) == 64
