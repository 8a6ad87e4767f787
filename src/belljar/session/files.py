"""`Session.files`: the sandbox's files, read and written through the init. Works with any image and any link.

    await box.files.write("src/app.py", "print(1)\n")
    text = (await box.files.read("src/app.py")).decode()
    await box.files.download("dist", "/tmp/dist")

Paths are the sandbox's: relative to the workspace, or absolute. What may be read and written there is up to the
sandbox's user. An error is also the OSError that Python's own `open` would raise: FileNotFoundError, PermissionError…
"""

from __future__ import annotations

import errno
import os
import posixpath
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Literal, Protocol, runtime_checkable

from anyio import to_thread

from belljar.errors import FileFailed, UsageError
from belljar.records import record
from belljar.session.archive import CHUNK, Unpacker, packed, whole
from belljar.session.host_paths import HostPath

READ_MAX = 256 << 20  # bytes that `read` keeps in memory; `download` has no such limit
ANSWER_MAX = (
    16 << 20
)  # bytes of listed names or matching lines; as objects they take ten times as much
STAT_MAX = 16 << 10  # two paths and a few numbers
NUMBER_MAX = 20  # digits; the kernel has no larger ones
Kind = Literal["file", "directory", "link", "fifo", "socket", "device"]
_MESSAGES = {
    errno.EINVAL: "neither a file nor a directory",
}
"""Where the kernel's own message would not help."""
_UNREADABLE = "the sandbox's answer cannot be read"
_KINDS: dict[bytes, Kind] = {
    b"f": "file",
    b"d": "directory",
    b"l": "link",
    b"p": "fifo",
    b"s": "socket",
    b"c": "device",
}


@runtime_checkable
class File(Protocol):
    """An open file; it is read or written from its current position."""

    def fileno(self) -> int: ...


Sink = Callable[[bytes], None] | File
Source = AsyncIterator[bytes] | File


RunTool = Callable[[list[str], Source | None, Sink], Awaitable[tuple[int, bytes]]]
"""Runs one of the init's tools with these arguments; its exit status and stderr."""


@record
class FileInfo:
    path: str
    """As requested; in a list, relative to the listed directory."""
    kind: Kind
    mode: int
    size: int
    mtime_ns: int
    target: str | None = None
    """Of a link."""


@record
class Match:
    path: str
    line: int
    text: str


def up_to(
    most: int, complaint: str, put: Callable[[bytes], None]
) -> Callable[[bytes], None]:
    """A sink that raises `complaint` after so many bytes."""
    left = most

    def take(data: bytes) -> None:
        nonlocal left
        left -= len(data)
        if left < 0:
            raise FileFailed(complaint)
        put(data)

    return take


