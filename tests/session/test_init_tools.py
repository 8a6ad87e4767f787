"""The init's own tools as commands: what they answer is checked."""

from __future__ import annotations

import pytest

from belljar.errors import FileFailed
from belljar.session.files import Files, Sink, Source


@pytest.mark.parametrize("record", [b"f 644 -5 0 a", b"f -644 5 0 a", b"f 644 +5 0 a", b"f 644 1_0 0 a"])
async def test_a_size_below_nothing_is_no_answer(record: bytes) -> None:
    async def run(argv: list[str], source: Source | None, sink: Sink) -> tuple[int, bytes]:
        assert callable(sink)
        sink(record + b"\0\0")
        return 0, b""

    with pytest.raises(FileFailed, match="cannot be read"):
        await Files(run).list()
