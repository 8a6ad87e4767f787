"""Files below an opened directory: no link is followed, even if files are swapped meanwhile."""

from __future__ import annotations

import errno
import os
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests import descriptors
from tests.workspace.conftest import as_root, new_directory

from belljar.workspace import beneath
from belljar.workspace.beneath import KEPT, Folder


@pytest.fixture(params=["openat2", "walked"])
def folder(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Folder]:
    monkeypatch.setattr(beneath, "_has_openat2", lambda: request.param == "openat2")
    root = tmp_path / "root"
    (root / "sub" / "deep").mkdir(parents=True)
    (root / "sub" / "file").write_text("inside")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").write_text("outside")
    (root / "link").symlink_to("../outside")
    (root / "inner").symlink_to("sub")
    (root / "leaf").symlink_to("../outside/file")
    with Folder.at(root) as opened:
        yield opened


def refused(action: Callable[[], object]) -> int | None:
    try:
        action()
    except OSError as error:
        return error.errno
    raise AssertionError("it was not refused")


ESCAPES = [
    "link/file",
    "inner/file",
    "leaf",
    "../outside/file",
    "sub/../../outside/file",
    "link",
    "/etc/passwd",
]


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_leads_out_or_through_a_link(folder: Folder, path: str) -> None:
    refused(lambda: folder.file(path))
    refused(lambda: folder.folder(path))


@pytest.mark.parametrize(
    "path", ["link/new", "inner/new", "../new", "link/../new", "/tmp/new"]
)
def test_nothing_is_made_or_removed_outside(
    folder: Folder, tmp_path: Path, path: str
) -> None:
    for change in (
        lambda: folder.write(path, b"x"),
        lambda: folder.mkdir(path),
        lambda: folder.symlink("x", path),
        lambda: folder.rename("sub/file", path),
        lambda: os.close(folder.create(path)),
    ):
        refused(change)
    for remove in (folder.unlink, folder.stat, folder.readlink):
        refused(lambda remove=remove: remove("link/file"))
    assert os.listdir(tmp_path / "outside") == ["file"]
    assert (tmp_path / "root/sub/file").read_text() == "inside"


def test_a_link_in_place_of_the_file_is_replaced_and_not_followed(
    folder: Folder, tmp_path: Path
) -> None:
    folder.write("leaf", b"new", 0o640)
    assert (tmp_path / "outside/file").read_text() == "outside"
    assert (tmp_path / "root/leaf").read_bytes() == b"new"
    assert not (tmp_path / "root/leaf").is_symlink()
    assert sorted(os.listdir(tmp_path / "root")) == ["inner", "leaf", "link", "sub"]


def test_a_replacement_that_fails_leaves_the_old_file(
    folder: Folder, tmp_path: Path
) -> None:
    def fails() -> None:
        with folder.replacing("sub/file") as file:
            file.write(b"half")
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    assert (tmp_path / "root/sub/file").read_text() == "inside"
    assert sorted(os.listdir(tmp_path / "root/sub")) == ["deep", "file"]


def test_only_regular_files_are_read(folder: Folder, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "root/fifo")
    refused(lambda: folder.file("fifo"))  # and must not hang
    refused(lambda: folder.file("sub"))


def test_reading_is_bounded(folder: Folder) -> None:
    assert folder.read("sub/file", 6) == b"inside"
    code = refused(lambda: folder.read("sub/file", 5))
    assert code == errno.EFBIG


