"""The init's tools as commands: the host checks their answers."""

from __future__ import annotations

import tracemalloc
from types import SimpleNamespace

import anyio
import anyio.lowlevel
import pytest
from tests.link.conftest import Pair
from tests.link.conftest import pair as pair

from belljar.errors import FileFailed
from belljar.link import remote_process
from belljar.session import init_tools
from belljar.session.files import Files, Sink, Source
from belljar.session.init_tools import InitTools


@pytest.mark.parametrize(
    "record", [b"f 644 -5 0 a", b"f -644 5 0 a", b"f 644 +5 0 a", b"f 644 1_0 0 a"]
)
async def test_invalid_numbers_in_a_listing_are_refused(record: bytes) -> None:
    async def run(
        argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        assert callable(sink)
        sink(record + b"\0\0")
        return 0, b""

    with pytest.raises(FileFailed, match="cannot be read"):
        await Files(run).list()


def answering(*parts: bytes, status: int = 0, stderr: bytes = b"") -> Files:
    async def run(
        argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        assert callable(sink)
        for part in parts:
            sink(part)
        return status, stderr

    return Files(run)


@pytest.mark.parametrize(
    "answer",
    [b"", b"f 644 5 0 a\0\0" * 2, b"f 644 %b 0 a\0\0" % (b"9" * 400), bytes(8000)],
)
async def test_an_invalid_file_status_is_refused(answer: bytes) -> None:
    with pytest.raises(FileFailed, match="cannot be read"):
        await answering(answer).stat("a")


@pytest.mark.parametrize(
    "answer", [b"a\x001\0x\0" * 3, b"a\x001\0", b"a\x001\0x\0rest"]
)
async def test_a_search_answer_with_too_many_or_partial_lines_is_refused(
    answer: bytes,
) -> None:
    with pytest.raises(FileFailed, match="cannot be read"):
        await answering(answer).search("x", most=2)


async def test_absurd_numbers_from_a_sandbox_raise_no_unexpected_error() -> None:
    (match,) = await answering(b"a\0%b\0x\0" % (b"9" * 5000)).search("x")
    assert match.line == 0
    with pytest.raises(FileFailed, match="words"):
        await answering(status=1, stderr="\u00b2 words".encode()).read("a")


async def test_a_file_that_comes_byte_by_byte_takes_no_more_memory_than_its_bytes() -> (
    None
):
    async def run(
        argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        assert callable(sink)
        for number in range(200_000):
            sink(number.to_bytes(3, "little"))
        return 0, b""

    tracemalloc.start()
    try:
        content = await Files(run).read("a")
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(content) == 600_000
    assert most < 4 * len(content)


async def test_a_program_that_the_init_never_ends_is_given_up(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(init_tools, "ASK_SECONDS", 0.01)
    monkeypatch.setattr(init_tools, "GRACE", 0.01)
    monkeypatch.setattr(remote_process, "PATIENCE", 0.01)
    tools = InitTools(lambda: SimpleNamespace(link=pair.link, init="/init"))  # type: ignore[arg-type, return-value]

    with anyio.fail_after(120):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(pair.answer_ping)
            assert await tools.ask(["pip", "config"]) == ""
    assert "missed a deadline" in str(pair.link.lost)
