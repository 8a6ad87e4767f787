"""Files are copied exactly: holes, attributes, odd names."""

from __future__ import annotations

import errno
import os
import tracemalloc
from pathlib import Path

import pytest
from tests.staged.conftest import Stage

from belljar.staged.apply import apply, undo
from belljar.staged.copying import copy_file, digest, level_attributes, user_attributes
from belljar.staged.layers import same_contents
from belljar.staged.review import Review
from belljar.workspace.beneath import Folder


def test_applied_files_get_no_set_id_bit_and_the_hosts_owner(stage: Stage) -> None:
    (stage.merged / "x").write_text("x")
    os.chown(stage.merged / "x", 4242, 4242)
    (stage.merged / "x").chmod(0o6755)
    os.chown(stage.host / "b.txt", 1234, 1234)
    (stage.merged / "b.txt").write_text("new b")
    apply(stage.area, force=True)
    assert (stage.host / "x").stat().st_mode & 0o7777 == 0o755
    assert (stage.host / "x").stat().st_uid == stage.host.stat().st_uid
    assert (stage.host / "b.txt").stat().st_uid == 1234


def test_a_sparse_file_stays_sparse_and_attributes_come_along(stage: Stage) -> None:
    big = stage.merged / "big"
    with big.open("wb") as file:
        file.seek(5 << 30)
        file.write(b"end")
    os.setxattr(big, "user.note", b"kept")
    apply(stage.area)
    status = (stage.host / "big").stat()
    assert status.st_size == (5 << 30) + 3
    assert status.st_blocks * 512 < 1 << 20
    assert os.getxattr(stage.host / "big", "user.note") == b"kept"


def _read_so_far() -> int:
    """How many bytes this process has read so far."""
    return int(Path("/proc/self/io").read_text().split()[1])


def test_holes_of_sparse_files_are_never_read_or_written(stage: Stage) -> None:
    """Huge sparse files cost a command nothing, so the host must not read their holes."""
    big, size, review = stage.merged / "big", 8 << 30, Review(stage.area)
    with big.open("wb") as file:
        file.write(b"begin\0")
        file.seek(size)
        file.write(b"end")
    before = _read_so_far()
    (change,) = review.changes()
    review.apply_chosen({change: review.show(change)}, {})
    assert review.changes() == [], "both have it now, and are compared"
    with big.open("r+b") as file:
        file.seek(size // 2)
        file.write(b"x")
    assert [each.kind for each in review.changes()] == ["modified"]
    assert _read_so_far() - before < 64 << 20


def test_a_digest_depends_on_contents_and_not_on_holes(tmp_path: Path) -> None:
    dense = b"one" + bytes(300_000) + b"two" + bytes(70_000)
    with Folder.at(tmp_path) as folder:
        (tmp_path / "dense").write_bytes(dense)
        with (tmp_path / "sparse").open("wb") as file:
            file.write(b"one")
            file.seek(300_003)
            file.write(b"two")
            file.truncate(len(dense))
        assert digest(folder, "dense") == digest(folder, "sparse")
        assert same_contents(folder, folder, "dense")
        found = {digest(folder, "dense")}
        for other in (
            dense + b"\0",
            dense[:-1],
            b"\0" + dense[:-1],
            dense.replace(b"two", b"twp"),
            b"",
            bytes(len(dense)),
        ):
            (tmp_path / "dense").write_bytes(other)
            found.add(digest(folder, "dense"))
        assert len(found) == 7


@pytest.mark.parametrize("size", [5 << 30, 96 << 20])
def test_a_big_file_never_goes_through_memory_whatever_is_done_with_it(
    stage: Stage, size: int
) -> None:
    """With 5 GB for all that need not read every byte, with 96 MB for the rest."""
    held, review = stage.host / "big", Review(stage.area)
    with held.open("wb") as file:
        file.truncate(size)
    stage.area.meta["since"] = held.stat().st_ctime_ns + 1
    with (stage.merged / "big").open(
        "r+b"
    ) as file:  # the overlay copies it into the upper layer, with its holes
        file.write(b"\0new")
        file.truncate(size + 1 if size > 1 << 30 else size)
    tracemalloc.start()
    try:
        (change,) = review.changes()
        assert "Binary files a/big and b/big differ" in review.diff()
        if size < 1 << 30:
            assert review.show(change).digests["big"]
        review.apply()
        with held.open("rb") as file:
            assert file.read(4) == b"\0new"
        review.undo()
        assert held.stat().st_size == size
        assert review.discard(["big"]) == ["big"]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 64 << 20


def test_names_that_are_no_text_are_applied(stage: Stage) -> None:
    name = os.fsdecode(b"\xff\nx")
    (stage.merged / name).write_text("odd")
    apply(stage.area)
    undo(stage.area)
    apply(stage.area)
    assert (stage.host / name).read_text() == "odd"


@pytest.mark.parametrize("code", [errno.EXDEV, errno.ENOSYS, errno.ENOSPC, errno.EIO])
def test_a_copy_goes_on_by_hand_only_where_the_kernel_cannot_copy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    def refused(*_: object) -> int:
        raise OSError(code, os.strerror(code))

    (tmp_path / "a").write_bytes(b"x" * 3_000_000)
    monkeypatch.setattr(os, "copy_file_range", refused)
    with Folder.at(tmp_path) as folder:
        if code in (errno.ENOSPC, errno.EIO):
            with pytest.raises(OSError, match=os.strerror(code)):
                copy_file(folder, "a", folder, "b")
        else:
            copy_file(folder, "a", folder, "b")
            assert (tmp_path / "b").read_bytes() == (tmp_path / "a").read_bytes()


def test_attributes_are_levelled_both_ways(tmp_path: Path) -> None:
    for name, attributes in (
        ("new", {"user.a": b"1", "user.b": b"2"}),
        ("old", {"user.b": b"3", "user.c": b"4"}),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "f").touch()
        for key, value in attributes.items():
            os.setxattr(tmp_path / name / "f", key, value)
    with Folder.at(tmp_path / "new") as source, Folder.at(tmp_path / "old") as target:
        level_attributes(source, target, "f")
        assert user_attributes(target, "f") == {"user.a": b"1", "user.b": b"2"}
