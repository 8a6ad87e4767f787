"""Runs the init's small tools (files, relay) as commands. They need no program of the image."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar.errors import BelljarError
from belljar.link import frames
from belljar.link.frames import Flag
from belljar.session.archive import CHUNK
from belljar.session.files import File, Sink, Source
from belljar.syscalls import write_all

if TYPE_CHECKING:
    from belljar.link.remote_process import RemoteProcess
    from belljar.sandbox.sandbox import Sandbox

LONGEST_ERROR = 4096
GRACE = 1.0
ASK_SECONDS = 15.0
ANSWER_MAX = 1 << 20


class InitTools:
    def __init__(self, sandbox: Callable[[], Sandbox]) -> None:
        self._sandbox = sandbox

    @property
    def _stdin(self) -> int:
        """Flags for a tool with stdin; with DIRECT the init passes us the pipe itself."""
        return Flag.STDIN if self._sandbox().link.bridged else Flag.STDIN | Flag.DIRECT

    def start(
        self,
        argv: list[str],
        on_output: Callable[[int, bytes], None],
        *,
        stdin: bool = True,
        paced: bool = False,
    ) -> RemoteProcess:
        """Start a tool; the caller must end it. `on_output` must not raise. If `paced`, the caller says what it has
        consumed."""
        command = [self._sandbox().init, "--tool", *argv]
        return self._spawn(
            command, on_output, flags=self._stdin if stdin else 0, paced=paced
        )

    def _spawn(
        self, argv: list[str], on_output: Callable[[int, bytes], None], **options: Any
    ) -> RemoteProcess:
        words = [word.encode("utf-8", "surrogateescape") for word in argv]
        process = self._sandbox().link.spawn(
            words, **{"env": {}, "grace": GRACE, **options}
        )
        process.on_output = on_output
        return process

    async def ask(
        self, argv: list[str], cwd: str = "/", seconds: float | None = None
    ) -> str:
        """What a program of the image prints; '' if there is no such program or it takes too long."""
        output = bytearray()
        seconds = ASK_SECONDS if seconds is None else seconds

        def take(stream: int, data: bytes) -> None:
            if stream == frames.STDOUT:
                output.extend(data[: ANSWER_MAX - len(output)])

        process = self._spawn(
            argv, take, flags=Flag.DEFAULT_ENV, cwd=os.fsencode(cwd), deadline=seconds
        )
        try:
            await process.ended(seconds + GRACE)
        except BelljarError:  # no such program
            return ""
        finally:
            process.abandon()
        return output.decode("utf-8", "replace")

    async def run(
        self, argv: list[str], source: Source | None, sink: Sink
    ) -> tuple[int, bytes]:
        """Run a tool to its end: its status and stderr."""
        stderr, failure = bytearray(), list[Exception]()
        put = sink if callable(sink) else partial(write_all, sink.fileno())

        def take(stream: int, data: bytes) -> None:
            if stream != frames.STDOUT:
                stderr.extend(data[: LONGEST_ERROR - len(stderr)])
            elif not failure:
                try:
                    put(data)
                except Exception as error:  # raised later: here it would break the link
                    failure.append(error)
                    process.kill()

        process = self.start(argv, take, stdin=source is not None)
        if not callable(sink):
            process.spill(sink.fileno())
        try:
            if source is not None:
                await self._feed(
                    process, source, argv[-1].encode() if argv[0] == "put" else b""
                )
            body = await process.ended()
        finally:
            process.abandon()
        if failure:
            raise failure[0]
        return body.exit_code, bytes(stderr)

    async def _feed(self, process: RemoteProcess, source: Source, mark: bytes) -> None:
        """The mark follows only if the whole source was sent."""
        if isinstance(source, File) and process.flags & Flag.DIRECT:
            await process.pour(source.fileno())
        else:
            async for part in _read(source) if isinstance(source, File) else source:
                await process.input(part)
        if mark:
            await process.input(mark)
        process.close_input()


async def _read(file: File) -> AsyncIterator[bytes]:
    while part := await to_thread.run_sync(os.read, file.fileno(), CHUNK):
        yield part
