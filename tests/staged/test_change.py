"""What a change reports about its file."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.staged.conftest import Stage


def test_names_that_are_not_utf8_are_listed(stage: Stage) -> None:
    for name in (b"\xff\xfe", b"new\nline", b'quo"te', b" "):
        Path(os.fsdecode(os.fsencode(stage.merged) + b"/" + name)).write_text("x")
    assert set(stage.kinds().values()) == {"added"}
    assert len(stage.kinds()) == 4


def test_fifos_sockets_and_binary_files_are_distinguished(stage: Stage) -> None:
    os.mkfifo(stage.merged / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(stage.merged / "s"))
    (stage.merged / "bin").write_bytes(b"\0\1\2")
    found = stage.changes()
    assert found["fifo"].after.kind == "fifo"  # type: ignore[union-attr]
    assert found["s"].after.kind == "socket"  # type: ignore[union-attr]
    assert found["bin"].binary
