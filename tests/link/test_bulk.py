"""Output that goes straight into a file."""

import os
from pathlib import Path

import pytest
from tests.link.conftest import ENDED, Pair, pass_pipe, started_command

from belljar.link import bulk, frames
from belljar.link.frames import Flag, From


@pytest.mark.parametrize("mode", ["wb", "ab"], ids=["pages", "copied"])
async def test_output_goes_to_a_file_until_the_command_ends(
    pair: Pair, tmp_path: Path, mode: str
) -> None:
    """Even if another process still holds the pipe open."""
    process, (reading, writing) = await started_command(pair, Flag.SHELL), os.pipe()
    with open(tmp_path / "file", mode) as file:
        process.spill(file.fileno())
        pass_pipe(pair, process.id, frames.STDOUT, reading)
        os.write(writing, b"x" * 5000)
        pair.say(From.ENDED, process.id, ENDED)
        await process.ended()
    assert (tmp_path / "file").read_bytes() == b"x" * 5000
    for each in (reading, writing):
        os.close(each)


async def test_a_file_that_cannot_be_written_ends_the_command_and_nothing_else(
    pair: Pair,
) -> None:
    process, (reading, writing) = await started_command(pair, Flag.SHELL), os.pipe()
    with open("/dev/full", "wb") as file:
        process.spill(file.fileno())
        pass_pipe(pair, process.id, frames.STDOUT, reading)
        os.write(writing, b"x")
        pair.say(From.ENDED, process.id, ENDED)
        with pytest.raises(OSError, match="No space"):
            await process.ended()
    assert pair.link.lost is None
    for each in (reading, writing):
        os.close(each)


def test_a_pipe_that_another_process_refills_ends_with_its_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.write(writing, b"mine")
    splice, refills = os.splice, iter(range(1000))

    def refilled(pipe: int, file: int, most: int) -> int:
        moved = splice(pipe, file, most)
        if next(refills, None) is not None:
            os.write(writing, b"another's")
        return moved

    monkeypatch.setattr(os, "splice", refilled)
    with open(tmp_path / "file", "wb") as file:
        assert bulk.spill(reading, os.dup(file.fileno()), lambda: True) == 4
    assert (tmp_path / "file").read_bytes() == b"mine"
    os.close(writing)