def test_a_small_file_takes_little_memory_whatever_may_be_read(
    folder: Folder, tmp_path: Path
) -> None:
    tracemalloc.start()
    try:
        assert (
            folder.read("sub/file", 1 << 30)
            == (tmp_path / "root/sub/file").read_bytes()
        )
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_grows_while_it_is_read_is_read_to_its_end(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "root/sub/file"
    before = os.stat_result((*file.stat()[:6], 1, *file.stat()[7:]))
    file.write_text("grown")
    monkeypatch.setattr(beneath.os, "fstat", lambda descriptor: before)
    assert folder.read("sub/file", 5) == b"grown"
    assert refused(lambda: folder.read("sub/file", 4)) == errno.EFBIG


def test_the_walk_lists_links_and_follows_none(folder: Folder) -> None:
    assert [name for name, _ in folder.walk()] == [
        "inner",
        "leaf",
        "link",
        "sub",
        "sub/deep",
        "sub/file",
    ]
    assert [name for name, _ in folder.walk("sub")] == ["sub/deep", "sub/file"]


def test_a_tree_too_deep_to_walk_is_reported_and_leaves_no_descriptor_open(
    folder: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beneath, "DEEPEST", 200)  # pytest cannot remove a deeper tree
    here, opened = folder.folder(""), []
    for _ in range(beneath.DEEPEST + 2):
        here.mkdir("d")
        opened.append(here)
        here = here.folder("d")
    for each in (*opened, here):
        each.close()
    before = descriptors.open_paths(str(tmp_path))
    assert refused(lambda: list(folder.walk())) == errno.ENAMETOOLONG
    assert descriptors.open_paths(str(tmp_path)) == before
    next(iter(folder.walk("d")))
    assert descriptors.open_paths(str(tmp_path)) == before


def test_a_deep_tree_is_walked_with_few_descriptors(
    folder: Folder, tmp_path: Path
) -> None:
    place = tmp_path / "root/sub/deep"
    deep = "/".join(["d"] * 3 * beneath.HELD)
    (place / deep / "last").mkdir(parents=True)
    for above in (place / "z", place / "d" / "z", place / deep / "z"):
        above.touch()
    before, most, found = descriptors.open_paths(str(tmp_path)), 0, []
    for name, _ in folder.walk("sub/deep"):
        found.append(name.removeprefix("sub/deep/"))
        most = max(most, len(descriptors.open_paths(str(tmp_path))))
    ends = [f"{deep}/last", f"{deep}/z", "d/z", "z"]
    assert [name for name in found if not name.endswith("d")] == ends
    assert most - len(before) <= beneath.HELD + 2
    assert descriptors.open_paths(str(tmp_path)) == before


def test_a_directory_that_is_moved_under_a_walk_leads_nowhere_else(
    folder: Folder, tmp_path: Path
) -> None:
    place = tmp_path / "root/sub/deep"
    parts = ["d"] * 3 * beneath.HELD
    (place / "/".join(parts)).mkdir(parents=True)

    def walked() -> None:
        for name, _ in folder.walk("sub/deep"):
            if name.count("/") == len(parts) + 1:
                (place / "/".join(parts[: beneath.HELD])).rename(place / "elsewhere")

    assert refused(walked) == errno.EBUSY


def test_a_mode_never_gets_a_set_id_bit(folder: Folder, tmp_path: Path) -> None:
    folder.chmod("sub/file", 0o6755)
    assert (tmp_path / "root/sub/file").stat().st_mode & 0o7777 == 0o755
    refused(lambda: folder.chmod("leaf", 0o777))


def test_extended_attributes_are_those_of_the_opened_file(
    folder: Folder, tmp_path: Path
) -> None:
    try:
        folder.set_xattr("sub/file", "user.note", b"mine")
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            pytest.skip("this file system has no user attributes")
        raise
    assert folder.xattrs("sub/file") == {"user.note": b"mine"}
    folder.remove_xattr("sub/file", "user.note")
    assert folder.xattrs("sub/file") == {}
    refused(lambda: folder.set_xattr("leaf", "user.note", b"mine"))


def test_a_directory_that_is_swapped_for_a_link_all_the_time_never_leads_out(
    folder: Folder, tmp_path: Path
) -> None:
    root, done = tmp_path / "root", threading.Event()
    (root / "real").mkdir()
    (root / "real/file").write_text("inside")
    (root / "fake").symlink_to("../outside")

    def swap() -> None:
        while not done.is_set():
            os.rename(root / "real", root / "here")
            os.rename(root / "here", root / "real")
            os.rename(root / "fake", root / "here")
            os.rename(root / "here", root / "fake")

    thread = threading.Thread(target=swap)
    thread.start()
    seen = set()
    try:
        for _ in range(3000):
            try:
                seen.add(folder.read("here/file", 100))
                folder.write("here/new", b"x")
            except OSError:
                seen.add(b"refused")
    finally:
        done.set()
        thread.join()
    assert b"outside" not in seen
    assert os.listdir(tmp_path / "outside") == ["file"]


def test_a_path_is_named_below_its_folder_or_not_at_all(tmp_path: Path) -> None:
    with Folder.at(tmp_path) as folder:
        named = {
            path: beneath.named_below(folder.descriptor, path)
            for path in ("a/../b", "..b", "..", "../b", ".")
        }
        assert named == {
            "a/../b": "b",
            "..b": "..b",
            "..": None,
            "../b": None,
            ".": None,
        }
        assert beneath.named_below(folder.descriptor, f"{tmp_path}/x") == "x"
        assert beneath.named_below(folder.descriptor, "/etc/passwd") is None
    assert beneath.parents("a/b/c") == ["a", "a/b"]


def test_what_is_removed_during_a_walk_does_not_end_it(
    folder: Folder, tmp_path: Path
) -> None:
    found = []
    for name, _ in folder.walk():
        found.append(name)
        if name == "inner":
            (tmp_path / "root/leaf").unlink()
    assert found == ["inner", "link", "sub", "sub/deep", "sub/file"]


@as_root
def test_root_changes_no_mode_of_its_own_files_in_somebody_else_s_folder(
    tmp_path: Path,
) -> None:
    for owner, kept in ((1000, 0o600), (0, 0o644)):
        place = new_directory(tmp_path / str(owner))
        for name, uid in (("root's", 0), ("theirs", 1000)):
            (place / name).touch(0o600)
            os.chown(place / name, uid, uid)
        os.chown(place, owner, owner)
        with Folder.at(place) as folder:
            folder.chmod("root's", 0o644)
            folder.chmod("theirs", 0o644)
        assert [
            (place / name).stat().st_mode & 0o777 for name in ("root's", "theirs")
        ] == [kept, 0o644]


@as_root
def test_only_a_link_or_an_empty_directory_is_given_away(
    folder: Folder, tmp_path: Path
) -> None:
    for path in ("sub/file", "sub"):
        assert refused(lambda path=path: folder.give(path, (1000, 1000))) == errno.EBUSY
    for path in ("sub/deep", "leaf"):
        folder.give(path, (1000, 1000))
    owners = {
        path: (tmp_path / "root" / path).lstat().st_uid
        for path in ("sub/file", "sub", "sub/deep", "leaf")
    }
    assert owners == {"sub/file": 0, "sub": 0, "sub/deep": 1000, "leaf": 1000}
    assert (tmp_path / "outside/file").stat().st_uid == 0


def test_kept_directories_lead_nowhere_else(tmp_path: Path) -> None:
    """Also if they are replaced by links, removed and made again, or more than are kept."""
    (tmp_path / "outside").mkdir()
    top = tmp_path / "top"
    for number in range(KEPT + 5):
        (top / f"d{number}").mkdir(parents=True)
    with Folder.at(top) as folder, folder.keeping():
        for _ in range(2):
            for number in range(KEPT + 5):
                folder.write(f"d{number}/f", b"x")
        (top / "d1").rename(top / "moved")
        (top / "d1").symlink_to(tmp_path / "outside")
        with suppress(OSError):
            folder.write("d1/g", b"x")
        folder.unlink("d20/f")
        folder.rmdir("d20")
        folder.mkdir("d20")
        folder.write("d20/again", b"x")
        folder.rename("d20", "renamed")
        folder.mkdir("d20")
        folder.write("d20/new", b"x")
        for bad in ("d3/../../outside/f", "d3/.."):
            with pytest.raises(OSError):  # noqa: PT011
                folder.write(bad, b"x")
    assert list((tmp_path / "outside").iterdir()) == []
    assert [path.name for path in (top / "renamed").iterdir()] == ["again"]
    assert [path.name for path in (top / "d20").iterdir()] == ["new"]


def test_a_folder_closes_what_it_kept(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    before = len(os.listdir("/proc/self/fd"))
    with Folder.at(tmp_path) as folder:
        with folder.keeping(), folder.keeping():
            folder.write("a/b/c", b"x")
            folder.write("a/d", b"x")
        folder.write("a/b/e", b"x")
    assert len(os.listdir("/proc/self/fd")) == before
