"""The words host and init say to each other, as bytes. Pure: no socket, no clock.

A frame is a 16-byte header (payload length, type, stream, zero, command id) and a payload. What comes from a sandbox is
not trusted: any frame that is not exactly of its form is a `FrameError`, which costs the sandbox its connection.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

VERSION = 1
HEADER = struct.Struct("<IBBHQ")
MAX_TO_INIT = 8 << 20
MAX_FROM_INIT = 4 << 20

STDIN, STDOUT, STDERR, CONTROL = 0, 1, 2, 3


class FrameError(Exception):
    """The other side sent something that is not a frame."""


class To(IntEnum):
    HELLO = 1
    SPAWN = 2
    INPUT = 3
    CREDIT = 4
    SIGNAL = 5
    RESIZE = 6
    DEADLINE = 7
    KILL = 8
    READ = 9
    LIST = 10
    FORGET = 11
    PING = 12
    LEASE = 13
    SHUTDOWN = 14
    BACKGROUND = 15


class From(IntEnum):
    HELLO = 65
    STARTED = 66
    SPAWN_ERROR = 67
    OUTPUT = 68
    ENDED = 69
    INPUT_ACK = 70
    READ_REPLY = 71
    LIST_REPLY = 72
    PONG = 73
    ERROR = 74
    PIPE = 75


class Flag:
    """How a command is to be spawned: bits of a plain int, since the operators of an IntFlag cost more than a frame."""

    SHELL = 1
    PTY = 2
    COMBINED = 4
    STDIN = 8
    CONTROL = 16
    BACKGROUND = 32
    DEFAULT_ENV = 64
    DIRECT = 128
    """Of a command with a control stream: where that can be, its host reads and writes its pipes past the init."""


class Stage(IntEnum):
    """Where a spawn failed."""

    LIMITS = 1
    CWD = 2
    EXEC = 3
    RESOURCES = 4
    DUPLICATE = 5


def frame(kind: To, id: int = 0, payload: bytes = b"", stream: int = 0) -> bytes:
    if len(payload) > MAX_TO_INIT:
        raise FrameError(f"a frame of {len(payload)} bytes is over the limit of {MAX_TO_INIT}")
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
) -> bytes:
    pairs = [key + b"=" + value for key, value in (env or {}).items()]
    fixed = _SPAWN.pack(flags, deadline_ms, grace_ms, ring, credit, rows, cols, len(argv), len(pairs), len(tag))
    return frame(To.SPAWN, id, b"".join((fixed, tag, *(text + b"\0" for text in (cwd, *argv, *pairs)))))


def milliseconds(seconds: float | None) -> int:
    """Milliseconds for the wire; 0 means none, so anything above zero is at least one."""
    return 0 if not seconds or seconds <= 0 else max(1, min(int(seconds * 1000), 0xFFFFFFFF))


def u32(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value)


def read(id: int, out_from: int, err_from: int, limit: int, wait_ms: int, tag: int = 0) -> bytes:
    """`tag` comes back with the answer: of several reads of one command, the later may be answered first."""
    return frame(To.READ, id, struct.pack("<QQII", out_from, err_from, limit, wait_ms), tag)


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


@dataclass(frozen=True, slots=True)
class ReadReply:
    out_start: int
    out_total: int
    err_start: int
    err_total: int
    ended: EndedBody | None
    out: bytes
    err: bytes


@dataclass(frozen=True, slots=True)
class Listed:
    id: int
    flags: int
    pid: int
    started_ms: int
    out_total: int
    err_total: int
    ended: EndedBody | None
    tag: bytes


_ENDED = struct.Struct("<4I6Q2I")
_READ_REPLY = struct.Struct("<QQIQQII")
_LISTED = struct.Struct("<QIIIQQQ")
_CAUSES = range(1, 6)


def _unpack(form: struct.Struct, payload: bytes | memoryview) -> tuple[int, ...]:
    if len(payload) < form.size:
        raise FrameError(f"{len(payload)} bytes where {form.size} were due")
    return form.unpack_from(payload)


def parse_ended(payload: bytes | memoryview) -> EndedBody:
    body = EndedBody._make(_unpack(_ENDED, payload)[:-1])
    if body.cause not in _CAUSES or body.exit_code > 255 or body.signal > 127:
        raise FrameError("an ending that cannot be")
    return body


def _parse_end(state: int, payload: bytes | memoryview) -> EndedBody | None:
    if state > 1:
        raise FrameError("an unknown state")
    return parse_ended(payload) if state else None


def parse_read_reply(payload: bytes) -> ReadReply:
    out_start, out_total, out_len, err_start, err_total, err_len, state = _unpack(_READ_REPLY, payload)
    data = payload[_READ_REPLY.size + _ENDED.size :]
    if len(data) != out_len + err_len or out_start + out_len > out_total or err_start + err_len > err_total:
        raise FrameError("a read reply whose lengths do not add up")
    ended = _parse_end(state, payload[_READ_REPLY.size :])
    return ReadReply(out_start, out_total, err_start, err_total, ended, data[:out_len], data[out_len:])


def parse_list(payload: bytes) -> list[Listed]:
    (count,) = _unpack(_U32, payload)
    rest, listed = memoryview(payload)[4:], []  # a view, since what is left would be copied for every entry
    for _ in range(count):
        id, state, flags, pid, started, out_total, err_total = _unpack(_LISTED, rest)
        ended = _parse_end(state, rest[_LISTED.size :])
        rest = rest[_LISTED.size + _ENDED.size :]
        (tag_len,) = _unpack(_U32, rest)
        if len(rest) < 4 + tag_len:
            raise FrameError("a list entry that is too short")
        listed.append(Listed(id, flags, pid, started, out_total, err_total, ended, bytes(rest[4 : 4 + tag_len])))
        rest = rest[4 + tag_len :]
    if rest:
        raise FrameError("a list with something behind it")
    return listed


_U32, _U64, _ERROR, _HELLO = (struct.Struct(form) for form in ("<I", "<Q", "<II", "<IIQI"))


def parse_u32(payload: bytes) -> int:
    return _unpack(_U32, payload)[0]


def parse_u64(payload: bytes) -> int:
    return _unpack(_U64, payload)[0]


def parse_spawn_error(payload: bytes) -> tuple[int, int, str]:
    errno, stage = _unpack(_ERROR, payload)
    return errno, stage, payload[8:264].decode("utf-8", "replace")


def parse_error(payload: bytes) -> tuple[int, str]:
    return parse_u32(payload), payload[4:260].decode("utf-8", "replace")


def parse_hello(payload: bytes) -> int:
    """The init's boot id, if it speaks our version."""
    version, _pid, boot, _live = _unpack(_HELLO, payload)
    if version != VERSION:
        raise FrameError(f"the init speaks protocol {version}, this side {VERSION}")
    return boot


