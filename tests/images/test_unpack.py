"""Hostile layers: whatever an archive says, nothing outside its own directory is touched."""

from __future__ import annotations

import gzip
import io
import os
import stat
import subprocess
import tarfile
from pathlib import Path

import pytest
from tests.images.archives import directory, link, member, tar

from belljar.errors import ImageInvalid
from belljar.images import unpack as module
from belljar.images.unpack import Allowance, Metered, unpack

HARD = tarfile.LNKTYPE
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="owners and overlay attributes need root")


def unpacked(tmp_path: Path, data: bytes, allowance: Allowance | None = None) -> Path:
    target = tmp_path / "layer"
    target.mkdir()
    unpack(Metered(io.BytesIO(data), 1 << 30), target, allowance or Allowance())
    return target


@pytest.mark.parametrize(
    "members",
    [
        [member("../escape", b"x")],
        [member("a/../../escape", b"x")],
        [member("/escape", b"x")],
        [link("out", ".."), member("out/escape", b"x")],
        [link("out", "/tmp"), member("out/escape", b"x")],
        [link("a", "b"), link("b", ".."), directory("a/deep")],
        [link("hard", "../victim", HARD)],
        [link("hard", "/etc/passwd", HARD)],
        [link("soft", "../victim"), link("hard", "soft/x", HARD)],
        [link("out", ".."), link("out/escape", "x")],
        [link("out", ".."), member("out/escape", type=tarfile.FIFOTYPE)],
        [link("out", ".."), member("out/.wh.victim")],
        [member(".wh...")],
        [member(".wh.")],
        [member(".wh..wh.x")],
        [member("file", b"x"), member("file/below", b"x")],
        [directory("d"), member("d", b"x")],
        [link("hard", "nothing", HARD)],
        [member(".wh.hidden"), link("hard", "hidden", HARD)],
    ],
)
def test_what_leads_out_is_refused(tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> None:
    victim = tmp_path / "victim"
    victim.write_text("untouched")

    with pytest.raises(ImageInvalid):
        unpacked(tmp_path, tar(members))

    assert victim.read_text() == "untouched"
    assert not (tmp_path / "escape").exists()
    assert not Path("/escape").exists()
    assert not Path("/tmp/escape").exists()


def test_a_hard_link_to_a_symbolic_link_does_not_follow_it(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")

    layer = unpacked(tmp_path, tar([link("soft", "../victim"), link("hard", "soft", HARD), member("hard", b"new")]))

    assert (tmp_path / "victim").read_text() == "untouched"
    assert (layer / "hard").read_bytes() == b"new"


def test_a_later_member_replaces_a_link_instead_of_following_it(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")

    layer = unpacked(tmp_path, tar([link("x", "../victim"), member("x", b"new")]))

    assert (tmp_path / "victim").read_text() == "untouched"
    assert (layer / "x").read_bytes() == b"new"


def test_set_id_bits_and_devices_are_left_out(tmp_path: Path) -> None:
    layer = unpacked(
        tmp_path,
        tar(
            [
                member("su", b"x", mode=0o6755),
                directory("shared", mode=0o2777),
                member("disk", type=tarfile.BLKTYPE, devmajor=8),
                member("mem", type=tarfile.CHRTYPE, devmajor=1, devminor=1),
                member("pipe", type=tarfile.FIFOTYPE),
            ]
        ),
    )

    assert stat.S_IMODE((layer / "su").stat().st_mode) == 0o755
    assert stat.S_IMODE((layer / "shared").stat().st_mode) == 0o777
    assert sorted(path.name for path in layer.iterdir()) == ["pipe", "shared", "su"]


@needs_root
def test_owners_stay_and_impossible_ones_become_nobody(tmp_path: Path) -> None:
    layer = unpacked(tmp_path, tar([member("mine", b"", uid=7, gid=8), member("far", b"", uid=70000, gid=1 << 30)]))

    assert ((layer / "mine").stat().st_uid, (layer / "mine").stat().st_gid) == (7, 8)
    assert ((layer / "far").stat().st_uid, (layer / "far").stat().st_gid) == (65534, 65534)


@needs_root
def test_whiteouts_become_overlayfs_ones(tmp_path: Path) -> None:
    layer = unpacked(tmp_path, tar([directory("d"), member("d/.wh..wh..opq"), member("d/.wh.old")]))

    status = (layer / "d" / "old").lstat()
    assert stat.S_ISCHR(status.st_mode)
    assert status.st_rdev == 0
    assert os.getxattr(layer / "d", "trusted.overlay.opaque") == b"y"


def test_a_directory_that_shuts_us_out_still_gets_its_files(tmp_path: Path) -> None:
    layer = unpacked(tmp_path, tar([directory("d", mode=0o500), member("d/x", b"x")]))

    assert stat.S_IMODE((layer / "d").stat().st_mode) == 0o500
    assert (layer / "d" / "x").read_bytes() == b"x"


def test_extended_attributes_of_the_archive_are_not_taken(tmp_path: Path) -> None:
    info, content = member("x", b"x")
    info.pax_headers = {"SCHILY.xattr.user.overlay.redirect": "/etc", "SCHILY.xattr.security.capability": "x"}

    layer = unpacked(tmp_path, tar([(info, content)]))

    assert os.listxattr(layer / "x") == []


def test_a_bomb_stops_at_the_allowance(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid, match="larger"):
        unpacked(tmp_path, tar([member("bomb", b"\0" * 3_000_000)]), Allowance(bytes=2_000_000))

    assert sum(path.stat().st_size for path in (tmp_path / "layer").iterdir()) <= 2_000_000


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid, match="too many"):
        unpacked(tmp_path, tar([member(str(n)) for n in range(20)]), Allowance(entries=10))


def test_a_full_disk_is_noticed_before_it_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEEP_FREE", 1 << 62)

    with pytest.raises(ImageInvalid, match="does not fit"):
        unpacked(tmp_path, tar([member("x", b"x")]))


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