class Files:
    def __init__(
        self, run: RunTool, workspace: Callable[[], int | None] = lambda: None
    ) -> None:
        """`workspace`: gives the descriptor of the workspace on the host, in which commands may leave links."""
        self._run = run
        self._workspace = workspace

    async def read(
        self, path: str, *, offset: int = 0, length: int | None = None
    ) -> bytes:
        """A file's bytes, or some of them: `text = (await box.files.read("notes.txt")).decode()`."""
        content = (
            bytearray()
        )  # not a list of parts: an object for each byte would take many times as much
        sink = up_to(
            READ_MAX, f"{path}: over {READ_MAX} bytes; use download()", content.extend
        )
        window = [str(offset), str(length if length is not None else (1 << 63) - 1)]
        await self._do(
            "get", path, window if offset or length is not None else [], sink=sink
        )
        return bytes(content)

    async def write(self, path: str, data: bytes | str, *, mode: int = 0o644) -> None:
        """Write a whole file, and make its directory: readers see the old file or the new one.

        await box.files.write("app.py", "print(1)\\n")
        """
        content = data.encode() if isinstance(data, str) else bytes(data)
        await self._put(path, mode, _pieces(content))

    async def put(
        self, path: str, source: AsyncIterator[bytes], *, mode: int = 0o644
    ) -> None:
        """Write a whole file of any size from pieces, as `write` does: `await box.files.put("data.csv", pieces())`."""
        await self._put(path, mode, source)

    async def append(self, path: str, data: bytes | str) -> None:
        """Append to a file, or create it and its directory: `await box.files.append("log.txt", "one more line\\n")`."""
        content = data.encode() if isinstance(data, str) else bytes(data)
        await self._do("append", path, source=_pieces(content))

    async def list(self, path: str = ".", *, depth: int = 1) -> list[FileInfo]:
        """The contents of a directory, sorted by path; with `depth`, also of its subdirectories.

        for info in await box.files.list("src", depth=2): print(info.path)
        """
        if depth < 1:
            raise UsageError("depth must be at least 1")
        listing = await self._text("list", path, str(depth))
        return await to_thread.run_sync(
            lambda: sorted(_records(listing), key=lambda info: info.path)
        )

    async def stat(self, path: str, *, follow: bool = True) -> FileInfo:
        """Information about a path: `size = (await box.files.stat("app.py")).size`. Unless `follow`, about a link
        itself: its `target` is where it leads."""
        infos = [
            *_records(
                await self._text("stat" if follow else "lstat", path, most=STAT_MAX)
            )
        ]
        if len(infos) != 1:
            raise FileFailed(_UNREADABLE)
        return infos[0]

    async def exists(self, path: str) -> bool:
        """Whether a path exists: `await box.files.exists("setup.py")`."""
        try:
            await self.stat(path)
        except FileNotFoundError:
            return False
        return True

    async def remove(self, path: str) -> None:
        """Remove a file, a link or a directory with its contents: `await box.files.remove("build")`."""
        await self._do("remove", path)

    async def mkdir(self, path: str) -> None:
        """Make a directory and its parents, if they do not exist: `await box.files.mkdir("src/new")`."""
        await self._do("mkdir", path)

    async def search(
        self, expression: str, path: str = ".", *, most: int = 1000
    ) -> Sequence[Match]:
        """Lines that match an extended regular expression; binary files and `.git` are left out.

        matches = await box.files.search("TODO", "src")
        """
        try:
            lines = await self._text("search", path, expression, str(most))
        except FileFailed as error:
            if error.errno == errno.EINVAL:
                raise UsageError(
                    f"{expression!r} is not an extended regular expression"
                ) from None
            raise
        return await to_thread.run_sync(_matches, lines, most)

    async def upload(self, source: str | os.PathLike[str], path: str) -> None:
        """Copy a file or directory of the host into the sandbox: `await box.files.upload("data.csv", "data.csv")`."""
        here = HostPath(source, self._workspace())
        if await to_thread.run_sync(here.is_directory):
            with here.folder() as folder:
                await self.mkdir(path)
                await self.unpack(packed(whole(folder)), path)
            return
        with await to_thread.run_sync(here.file) as file:
            await self._put(path, os.fstat(file.fileno()).st_mode, file)

    async def get(self, path: str, sink: Sink) -> None:
        """Read a file of any size, piece by piece: `await box.files.get("data.csv", parts.append)`."""
        await self._do("get", path, sink=sink)

    async def pack(self, path: str, sink: Sink) -> None:
        """Read a directory as a stream in the init's archive format: `await box.files.pack("src", parts.append)`."""
        await self._do("pack", path, sink=sink)

    async def unpack(self, archive: Iterator[bytes], path: str = ".") -> None:
        """Unpack such a stream into a directory; existing files are replaced.

        await box.files.unpack(packed(whole(folder)), "src")
        """
        await self._do("unpack", path, source=_off_the_loop(archive))

    async def download(
        self, path: str, target: str | os.PathLike[str], *, links: bool = True
    ) -> None:
        """Copy a file or directory of the sandbox to the host. `target` is the new name, or a directory to fill.

        await box.files.download("dist", "/tmp/dist")

        A directory's links are copied as they are, wherever they lead; a program that reads what was copied may follow
        them. `links=False` leaves them out.
        """
        info, here = await self.stat(path), HostPath(target, self._workspace())
        if info.kind == "directory":
            with here.folder(make=True) as folder:
                unpacker = Unpacker(folder, links=links)
                try:
                    await self._do("pack", path, sink=unpacker.feed)
                finally:
                    unpacker.close()
                if not unpacker.done:
                    raise FileFailed(f"{path}: the archive ended early")
            return
        into, name = here, posixpath.basename(path)
        if not await to_thread.run_sync(here.is_directory):
            into, name = here.above()
        with into.folder() as folder, folder.replacing(name, 0o644) as file:
            await self._do("get", path, sink=file)

    # Running a tool.

    async def _text(
        self, tool: str, path: str, *more: str, most: int | None = None
    ) -> bytes:
        answer = bytearray()
        complaint = (
            f"{path}: there is too much to {tool}; name a directory further down"
        )
        await self._do(
            tool, path, more, sink=up_to(most or ANSWER_MAX, complaint, answer.extend)
        )
        return bytes(answer)

    async def _put(self, path: str, mode: int, source: Source) -> None:
        """The tool renames the new file only after it has read the mark, which a host that dies does not send."""
        mark = secrets.token_hex(16)
        await self._do("put", path, [f"{mode & 0o777:o}", mark], source=source)

    async def _do(
        self,
        tool: str,
        path: str,
        more: Sequence[str] = (),
        *,
        source: Source | None = None,
        sink: Sink = lambda data: None,
    ) -> None:
        status, stderr = await self._run([tool, _checked(path), *more], source, sink)
        if status:
            code, _, rest = stderr.strip().partition(b" ")
            number, text = _number(code), rest.decode("utf-8", "replace")
            raise FileFailed(
                f"{path}: {_MESSAGES.get(number) or text[:200] or 'failed'}",
                errno=number,
            )