Frame = tuple[int, int, int, bytes]
"""(type, stream, command id, payload)"""

_KINDS = frozenset(From)
_OFFSET = 8


class Decoder:
    """Bytes in, frames out. Long OUTPUT payloads are handed on in parts as they come, without being gathered first."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._due = 0  # how much must be kept before another look at it is worth its copy
        self._open: tuple[int, int, int] | None = None  # stream, id, bytes of its payload still to come

    def feed(self, data: bytes) -> list[Frame]:
        frames: list[Frame] = []
        if self._kept:
            self._kept += data
            if len(self._kept) < self._due:
                return frames
            data, self._kept = bytes(self._kept), bytearray()
        at, size = 0, len(data)
        while at < size:
            if self._open is not None:
                at = self._continue(data, at, frames)
                continue
            if size - at < HEADER.size:
                self._due = HEADER.size
                break
            length, kind, stream, zero, id = HEADER.unpack_from(data, at)
            if kind not in _KINDS or zero or length > MAX_FROM_INIT or stream > CONTROL:
                raise FrameError(f"not a frame: type {kind}, {length} bytes")
            start = at + HEADER.size
            if start + length <= size:
                payload = data[start : start + length]
                frames.append((kind, stream, id, self._checked(kind, payload)))
                at = start + length
            elif kind == From.OUTPUT and size - start > _OFFSET:
                self._open = (stream, id, length - _OFFSET)
                at = start + _OFFSET
            else:
                self._due = HEADER.size + (min(length, _OFFSET + 1) if kind == From.OUTPUT else length)
                break
        if at < size:
            self._kept += data[at:]
        return frames

    @staticmethod
    def _checked(kind: int, payload: bytes) -> bytes:
        if kind != From.OUTPUT:
            return payload
        if len(payload) < _OFFSET:
            raise FrameError("output without its offset")
        return payload[_OFFSET:]

    def _continue(self, data: bytes, at: int, frames: list[Frame]) -> int:
        assert self._open is not None
        stream, id, missing = self._open
        part = data if at == 0 and len(data) <= missing else data[at : at + missing]
        frames.append((From.OUTPUT, stream, id, part))
        self._open = (stream, id, missing - len(part)) if len(part) < missing else None
        return at + len(part)
