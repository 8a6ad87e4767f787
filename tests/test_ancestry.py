"""Finds who could replace a path by another file."""

from __future__ import annotations

import os
import pwd
import struct
from pathlib import Path

import pytest

from belljar.ancestry import untrusted


@pytest.fixture
def place(tmp_path: Path) -> Path:
    path = tmp_path / "st" / "belljar"
    path.mkdir(parents=True)
    path.parent.chmod(0o755)
    return path


def test_a_path_of_ours_in_a_shared_place_with_the_sticky_bit_is_trusted(
    place: Path,
) -> None:
    place.parent.chmod(0o1777)
    assert untrusted(place) is None
    assert untrusted(place / "not" / "there") is None


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_parent_that_others_may_write_is_named(place: Path, mode: int) -> None:
    place.parent.chmod(mode)
    assert untrusted(place) == str(place.parent)
    place.parent.chmod(0o755)
    assert untrusted(place) is None


@pytest.mark.root
def test_a_group_that_others_are_in_may_not_write(place: Path) -> None:
    place.parent.chmod(0o775)
    os.chown(place.parent, 0, pwd.getpwnam("daemon").pw_gid)
    assert untrusted(place) == str(place.parent)
    os.chown(place.parent, 0, 0)
    assert untrusted(place) is None


def test_write_access_by_an_access_list_is_noticed(place: Path) -> None:
    """After `setfacl -m u:daemon:rwx` the group is ours alone, but the mode's group bits show the list's mask."""
    user, named, group, mask, other = (
        (1, 7, -1),
        (2, 7, 1),
        (4, 5, -1),
        (16, 7, -1),
        (32, 5, -1),
    )
    entries = b"".join(
        struct.pack("<HHi", *each) for each in (user, named, group, mask, other)
    )
    try:
        os.setxattr(
            place.parent, "system.posix_acl_access", struct.pack("<I", 2) + entries
        )
    except OSError:
        pytest.skip("this file system has no access lists")
    assert place.parent.stat().st_mode & 0o777 == 0o775
    assert untrusted(place) == str(place.parent)


@pytest.mark.root
@pytest.mark.parametrize("which", ["st", "st/belljar", "st/belljar/file"])
def test_what_another_user_owns_is_named(place: Path, which: str) -> None:
    (place / "file").touch(mode=0o644)
    owned = place.parent.parent / which
    os.chown(owned, 1000, 1000)
    assert untrusted(place / "file") == str(owned)


@pytest.mark.root
def test_every_link_on_the_way_is_looked_at(place: Path, tmp_path: Path) -> None:
    """Neither the path nor its target shows that a link in the middle is another user's."""
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "middle").symlink_to("../st")
    (tmp_path / "first").symlink_to("theirs/middle")
    assert untrusted(tmp_path / "first" / "belljar") is None
    os.chown(theirs, 1000, 1000)
    assert untrusted(tmp_path / "first" / "belljar") == str(theirs)


def test_two_dots_behind_a_link_lead_where_the_kernel_goes(
    place: Path, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(place)
    place.parent.chmod(0o777)
    assert untrusted(f"{tmp_path}/link/../x") == str(place.parent)


def test_links_that_lead_in_a_circle_are_not_trusted(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert untrusted(tmp_path / "a") is not None
