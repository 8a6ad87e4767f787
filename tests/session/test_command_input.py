"""A command's stdin: what it is given, what is written to it, and where it ends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from tests.session.test_session import box as box

import belljar
from belljar import Session
from belljar.errors import UsageError


@pytest.mark.parametrize("empty", [b"", ""])
async def test_an_empty_input_has_an_end(box: Session, empty: bytes | str) -> None:
    assert (await box.run(["cat"], stdin=empty)).exit_code == 0
    made = await box.yielding("cat", yield_after=60, stdin=empty)
    assert isinstance(made, belljar.Result)
    async with box.stream("cat; echo over", stdin=empty) as events:
        assert [
            event.data async for event in events if isinstance(event, belljar.Output)
        ] == [b"over\n"]


async def test_an_open_input_takes_more_until_it_is_closed(box: Session) -> None:
    async with box.stream("cat", stdin=b"first ", stdin_open=True) as events:
        await events.write(b"second")
        events.close_input()
        assert (
            b"".join(
                [
                    event.data
                    async for event in events
                    if isinstance(event, belljar.Output)
                ]
            )
            == b"first second"
        )
    with pytest.raises(UsageError, match="stdin_open"):
        await box.run("cat", stdin_open=True)  # nobody could close it


async def test_input_comes_from_an_iterator_while_the_command_runs(
    box: Session,
) -> None:
    answered = anyio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one\n"
        await answered.wait()
        yield b"two\n"

    result = await box.run(
        "cat", stdin=pieces(), timeout=60, on_output=lambda _: answered.set()
    )
    assert result.stdout == "one\ntwo\n"


async def test_an_endless_input_does_not_outlive_its_command(box: Session) -> None:
    async def endless() -> AsyncIterator[str]:
        yield "line\n"
        await anyio.sleep_forever()

    assert (await box.run("head -n 1", stdin=endless(), timeout=60)).stdout == "line\n"


async def test_an_open_file_is_an_input(box: Session, tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"b\na\n")
    with (tmp_path / "lines").open("rb") as lines:
        assert (await box.run("sort", stdin=lines)).stdout == "a\nb\n"


async def test_an_input_that_fails_kills_the_command_and_raises(box: Session) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"1"
        raise ValueError("no more")

    with pytest.raises(ValueError, match="no more"):
        await box.run("cat; sleep 60", stdin=broken(), timeout=60)
