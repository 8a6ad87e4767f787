"""Files: E2B's `filesystem.Filesystem`, and `/files` for their contents.

Everything goes through `box.files`, so paths are the sandbox's and rights are its user's. What a client attaches to a
file as metadata is kept by this server, beside the session, until it ends.

Watching compares lists of a directory, since any image and any link allow that; so a rename shows as a file that went
and one that came.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import posixpath
import re
import secrets
import stat
import zlib
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from starlette.datastructures import UploadFile
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from belljar.errors import BelljarError, FileFailed
from belljar.surfaces.http.e2b.connect import (
    ConnectError,
    Message,
    call,
    field,
    keepalive_of,
    stream,
)
from belljar.surfaces.http.e2b.processes import place, session_of, told
from belljar.surfaces.http.e2b.sandboxes import Refused, moment
from belljar.surfaces.http.problems import Problem, problem_of

if TYPE_CHECKING:
    from belljar.session.files import FileInfo
    from belljar.session.session import Session
    from belljar.surfaces.http.sessions import LiveSession

PIECE = 4 << 20
POLL_SECONDS = 0.1
SLOW = 20
"""A look at a large directory may take this share of the time between two looks."""
DEEPEST = 100
MOST_EVENTS = 10_000
MOST_FILES = 1000
METADATA = "x-metadata-"
_WORD = re.compile(r"[\x20-\x7e]{0,1024}\Z")
_CODES = {
    errno.ENOENT: "not_found",
    errno.EEXIST: "already_exists",
    errno.EACCES: "permission_denied",
    errno.EPERM: "permission_denied",
    errno.EROFS: "permission_denied",
    errno.ENOTDIR: "invalid_argument",
    errno.EISDIR: "invalid_argument",
    errno.EINVAL: "invalid_argument",
    errno.ENOSPC: "resource_exhausted",
}
_STATUSES = {
    "not_found": 404,
    "already_exists": 409,
    "permission_denied": 403,
    "invalid_argument": 400,
    "resource_exhausted": 507,
}
_TYPES = {
    "file": "FILE_TYPE_FILE",
    "directory": "FILE_TYPE_DIRECTORY",
    "link": "FILE_TYPE_SYMLINK",
}


async def _box(request: Request) -> Session:
    try:
        return await session_of(request).usable()
    except Problem as problem:
        raise told(problem) from None


@contextlib.contextmanager
def _failures(path: str) -> Any:
    try:
        yield
    except FileFailed as error:
        code = _CODES.get(error.errno or 0, "internal")
        raise ConnectError(
            code,
            f"{path}: no such file or directory" if code == "not_found" else str(error),
        ) from None
    except BelljarError as error:
        raise told(problem_of(error)) from None


# What a file is.


async def _entry(request: Request, path: str, *, follow: bool = True) -> Message:
    box = await _box(request)
    with _failures(path):
        info = await box.files.stat(path)
        link = await _link(box, path) if follow else None
    return _shown(request, path, info, link)


async def _link(box: Session, path: str) -> str | None:
    """Where a link leads, if it is one."""
    above, name = posixpath.split(path)
    if not name:
        return None
    with contextlib.suppress(FileFailed):
        for info in await box.files.list(above):
            if info.path == name and info.kind == "link":
                return posixpath.normpath(posixpath.join(above, info.target or ""))
    return None


def _shown(request: Request, path: str, info: FileInfo, link: str | None) -> Message:
    name = posixpath.basename(path) or "/"
    entry: Message = {
        "name": name,
        "path": path,
        "type": _TYPES.get(info.kind, "FILE_TYPE_UNSPECIFIED"),
        "size": str(info.size),
        "mode": info.mode & 0o7777,
        "permissions": _permissions(info),
        "owner": "user",
        "group": "user",
        "modifiedTime": moment(info.mtime_ns / 1e9),
    }
    if link is not None:
        entry |= {"symlinkTarget": link, "isSymlink": True}
    if metadata := _metadata(session_of(request)).get(path):
        entry["metadata"] = metadata
    return entry


_KINDS = {
    "file": stat.S_IFREG,
    "directory": stat.S_IFDIR,
    "link": stat.S_IFLNK,
    "fifo": stat.S_IFIFO,
    "socket": stat.S_IFSOCK,
    "device": stat.S_IFCHR,
}


def _permissions(info: FileInfo) -> str:
    return stat.filemode(_KINDS[info.kind] | info.mode & 0o7777)


def _metadata(session: LiveSession) -> dict[str, dict[str, str]]:
    """Path → what a client attached to it."""
    kept: dict[str, dict[str, str]] = session.__dict__.setdefault("_e2b_metadata", {})
    return kept


# Calls.


async def stat_one(request: Request, message: Message) -> Message:
    return {"entry": await _entry(request, place(field(message, "path", str, "")))}


async def list_dir(request: Request, message: Message) -> Message:
    path, depth = (
        place(field(message, "path", str, "")),
        field(message, "depth", int, 0),
    )
    box = await _box(request)
    with _failures(path):
        if (await box.files.stat(path)).kind != "directory":
            raise ConnectError("invalid_argument", f"path is not a directory: {path}")
        infos = await box.files.list(path, depth=max(1, min(depth, DEEPEST)))
    entries = []
    for info in infos:
        whole = posixpath.join(path, info.path)
        target = posixpath.normpath(
            posixpath.join(posixpath.dirname(whole), info.target or "")
        )
        entries.append(
            _shown(request, whole, info, target if info.kind == "link" else None)
        )
    return {"entries": entries}


async def make_dir(request: Request, message: Message) -> Message:
    path = place(field(message, "path", str, ""))
    box = await _box(request)
    with _failures(path):
        try:
            found = await box.files.stat(path)
        except FileNotFoundError:
            await box.files.mkdir(path)
            return {"entry": await _entry(request, path, follow=False)}
    kind = (
        "directory already exists"
        if found.kind == "directory"
        else "path already exists but it is not a directory"
    )
    raise ConnectError(
        "already_exists" if found.kind == "directory" else "invalid_argument",
        f"{kind}: {path}",
    )


async def move(request: Request, message: Message) -> Message:
    source, target = (
        place(field(message, name, str, "")) for name in ("source", "destination")
    )
    box = await _box(request)
    with _failures(source):
        await box.files.stat(source)
        above = posixpath.dirname(target)
        if not await box.files.exists(above):
            await box.files.mkdir(above)
        result = await box.run(["mv", "-T", "--", source, target])
    if result.exit_code:
        raise ConnectError("invalid_argument", result.stderr.strip()[:500])
    kept = _metadata(session_of(request))
    if (carried := kept.pop(source, None)) is not None:
        kept[target] = carried
    return {"entry": await _entry(request, target)}


async def remove(request: Request, message: Message) -> Message:
    path = place(field(message, "path", str, ""))
    box = await _box(request)
    with _failures(path), contextlib.suppress(FileNotFoundError):
        await box.files.remove(path)
    kept = _metadata(session_of(request))
    for each in [each for each in kept if each == path or each.startswith(f"{path}/")]:
        del kept[each]
    return {}


# Watching.

State = dict[str, tuple[Any, ...]]


class Watch:
    """The changes of one directory since the last look."""

    def __init__(
        self, request: Request, path: str, *, recursive: bool, entries: bool
    ) -> None:
        self.path = path
        self._request, self._depth, self._entries = (
            request,
            DEEPEST if recursive else 1,
            entries,
        )
        self._seen: State = {}

    async def begin(self) -> None:
        box = await _box(self._request)
        with _failures(self.path):
            if (await box.files.stat(self.path)).kind != "directory":
                raise ConnectError(
                    "invalid_argument", f"path {self.path} is not a directory"
                )
            self._seen = await self._look()

    async def _look(self) -> State:
        box = await _box(self._request)
        infos = await box.files.list(self.path, depth=self._depth)
        return {
            info.path: (info.kind, info.size, info.mtime_ns, info.mode)
            for info in infos
            if not _is_ours(info.path)
        }

    async def changes(self) -> list[Message]:
        """What happened since the last time."""
        try:
            now = await self._look()
        except FileFailed:
            now = {}
        before, self._seen = self._seen, now
        events = [self._event(name, "REMOVE") for name in before if name not in now]
        for name, facts in now.items():
            old = before.get(name)
            if old is None:
                events.append(self._event(name, "CREATE"))
                if facts[0] == "file":  # E2B's daemon gives it its owner
                    events.append(self._event(name, "CHMOD"))
            if facts[0] == "file" and (old is None or old[:3] != facts[:3]):
                events.append(self._event(name, "WRITE"))
            elif old is not None and old[3] != facts[3]:
                events.append(self._event(name, "CHMOD"))
        if self._entries:
            await self._describe(events)
        return events

    def _event(self, name: str, kind: str) -> Message:
        return {"name": name, "type": f"EVENT_TYPE_{kind}"}

    async def _describe(self, events: list[Message]) -> None:
        for event in events:
            if event["type"] != "EVENT_TYPE_REMOVE":
                with contextlib.suppress(ConnectError):
                    event["entry"] = await _entry(
                        self._request,
                        posixpath.join(self.path, event["name"]),
                        follow=False,
                    )


def _is_ours(name: str) -> bool:
    """A file that is being written by `box.files`, before it gets its name."""
    return posixpath.basename(name).startswith(".belljar-")


def _watch_of(request: Request, message: Message) -> Watch:
    return Watch(
        request,
        place(field(message, "path", str, "")),
        recursive=field(message, "recursive", bool, False),
        entries=field(message, "include_entry", bool, False),
    )


async def watch_dir(request: Request, message: Message) -> AsyncIterator[Message]:
    watch = _watch_of(request, message)
    await watch.begin()
    yield {"start": {}}
    every, quiet = keepalive_of(request) or 50.0, 0.0
    clock = asyncio.get_running_loop().time
    while True:
        began = clock()
        for event in await watch.changes():
            quiet = 0.0
            yield {"filesystem": event}
        pause = max(POLL_SECONDS, (clock() - began) * SLOW)
        await asyncio.sleep(pause)
        quiet += pause
        if quiet >= every:
            quiet = 0.0
            yield {"keepalive": {}}


def _watchers(session: LiveSession) -> dict[str, tuple[Watch, deque[Message]]]:
    found: dict[str, tuple[Watch, deque[Message]]] = session.__dict__.setdefault(
        "_e2b_watchers", {}
    )
    return found


async def create_watcher(request: Request, message: Message) -> Message:
    watchers = _watchers(session_of(request))
    if len(watchers) >= 100:
        raise ConnectError("resource_exhausted", "at most 100 watchers a sandbox")
    watch = _watch_of(request, message)
    await watch.begin()
    id = f"w{secrets.token_hex(8)}"
    watchers[id] = watch, deque(maxlen=MOST_EVENTS)
    return {"watcherId": id}


async def get_watcher_events(request: Request, message: Message) -> Message:
    watch, events = _watcher(request, message)
    events.extend(await watch.changes())
    found = list(events)
    events.clear()
    return {"events": found}


async def remove_watcher(request: Request, message: Message) -> Message:
    _watcher(request, message)
    del _watchers(session_of(request))[field(message, "watcher_id", str, "")]
    return {}


def _watcher(request: Request, message: Message) -> tuple[Watch, deque[Message]]:
    found = _watchers(session_of(request)).get(field(message, "watcher_id", str, ""))
    if found is None:
        raise ConnectError("not_found", "there is no such watcher")
    return found


# Contents.


async def read(request: Request) -> Response:
    path = _wanted(request)
    box = await _usable(request)
    with _http_failures(path):
        info = await box.files.stat(path)
        if info.kind == "directory":
            raise Refused(400, f"path '{path}' is a directory")
        first = await box.files.read(path, offset=0, length=PIECE)
    headers = {
        "Content-Disposition": "attachment",
        "Content-Security-Policy": "sandbox; default-src 'none'",
        "X-Content-Type-Options": "nosniff",
    }
    pieces = _pieces(box, path, first)
    if "gzip" in request.headers.get("accept-encoding", ""):
        pieces, headers["Content-Encoding"] = _compressed(pieces), "gzip"
    return StreamingResponse(
        pieces, media_type="application/octet-stream", headers=headers
    )


async def _pieces(box: Session, path: str, first: bytes) -> AsyncIterator[bytes]:
    piece, offset = first, 0
    while piece:
        yield piece
        offset += len(piece)
        if len(piece) < PIECE:
            return
        piece = await box.files.read(path, offset=offset, length=PIECE)


async def _compressed(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    packer = zlib.compressobj(1, wbits=31)
    async for piece in pieces:
        for at in range(0, len(piece), 64 << 10):
            if packed := packer.compress(piece[at : at + (64 << 10)]):
                yield packed
            await asyncio.sleep(0)
    yield packer.flush()


async def write(request: Request) -> Response:
    metadata = _given_metadata(request)
    box = await _usable(request)
    kind = request.headers.get("content-type", "").partition(";")[0]
    written = []
    if kind == "multipart/form-data":
        if request.headers.get("content-encoding"):
            raise Refused(415, "only application/octet-stream may be compressed")
        async with request.form(max_files=MOST_FILES) as form:
            for part in form.getlist("file"):
                if isinstance(part, UploadFile):
                    path = place(
                        request.query_params.get("path") or part.filename or ""
                    )
                    written.append(
                        await _written(request, box, path, _parts(part), metadata)
                    )
    else:
        body: AsyncIterator[bytes] = request.stream()
        if request.headers.get("content-encoding") == "gzip":
            body = _unpacked(body)
        written.append(await _written(request, box, _wanted(request), body, metadata))
    if not written:
        raise Refused(400, "no file was sent")
    return JSONResponse(written)


async def _written(
    request: Request,
    box: Session,
    path: str,
    body: AsyncIterator[bytes],
    metadata: dict[str, str],
) -> Message:
    with _http_failures(path):
        if (
            await box.files.exists(path)
            and (await box.files.stat(path)).kind == "directory"
        ):
            raise Refused(400, f"path is a directory: {path}")
        await box.files.put(path, body)
    kept = _metadata(session_of(request))
    kept.pop(path, None)
    if metadata:
        kept[path] = metadata
    shown = {"name": posixpath.basename(path), "path": path, "type": "file"}
    return {**shown, "metadata": metadata} if metadata else shown


async def _parts(file: UploadFile) -> AsyncIterator[bytes]:
    while piece := await file.read(256 << 10):
        yield piece


async def _unpacked(body: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """What was compressed, piece by piece: a small body may be a large file, but never a large memory."""
    unpacker = zlib.decompressobj(wbits=31)
    async for piece in body:
        while piece:
            try:
                yield unpacker.decompress(piece, 1 << 20)
            except zlib.error:
                raise Refused(400, "the body is not gzip") from None
            piece = unpacker.unconsumed_tail
    yield unpacker.flush()


def _given_metadata(request: Request) -> dict[str, str]:
    given = {
        name.removeprefix(METADATA): text
        for name, text in request.headers.items()
        if name.startswith(METADATA)
    }
    if not all(_WORD.match(text) for text in given.values()) or len(given) > 64:
        raise Refused(400, "metadata: printable ASCII expected")
    return given


def _wanted(request: Request) -> str:
    if not request.query_params.get("path"):
        raise Refused(400, "path is missing")
    return place(request.query_params["path"])


async def _usable(request: Request) -> Session:
    try:
        return await session_of(request).usable()
    except Problem as problem:
        raise Refused(
            502 if problem.status == 410 else problem.status, problem.detail
        ) from None


@contextlib.contextmanager
def _http_failures(path: str) -> Any:
    try:
        with _failures(path):
            yield
    except ConnectError as error:
        raise Refused(_STATUSES.get(error.code, 500), error.message) from None


_CALLS = {
    "Stat": stat_one,
    "ListDir": list_dir,
    "MakeDir": make_dir,
    "Move": move,
    "Remove": remove,
    "CreateWatcher": create_watcher,
    "GetWatcherEvents": get_watcher_events,
    "RemoveWatcher": remove_watcher,
}
FILESYSTEM = [
    *(
        Route(f"/filesystem.Filesystem/{name}", call(answer), methods=["POST"])
        for name, answer in _CALLS.items()
    ),
    Route("/filesystem.Filesystem/WatchDir", stream(watch_dir), methods=["POST"]),
]
