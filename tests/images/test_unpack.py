"""Hostile layers: whatever an archive contains, nothing outside its own directory is touched."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

import pytest
from tests.images.archives import directory, link, member, tar
from tests.images.conftest import unpacked

from belljar.errors import ImageInvalid
from belljar.images import unpack as module
from belljar.images.unpack import Allowance

HARD = tarfile.LNKTYPE
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="owners and overlay attributes need root"
)


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
def test_a_member_that_leads_out_of_the_layer_is_refused(
    tmp_path: Path, members: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
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

    layer = unpacked(
        tmp_path,
        tar(
            [
                link("soft", "../victim"),
                link("hard", "soft", HARD),
                member("hard", b"new"),
            ]
        ),
    )

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
def test_owners_are_kept_and_impossible_ones_become_nobody(tmp_path: Path) -> None:
    layer = unpacked(
        tmp_path,
        tar(
            [
                member("mine", b"", uid=7, gid=8),
                member("far", b"", uid=70000, gid=1 << 30),
            ]
        ),
    )

    assert ((layer / "mine").stat().st_uid, (layer / "mine").stat().st_gid) == (7, 8)
    assert ((layer / "far").stat().st_uid, (layer / "far").stat().st_gid) == (
        65534,
        65534,
    )


@needs_root
def test_whiteouts_become_overlayfs_whiteouts(tmp_path: Path) -> None:
    layer = unpacked(
        tmp_path, tar([directory("d"), member("d/.wh..wh..opq"), member("d/.wh.old")])
    )

    status = (layer / "d" / "old").lstat()
    assert stat.S_ISCHR(status.st_mode)
    assert status.st_rdev == 0
    assert os.getxattr(layer / "d", "trusted.overlay.opaque") == b"y"


def test_a_directory_without_permissions_still_gets_its_files(tmp_path: Path) -> None:
    layer = unpacked(tmp_path, tar([directory("d", mode=0o500), member("d/x", b"x")]))

    assert stat.S_IMODE((layer / "d").stat().st_mode) == 0o500
    assert (layer / "d" / "x").read_bytes() == b"x"


def test_extended_attributes_of_the_archive_are_ignored(tmp_path: Path) -> None:
    info, content = member("x", b"x")
    info.pax_headers = {
        "SCHILY.xattr.user.overlay.redirect": "/etc",
        "SCHILY.xattr.security.capability": "x",
    }

    layer = unpacked(tmp_path, tar([(info, content)]))

    assert os.listxattr(layer / "x") == []


def test_a_bomb_stops_at_the_allowance(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid, match="larger"):
        unpacked(
            tmp_path,
            tar([member("bomb", b"\0" * 3_000_000)]),
            Allowance(bytes=2_000_000),
        )

    assert (
        sum(path.stat().st_size for path in (tmp_path / "layer").iterdir()) <= 2_000_000
    )


def test_too_many_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid, match="too many"):
        unpacked(
            tmp_path, tar([member(str(n)) for n in range(20)]), Allowance(entries=10)
        )


def test_the_directories_above_a_file_count_too(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid, match="too many"):
        unpacked(tmp_path, tar([member("a/" * 20 + "x")]), Allowance(entries=10))


def test_a_path_that_no_program_could_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImageInvalid, match="too long"):
        unpacked(tmp_path, tar([member("a/" * 100_000 + "x")]))
    assert list((tmp_path / "layer").iterdir()) == []


def test_many_files_in_deep_directories_are_refused_before_they_take_hours(
    tmp_path: Path,
) -> None:
    deep = [directory("a/" * 100 + str(n)) for n in range(20)]
    with pytest.raises(ImageInvalid, match="too deep"):
        unpacked(tmp_path, tar(deep), Allowance(steps=1000))


def test_names_of_directories_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "NAMES_MAX", 1000)
    with pytest.raises(ImageInvalid, match="long names"):
        unpacked(tmp_path, tar([directory("a" * 200 + str(n)) for n in range(20)]))


@pytest.mark.parametrize("limit", ["KEEP_FREE", "KEEP_FREE_FILES"])
def test_empty_entries_count_towards_the_disk_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(module, limit, 1 << 62)
    if limit == "KEEP_FREE_FILES" and not os.statvfs(tmp_path).f_files:
        pytest.skip("this file system does not count its files")

    with pytest.raises(ImageInvalid, match="does not fit"):
        unpacked(tmp_path, tar([directory("d")]))


def test_unpacking_stops_before_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "KEEP_FREE", 1 << 62)

    with pytest.raises(ImageInvalid, match="does not fit"):
        unpacked(tmp_path, tar([member("x", b"x")]))
