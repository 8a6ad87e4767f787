"""Tells which names were made in directories since it was last asked, through inotify: one system call, however many
directories there are.

Only names: a file's contents may change through a mapping or another name without an event, so files are looked at.
Directories cannot have other names, and nothing can be made in one without an event.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

from belljar.syscalls import checked, libc

_MADE, _MOVED_AWAY = 0x80 | 0x100, 0x40  # IN_MOVED_TO, IN_CREATE; IN_MOVED_FROM
_ONLY_DIRECTORY, _DONT_FOLLOW, _EXCL_UNLINK = 0x01000000, 0x02000000, 0x04000000
_IS_DIRECTORY, _OVERFLOW, _IGNORED = 0x40000000, 0x4000, 0x8000
_EVENT = struct.Struct("iIII")
_PIECE, _MOST = 64 << 10, 1 << 20


class Made(NamedTuple):
    directory: str
    name: str
    is_directory: bool
    gone: bool = False
    """It was moved away."""


class Notifier:
    def __init__(self, root: int) -> None:
        """OSError if the user has no more instances (fs.inotify.max_user_instances)."""
        self._root = root
        self._descriptor = checked(libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        self._directories: dict[int, str] = {}

    def close(self) -> None:
        """Blocks: the kernel may take 20 ms to end its watches."""
        descriptor, self._descriptor = getattr(self, "_descriptor", -1), -1
        if descriptor >= 0:
            os.close(descriptor)

    __del__ = close

    def watch(self, directory: str) -> bool:
        """Whether it could be watched: there are limits, and it may be gone. To be called before looking into it."""
        path = (
            f"/proc/self/fd/{self._root}/{directory}".rstrip("/")
            if directory
            else f"/proc/self/fd/{self._root}/."
        )
        flags = _MADE | _MOVED_AWAY | _ONLY_DIRECTORY | _DONT_FOLLOW | _EXCL_UNLINK
        number = libc.inotify_add_watch(
            self._descriptor, os.fsencode(path), ctypes.c_uint32(flags)
        )
        if number >= 0:
            self._directories[number] = directory
        return int(number) >= 0

    def made(self) -> list[Made] | None:
        """What was made since the last call; None if that was too much to be told."""
        found: list[Made] = []
        size = 0
        while True:
            try:
                data = os.read(self._descriptor, _PIECE)
            except BlockingIOError:
                return found
            size += len(data)
            if size > _MOST:
                self._drain()
                return None
            for event in self._events(data):
                if event is None:
                    self._drain()
                    return None
                found.append(event)

    def _drain(self) -> None:
        try:
            while os.read(self._descriptor, _PIECE):
                pass
        except BlockingIOError:
            return

    def _events(self, data: bytes) -> Iterator[Made | None]:
        at = 0
        while at < len(data):
            number, mask, _, length = _EVENT.unpack_from(data, at)
            name = data[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            at += _EVENT.size + length
            if mask & _OVERFLOW:
                yield None
            elif mask & _IGNORED:
                self._directories.pop(number, None)
            elif (directory := self._directories.get(number)) is not None and name:
                made = Made(
                    directory,
                    os.fsdecode(name),
                    bool(mask & _IS_DIRECTORY),
                    bool(mask & _MOVED_AWAY),
                )
                if made.is_directory or not made.gone:
                    yield made