def _checked(path: str) -> str:
    """The path for a tool, which runs in /workspace."""
    if not isinstance(path, str) or "\0" in path:
        raise UsageError(f"{path!r} is not a path")
    return (path.rstrip("/") or path[:1]) or "."


def _records(data: bytes) -> Iterator[FileInfo]:
    fields = data.split(b"\0")[:-1]
    if len(fields) % 2:
        raise FileFailed(_UNREADABLE)
    for head, target in zip(fields[::2], fields[1::2], strict=True):
        try:
            kind, mode, size, mtime, path = head.split(b" ", 4)
            if (
                not (mode.isdigit() and size.isdigit())
                or max(len(mode), len(size), len(mtime)) > NUMBER_MAX
            ):
                raise ValueError("negative, or larger than the kernel's")
            yield FileInfo(
                os.fsdecode(path),
                _KINDS[kind],
                int(mode, 8),
                int(size),
                int(mtime),
                os.fsdecode(target) or None,
            )
        except (ValueError, KeyError) as error:
            raise FileFailed(_UNREADABLE) from error


def _matches(data: bytes, most: int) -> list[Match]:
    *fields, rest = data.split(b"\0", 3 * most)
    if rest or len(fields) % 3:
        raise FileFailed(_UNREADABLE)
    rows = zip(fields[::3], fields[1::3], fields[2::3], strict=True)
    return [
        Match(os.fsdecode(p), _number(n), t.decode("utf-8", "replace"))
        for p, n, t in rows
    ]


def _number(digits: bytes) -> int:
    return int(digits) if digits.isdigit() and len(digits) <= NUMBER_MAX else 0


async def _pieces(data: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(data), CHUNK):
        yield data[at : at + CHUNK]


async def _off_the_loop(parts: Iterator[bytes]) -> AsyncIterator[bytes]:
    while part := await to_thread.run_sync(next, parts, b""):
        yield part
