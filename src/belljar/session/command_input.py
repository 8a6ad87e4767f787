"""A command's stdin: first the `stdin` option, then what is written, then its end.

The option is bytes or text, or an iterator of such pieces, which come while the command runs.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread

from belljar.link.frames import Flag

if TYPE_CHECKING:
    from belljar.link.remote_process import RemoteProcess
    from belljar.session.options import InputPiece, Options


class CommandInput:
    def __init__(self, process: RemoteProcess, options: Options, flags: int) -> None:
        self._execution = process
        self._first = options.get("stdin")
        self._ends = self._first is not None and not options.get("stdin_open") and not flags & Flag.PTY
        """Whether it ends after the first bytes. A terminal's input has no end, unless somebody types one."""
        self._fed = anyio.Event()

    @property
    def is_whole(self) -> bool:
        """Whether all of the option is there, so that feeding it takes no longer than the command reads."""
        return isinstance(self._first, bytes | str | None)

    async def feed(self, fail: Callable[[Exception], None] | None = None) -> None:
        """`fail` is called with an exception of the caller's iterator."""
        if self._fed.is_set():
            return
        first, self._first = self._first, None
        try:
            if isinstance(first, bytes | str):
                await self._execution.input(_encoded(first))
            elif first is not None:
                async for piece in _pieces(first):
                    await self._execution.input(_encoded(piece))
        except Exception as failure:
            if fail is None:
                raise
            fail(failure)
        finally:
            self._fed.set()
        if self._ends:
            self._execution.close_input()

    async def write(self, data: bytes) -> None:
        """Waits while the command does not read, or while the first bytes are on their way."""
        await self._fed.wait()
        await self._execution.input(data)

    def close(self) -> None:
        self._ends = True
        if self._fed.is_set():
            self._execution.close_input()


def _encoded(piece: InputPiece) -> bytes:
    return piece.encode() if isinstance(piece, str) else bytes(piece)


async def _pieces(first: AsyncIterable[InputPiece] | Iterator[InputPiece]) -> AsyncIterator[InputPiece]:
    """An ordinary iterator, such as an open file, may wait, so a thread does that."""
    if isinstance(first, AsyncIterable):
        async for piece in first:
            yield piece
        return
    following = partial(next, first, None)
    while (piece := await to_thread.run_sync(following, abandon_on_cancel=True)) is not None:
        yield piece
