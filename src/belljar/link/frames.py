"""Packs and parses the messages between host and init. Pure: no socket, no clock.

A frame is a 16-byte header (payload length, kind, stream, zero, command id) and a payload. The constants come from one
table for both sides (sandbox-images/init/wire.toml). Frames from a sandbox are not trusted: a malformed one is a
`FrameError`, and the host closes the connection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from belljar.link import wire
from belljar.link.wire import (
    CONTROL,
    STDERR,
    STDIN,
    STDOUT,
    VERSION,
    Doing,
    EndCause,
    Flag,
    From,
    Stage,
    To,
)
from belljar.records import record

__all__ = [
    "CONTROL",
    "STDERR",
    "STDIN",
    "STDOUT",
    "VERSION",
    "EndCause",
    "Flag",
    "From",
    "Stage",
    "To",
]

HEADER = struct.Struct("<IBBHQ")
MAX_TO_INIT = wire.TO_INIT_MAX
LISTED_MAX = wire.LIVE_MAX + wire.RETAINED_MAX
TESTIMONY_FILES = 32


class FrameError(Exception):
    """The other side sent a malformed or an unexpected frame."""


class VersionMismatch(FrameError):
    """The two sides are of different releases."""


def frame(kind: To, id: int = 0, payload: bytes = b"", stream: int = 0) -> bytes:
    if len(payload) > MAX_TO_INIT:
        raise FrameError(
            f"a frame of {len(payload)} bytes is over the limit of {MAX_TO_INIT}"
        )
    return HEADER.pack(len(payload), kind, stream, 0, id) + payload


_SPAWN = struct.Struct("<IIIIQHHIII")


def spawn(
    id: int,
    argv: Sequence[bytes],
    *,
    flags: int,
    cwd: bytes = b"",
    env: Mapping[bytes, bytes] | None = None,
    deadline_ms: int = 0,
    grace_ms: int = 0,
    ring: int = 0,
    credit: int = 0,
    rows: int = 24,
    cols: int = 80,
    tag: bytes = b"",
    user: bytes = b"",
) -> bytes:
    if user:
        flags, argv = flags | Flag.USER, [user, *argv]
    pairs = [key + b"=" + value for key, value in (env or {}).items()]
    fixed = _SPAWN.pack(
        flags,
        deadline_ms,
        grace_ms,
        ring,
        credit,
        rows,
        cols,
        len(argv),
        len(pairs),
        len(tag),
    )
    return frame(
        To.SPAWN,
        id,
        b"".join((fixed, tag, *(text + b"\0" for text in (cwd, *argv, *pairs)))),
    )


def milliseconds(seconds: float | None) -> int:
    """Milliseconds for the wire, where 0 means none; so any time above zero is at least one."""
    return (
        0
        if not seconds or seconds <= 0
        else max(1, min(int(seconds * 1000), 0xFFFFFFFF))
    )


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def read(
    id: int, out_from: int, err_from: int, limit: int, wait_ms: int, tag: int = 0
) -> bytes:
    """The answer carries `tag`: several reads of one command may be answered in any order."""
    return frame(
        To.READ, id, struct.pack("<QQII", out_from, err_from, limit, wait_ms), tag
    )


class EndedBody(NamedTuple):
    cause: int
    exit_code: int
    signal: int
    survivors: int
    utime_us: int
    stime_us: int
    maxrss: int
    wall_us: int
    stdout_total: int
    stderr_total: int
    oom_kills: int


class Welcome(NamedTuple):
    version: int
    pid: int
    boot: int
    live: int
    isolation: int
    """The Landlock ABI that separates commands; 0: they can reach each other."""


@record
class ReadReply:
    out_start: int
    err_start: int
    ended: EndedBody | None
    out: bytes
    err: bytes


@record
class Testimony:
    """What the init read of the kernel's files about its own sandbox. Text from inside, so it is not trusted."""

    files: Mapping[str, str]
    """Path → content; one that could not be read is absent."""
    there: tuple[bool, ...]
    """Of the paths that were asked about, in their order."""


@record
class CommandState:
    """What the kernel shows of a running command, reported by the init."""

    cpu_us: int
    peak: int
    """Resident bytes of the largest living process."""
    cwd: str | None
    """None: unknown."""
    waits: bool
    """Whether it waits for input on its control stream."""
    stopped: bool = False
    """Whether a signal stopped it."""


@record
class Listed:
    id: int
    flags: int
    pid: int
    started_ms: int
    ended: EndedBody | None
    tag: bytes


def shell_id(number: int) -> str:
    """What people call a background command."""
    return f"shell_{number & 0xFFFFFFFF:08x}"


