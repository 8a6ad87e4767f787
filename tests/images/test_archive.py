"""Headers of an archive: what lies, is endless or cut is refused before anything is written."""

from __future__ import annotations

import gzip
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.images.archives import member, tar
from tests.images.conftest import unpacked

from belljar.errors import ImageInvalid


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME])
def test_a_header_that_would_fill_the_memory_is_refused(tmp_path: Path, kind: bytes) -> None:
    info, content = member("x", b"0" * (8 << 20), type=kind)
    packed = gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + content, 1)

    with pytest.raises(ImageInvalid, match="header that is too large"):
        unpacked(tmp_path, gzip.decompress(packed))


def sparse(parts: str, real: int, data: bytes) -> bytes:
    info, content = member("x", parts.encode().ljust(512, b"\0") + data)
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": str(real)}
    return tar([(info, content)])


def test_a_sparse_member_is_written_with_its_holes(tmp_path: Path) -> None:
    with open(tmp_path / "holes", "wb") as file:
        file.write(b"begin")
        file.seek(1 << 20)
        file.write(b"middle")
        file.truncate(3 << 20)
    archive = subprocess.run(["tar", "-cSf", "-", "holes"], cwd=tmp_path, check=True, capture_output=True).stdout
    assert len(archive) < 1 << 19
    unpacked(tmp_path, archive)
    [copy] = [path for path in tmp_path.rglob("holes") if path != tmp_path / "holes"]
    assert copy.read_bytes() == (tmp_path / "holes").read_bytes()


@pytest.mark.parametrize(
    ("parts", "real"),
    [
        ("1\n0\n512\n", 1 << 50),
        ("2\n4096\n256\n0\n256\n", 8192),  # backwards: tarfile would look for the gap for ever
        ("2\n0\n512\n100\n512\n", 8192),
        ("1\n8000\n512\n", 8192),
    ],
)
def test_sparse_members_that_lie_are_refused(tmp_path: Path, parts: str, real: int) -> None:
    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, sparse(parts, real, b"d" * 512))


def test_an_endless_sparse_map_is_refused(tmp_path: Path) -> None:
    info, content = member("x", b"99999999999\n" + b"1\n" * (4 << 20))
    info.pax_headers = {"GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "1"}

    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, tar([(info, content)]))


@pytest.mark.parametrize("cut", [100, 511, 700, 1300])
def test_a_cut_archive_is_refused_or_empty(tmp_path: Path, cut: int) -> None:
    data = tar([member("a", b"x" * 600), member("b", b"y")])[:cut]

    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, data)


def test_random_bytes_are_no_archive(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, b"\x01" * 4096)
