"""Files are copied as they are: holes, attributes, odd names."""

from __future__ import annotations

import os
import tracemalloc

from tests.staged.conftest import Stage

from belljar.staged.apply import apply, undo


def test_set_id_bits_and_owners_are_the_hosts(stage: Stage) -> None:
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
    tracemalloc.start()
    apply(stage.area)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 64 << 20
    status = (stage.host / "big").stat()
    assert status.st_size == (5 << 30) + 3
    assert status.st_blocks * 512 < 1 << 20
    assert os.getxattr(stage.host / "big", "user.note") == b"kept"


def test_names_that_are_no_text_are_applied(stage: Stage) -> None:
    name = os.fsdecode(b"\xff\nx")
    (stage.merged / name).write_text("odd")
    apply(stage.area)
    undo(stage.area)
    apply(stage.area)
    assert (stage.host / name).read_text() == "odd"
