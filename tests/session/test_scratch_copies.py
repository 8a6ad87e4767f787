"""A checkpoint also restores scratch space, within limits."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.session.test_staged import Open
from tests.session.test_staged import _nothing_stays as _nothing_stays
from tests.session.test_staged import engine_name as engine_name
from tests.session.test_staged import mine as mine
from tests.session.test_staged import place as place
from tests.session.test_staged import staged as staged

from belljar.session.files import Files, Sink, Source
from belljar.session.scratch_copies import _pack
from belljar.session.session import Session

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.engine]


async def test_rollback_and_fork_include_tmp_and_home(staged: Open) -> None:
    async with staged() as box:
        await box.run(
            "echo tmp > /tmp/x; mkdir -m 555 ~/ro; ln -s x ~/link; touch ~/gone"
        )
        point = await box.checkpoint()
        assert box.left_out(point) == []
        await box.run(
            "rm -rf /tmp/x ~/link ~/gone; echo new > ~/new; chmod 700 ~/ro; echo y > ~/ro/y"
        )
        await box.rollback(point)
        look = "cat /tmp/x; ls ~; readlink ~/link; stat -c %a ~/ro; ls ~/ro"
        assert (await box.run(look)).stdout == "tmp\ngone\nlink\nro\nx\n555\n"
        twin = await box.fork()
        try:
            assert (await twin.run(look)).stdout == (await box.run(look)).stdout
        finally:
            await twin.close()


async def test_scratch_files_too_large_to_copy_are_left_out_and_named(
    mine: Path, engine_name: str
) -> None:
    async with Session(mine, changes="staged", engine=engine_name) as box:  # type: ignore[arg-type]
        await box.run("head -c 40000000 /dev/zero > /tmp/big; echo 1 > ~/x")
        point = await box.checkpoint()
        assert box.left_out(point) == ["/tmp"]
        await box.run("rm /tmp/big ~/x; echo new > /tmp/new")
        await box.rollback(point)
        assert (
            await box.run("ls /tmp ~")
        ).stdout == "/home/sandbox:\nx\n\n/tmp:\nnew\n"


async def test_short_writes_to_disk_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(
        argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        assert callable(sink)
        sink(b"all of it")
        return 0, b""

    write = os.write
    monkeypatch.setattr(
        os, "write", lambda descriptor, data: write(descriptor, data[:2])
    )
    await _pack(Files(run), "/tmp", tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"all of it"
