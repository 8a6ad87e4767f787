"""A user namespace for the caller, and trees that are hard to remove."""

import os
from pathlib import Path
from typing import Any

import pytest

from belljar import user_namespace

SOMEBODY = 54321


def test_a_tree_is_removed_whatever_its_modes_and_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(mode=0o755)
    (outside / "kept").touch()
    locked = tmp_path / "tree" / "locked"
    locked.mkdir(parents=True)
    (locked / "file").touch()
    (locked / "link").symlink_to(outside)
    locked.chmod(0)
    user_namespace.remove_tree(tmp_path / "tree")
    assert not (tmp_path / "tree").exists()
    assert (outside / "kept").exists()
    assert outside.stat().st_mode & 0o777 == 0o755


def test_subordinate_ids_are_the_first_range_that_is_large_enough(
    tmp_path: Path,
) -> None:
    file = tmp_path / "subuid"
    assert user_namespace._first(file, {str(os.getuid())}) is None
    file.write_text(
        f"other:1:65536\n{os.getuid()}:500:10\n{os.getuid()}:200000:65536\nbroken\n"
    )
    assert user_namespace._first(file, {str(os.getuid())}) == 200000


def test_offered_subordinate_ids_are_unused(tmp_path: Path) -> None:
    uids, gids = tmp_path / "subuid", tmp_path / "subgid"
    assert user_namespace.free_range([uids, gids]) == 100_000
    uids.write_text("a:100000:65536\nb:300000:65536\nbroken\nc:x:y\n")
    gids.write_text("a:165536:65536\n")
    assert user_namespace.free_range([uids, gids]) == 231_072
    gids.write_text("a:165536:100000\n")
    assert user_namespace.free_range([uids, gids]) == 365_536


def test_a_namespace_child_has_its_own_user_namespace_and_ends() -> None:
    with user_namespace.child_in_new_namespace() as child:
        assert (
            os.stat(f"/proc/{child}/ns/user").st_ino
            != os.stat("/proc/self/ns/user").st_ino
        )
    assert not Path(f"/proc/{child}").exists()


def test_a_directory_that_is_swapped_for_a_link_does_not_lead_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attacker always wins the race: he swaps at the first file that cannot be removed."""
    top, outside, plain = tmp_path / "top", tmp_path / "outside", os.unlink
    outside.mkdir()
    (outside / "file").touch()
    outside.chmod(0o555)
    (top / "inner").mkdir(parents=True)
    (top / "inner/file").touch()

    def swapping(name: Any, **options: Any) -> None:
        if not (top / "inner").is_symlink() and name == "file":
            (top / "inner").rename(top / "away")
            (top / "inner").symlink_to(outside)
            raise PermissionError(13, "locked", name)
        plain(name, **options)

    monkeypatch.setattr(os, "unlink", swapping)
    user_namespace.remove_tree(top)
    assert outside.stat().st_mode & 0o777 == 0o555
    assert os.listdir(outside) == ["file"]
    assert not top.exists()


@pytest.mark.root
def test_a_tree_that_locks_its_owner_out_is_removed(tmp_path: Path) -> None:
    top = tmp_path / "mine/top"
    (top / "a/b/c").mkdir(parents=True)
    (top / "a/b/c/file").touch()
    (top / "a/out").symlink_to("/etc")
    for each in (top / "a/b/c", top / "a/b", top / "a", top, tmp_path / "mine"):
        os.chown(each, SOMEBODY, SOMEBODY)
    for each in (top / "a/b/c", top / "a/b", top / "a"):
        each.chmod(0)
    for each in (tmp_path, *tmp_path.parents[:3]):
        each.chmod(each.stat().st_mode | 0o011)
    if child := os.fork():
        os.waitpid(child, 0)
    else:
        os.setresuid(SOMEBODY, SOMEBODY, SOMEBODY)
        user_namespace.remove_tree(top)
        os._exit(0)
    assert not top.exists()