_ENDED = struct.Struct("<4I6Q2I")
_READ_REPLY = struct.Struct("<QQIQQII")
_LISTED = struct.Struct("<QIIIQQQ")
_STATE = struct.Struct("<QQII")
_WELCOME = struct.Struct("<IIQII")
_U32, _U64, _ERROR = (struct.Struct(form) for form in ("<I", "<Q", "<II"))
_CAUSES = frozenset(EndCause)


def _unpack(form: struct.Struct, payload: bytes | memoryview) -> tuple[int, ...]:
    if len(payload) < form.size:
        raise FrameError(f"a payload of {len(payload)} bytes instead of {form.size}")
    return form.unpack_from(payload)


def parse_ended(payload: bytes | memoryview) -> EndedBody:
    body = EndedBody._make(_unpack(_ENDED, payload)[:-1])
    if body.cause not in _CAUSES or body.exit_code > 255 or body.signal > 127:
        raise FrameError("an impossible exit status")
    return body


def _parse_end(state: int, payload: bytes | memoryview) -> EndedBody | None:
    if state > 1:
        raise FrameError("an unknown state")
    return parse_ended(payload) if state else None


def parse_read_reply(payload: bytes) -> ReadReply:
    out_start, out_total, out_len, err_start, err_total, err_len, state = _unpack(
        _READ_REPLY, payload
    )
    data = payload[_READ_REPLY.size + _ENDED.size :]
    if (
        len(data) != out_len + err_len
        or out_start + out_len > out_total
        or err_start + err_len > err_total
    ):
        raise FrameError("a read reply whose lengths do not add up")
    ended = _parse_end(state, payload[_READ_REPLY.size :])
    return ReadReply(out_start, err_start, ended, data[:out_len], data[out_len:])


def parse_list(payload: bytes) -> list[Listed]:
    (count,) = _unpack(_U32, payload)
    if count > LISTED_MAX:
        raise FrameError(
            f"a list of {count} commands; there can be at most {LISTED_MAX}"
        )
    rest, listed = (
        memoryview(payload)[4:],
        [],
    )  # a view: slices of bytes would copy the rest for every entry
    for _ in range(count):
        id, state, flags, pid, started, *_ = _unpack(_LISTED, rest)
        ended = _parse_end(state, rest[_LISTED.size :])
        rest = rest[_LISTED.size + _ENDED.size :]
        (tag_len,) = _unpack(_U32, rest)
        if len(rest) < 4 + tag_len:
            raise FrameError("a list entry that is too short")
        listed.append(
            Listed(id, flags, pid, started, ended, bytes(rest[4 : 4 + tag_len]))
        )
        rest = rest[4 + tag_len :]
    if rest:
        raise FrameError("a list with extra bytes after it")
    return listed


def parse_u32(payload: bytes) -> int:
    return _unpack(_U32, payload)[0]


def parse_u64(payload: bytes) -> int:
    return _unpack(_U64, payload)[0]


def parse_spawn_error(payload: bytes) -> tuple[int, int, str]:
    errno, stage = _unpack(_ERROR, payload)
    return errno, stage, payload[8:264].decode("utf-8", "replace")


def parse_state(payload: bytes) -> CommandState:
    cpu_us, peak, _, does = _unpack(_STATE, payload)
    cwd = payload[_STATE.size :].decode("utf-8", "surrogateescape")
    where = cwd if cwd.startswith("/") else None
    return CommandState(cpu_us, peak, where, does == Doing.WAITS, does == Doing.STOPPED)


def testify(paths: Sequence[str]) -> bytes:
    """The question's payload."""
    return b"".join(path.encode() + b"\0" for path in paths)


def parse_testimony(payload: bytes) -> Testimony:
    files: dict[str, str] = {}
    rest = memoryview(payload)
    while True:
        name_length, length = _unpack(_ERROR, rest)
        if len(rest) < _ERROR.size + name_length + length:
            raise FrameError("a testimony that is too short")
        name = bytes(rest[_ERROR.size : _ERROR.size + name_length]).decode(
            "ascii", "replace"
        )
        content = bytes(
            rest[_ERROR.size + name_length : _ERROR.size + name_length + length]
        )
        rest = rest[_ERROR.size + name_length + length :]
        if not name:
            break
        if name in files or len(files) >= TESTIMONY_FILES:
            raise FrameError("a testimony with too many files")
        files[name] = content.decode("utf-8", "surrogateescape")
    if rest or not set(content) <= {0, 1}:
        raise FrameError("a testimony with extra bytes after it")
    return Testimony(files, tuple(map(bool, content)))


def parse_welcome(payload: bytes) -> Welcome:
    """Raises VersionMismatch if the init speaks another version."""
    welcome = Welcome._make(_unpack(_WELCOME, payload))
    if welcome.version != VERSION:
        raise VersionMismatch(
            f"the sandbox's init speaks protocol {welcome.version}, this Belljar protocol {VERSION}: "
            "use the release of Belljar that started the sandbox, or start a new one"
        )
    return welcome
