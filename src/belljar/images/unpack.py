"""Unpacks one layer's tar archive into a directory. The archive is not trusted.

Each member is reached from the layer's own directory through descriptors that follow no link, so no name or link in
the archive can lead out of it. What a layer may hold:

    directories, files, symbolic links, FIFOs       as they are, owner and mode included
    set-id and file capabilities                    dropped: no program in a sandbox may change its user
    hard links                                      only to a file of the same layer
    devices, extended attributes                    left out
    sparse files                                    written whole, holes counted like data
    `.wh.name`, `.wh..wh..opq`                      become overlayfs's own marks: a 0:0 device, an attribute
    `..`, absolute names, members below a link      refused, and with them the whole archive
    PAX settings for all members                    ignored: tarfile would keep them all in memory

Sizes are limited while data is written, whatever the headers say. The number of files and directories, and the steps
it takes to reach them, are limited too.
"""

from __future__ import annotations

import hashlib
import lzma
import os
import stat
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from belljar.errors import ImageInvalid
from belljar.syscalls import write_all

CHUNK = 1 << 20
HEADER_MAX = 4 << 20
"""A long name or a PAX header is held in memory; real ones have a few hundred bytes."""
KEEP_FREE = 1 << 30
"""Bytes that must stay free on the disk."""
KEEP_FREE_FILES = 50_000
"""Inodes that must stay free, on file systems that have a fixed number of them."""
LOOK_EVERY = 64 << 20
ENTRY_BYTES = 4096
"""What the smallest entry may take on the disk."""
PATH_MAX = 4096
"""No program could open a longer path."""
NAMES_MAX = 64 << 20
"""Bytes of names held in memory; real images have 2 MiB."""
LAST_ID = 65535
NOBODY = 65534
"""Owner of files whose id is not in a sandbox's user namespace."""
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass
class Allowance:
    """What one import may still write, over all its layers."""

    bytes: int = 32 << 30
    entries: int = 2_000_000
    steps: int = 40_000_000
    """Steps from one directory to the next, in all paths together. A large image takes two million."""

    def take_entry(self) -> None:
        self.entries -= 1
        if self.entries < 0:
            raise ImageInvalid("the image holds too many files")

    def take_steps(self, count: int) -> None:
        self.steps -= count
        if self.steps < 0:
            raise ImageInvalid(
                "the image holds too many files, too deep in too many directories"
            )

    def take_bytes(self, count: int) -> None:
        self.bytes -= count
        if self.bytes < 0:
            raise ImageInvalid("the image is larger than is allowed (32 GiB unpacked)")


class Metered:
    """A stream that is hashed and counted as it is read, forwards only.

    While tarfile reads headers (`in_header`) it may read HEADER_MAX per member: it holds long names, PAX headers and
    maps of sparse files in memory.
    """

    def __init__(self, stream: IO[bytes], most: int, *, hashed: bool = True) -> None:
        self._stream = stream
        self._left = most
        self._hashed = hashed
        self._position = 0
        self._header_left = HEADER_MAX
        self.in_header = True
        self.ran_out = False
        """Whether the last read came up short: a complete archive ends with an empty header."""
        self.digest = hashlib.sha256()

    def begin_header(self) -> None:
        self.in_header, self._header_left = True, HEADER_MAX

    def read(self, size: int = -1) -> bytes:
        if self.in_header:
            self._header_left -= size if size >= 0 else HEADER_MAX + 1
            if self._header_left < 0:
                raise ImageInvalid("the archive has a header that is too large")
        data = self._take(size)
        self.ran_out = len(data) < size
        return data

    def _take(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
            if (
                isinstance(error, OSError) and error.errno
            ):  # errors of gzip and bz2 about the data have none
                raise
            raise ImageInvalid(
                f"the archive's compression cannot be undone: {error}"
            ) from error
        self._left -= len(data)
        if self._left < 0:
            raise ImageInvalid("the archive is larger than is allowed")
        self._position += len(data)
        if self._hashed:
            self.digest.update(data)
        return data

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> None:
        if position < self._position:
            raise ImageInvalid("the archive is damaged: an offset points backwards")
        while self._position < position and self._take(
            min(CHUNK, position - self._position)
        ):
            pass

    def drain(self) -> str:
        """Read to the end and return the digest of the whole stream."""
        while self._take(CHUNK):
            pass
        return self.digest.hexdigest()


def unpack(stream: Metered, target: Path, allowance: Allowance) -> None:
    """Unpack into `target`, a new directory. After ImageInvalid the caller must remove it."""
    root = os.open(target, _DIRECTORY)
    try:
        stream.begin_header()
        with tarfile.open(
            fileobj=cast("IO[bytes]", stream), mode="r:", errors="surrogateescape"
        ) as archive:
            _Layer(root, target, allowance).take(archive, stream)
    except (tarfile.TarError, ValueError, ArithmeticError, RecursionError) as error:
        raise ImageInvalid(f"not a whole tar archive: {error}") from error
    except OSError as error:
        raise ImageInvalid(
            f"the archive cannot be unpacked: {error.strerror or error}"
        ) from error
    finally:
        os.close(root)


def _check_map(member: tarfile.TarInfo, most: int) -> None:
    """Checks that the parts of a sparse file are in order and do not overlap: otherwise tarfile may read for ever."""
    end = 0
    parts: list[tuple[int, int]] = getattr(member, "sparse", None) or []
    for start, length in parts:
        if not length:  # an end mark
            continue
        if not end <= start <= start + length <= member.size <= most:
            raise ImageInvalid(
                f"{member.name!r} is a sparse file that is too large, or whose parts overlap"
            )
        end = start + length


def forget(archive: tarfile.TarFile) -> None:
    """Drop what tarfile remembers of earlier members, and its settings for all later ones."""
    archive.members = []  # type: ignore[attr-defined]
    archive.pax_headers = {}


def check_room(path: Path) -> None:
    """Raises ImageInvalid when the disk gets full."""
    status = os.statvfs(path)
    files_left = (
        status.f_favail if status.f_files else KEEP_FREE_FILES
    )  # some file systems report none
    if status.f_bavail * status.f_frsize < KEEP_FREE or files_left < KEEP_FREE_FILES:
        raise ImageInvalid("the image does not fit on the disk")


class _Layer:
    def __init__(self, root: int, path: Path, allowance: Allowance) -> None:
        self._root = root
        self._path = path
        self._allowance = allowance
        self._privileged = os.geteuid() == 0
        self._until_look = 0
        self._directory_modes: dict[str, int] = {}
        self._names_left = NAMES_MAX

    def take(self, archive: tarfile.TarFile, stream: Metered) -> None:
        for member in archive:
            stream.in_header = False
            self._take_entry()
            self._place(archive, member)
            forget(archive)
            stream.begin_header()
        for path, mode in sorted(self._directory_modes.items(), reverse=True):
            with self._parent((*_parts(path), "."), make=False) as directory:
                os.fchmod(directory, mode)

    def _place(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        parts = _parts(member.name)
        if not parts:
            if member.isdir():
                self._directory_modes[""] = _mode(member)
            return
        name = parts[-1]
        with self._parent(parts, make=True) as parent:
            if name == OPAQUE:
                os.setxattr(
                    f"/proc/self/fd/{parent}", f"{self._namespace}.overlay.opaque", b"y"
                )
            elif name.startswith(WHITEOUT):
                self._hide(parent, name[len(WHITEOUT) :])
            elif member.isdir():
                self._directory(parent, name, parts, member)
            elif member.isfile():
                _check_map(member, self._allowance.bytes)
                self._file(parent, name, archive, member)
            elif member.issym():
                _clear(parent, name)
                os.symlink(member.linkname, name, dir_fd=parent)
                self._own(parent, name, member)
            elif member.islnk():
                self._link(parent, name, member)
            elif member.isfifo():
                _clear(parent, name)
                os.mkfifo(name, _mode(member), dir_fd=parent)
                self._own(parent, name, member)

    @property
    def _namespace(self) -> str:
        """The namespace of overlayfs's attributes: "trusted" for root, "user" in a user namespace."""
        return "trusted" if self._privileged and not in_user_namespace() else "user"

    @contextmanager
    def _parent(self, parts: tuple[str, ...], *, make: bool) -> Iterator[int]:
        """Open the directory that holds the last of `parts` without following any link."""
        self._allowance.take_steps(len(parts))
        at = os.dup(self._root)
        try:
            for name in parts[:-1]:
                below = self._step(at, name, make)
                os.close(at)
                at = below
            yield at
        finally:
            os.close(at)

    def _directory(
        self, parent: int, name: str, parts: tuple[str, ...], member: tarfile.TarInfo
    ) -> None:
        try:
            os.mkdir(name, 0o700, dir_fd=parent)
        except FileExistsError:
            if not stat.S_ISDIR(
                os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
            ):
                os.unlink(name, dir_fd=parent)
                os.mkdir(name, 0o700, dir_fd=parent)
        self._own(parent, name, member)
        path = "/".join(parts)
        self._names_left -= len(path)
        if self._names_left < 0:
            raise ImageInvalid("the image holds too many directories with long names")
        self._directory_modes[path] = _mode(
            member
        )  # set at the end: until then we must be able to write into it

    def _file(
        self, parent: int, name: str, archive: tarfile.TarFile, member: tarfile.TarInfo
    ) -> None:
        _clear(parent, name)
        content = archive.extractfile(member)
        assert content is not None
        descriptor = os.open(name, _NEW_FILE, 0o600, dir_fd=parent)
        try:
            while data := content.read(CHUNK):
                self._allowance.take_bytes(len(data))
                self._look(len(data))
                write_all(descriptor, data)
            if self._privileged:
                os.fchown(descriptor, _id(member.uid), _id(member.gid))
            os.fchmod(descriptor, _mode(member))
            os.utime(descriptor, (member.mtime, member.mtime))
        finally:
            os.close(descriptor)

    def _link(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        source = _parts(member.linkname)
        if not source:
            raise ImageInvalid(f"{member.name!r} is a hard link without a target")
        _clear(parent, name)
        try:
            with self._parent(source, make=False) as at:
                if stat.S_ISCHR(
                    os.stat(source[-1], dir_fd=at, follow_symlinks=False).st_mode
                ):
                    raise ImageInvalid(
                        f"{member.name!r} is a hard link to a deleted file"
                    )
                os.link(
                    source[-1],
                    name,
                    src_dir_fd=at,
                    dst_dir_fd=parent,
                    follow_symlinks=False,
                )
        except FileNotFoundError as error:
            raise ImageInvalid(
                f"{member.name!r} is a hard link to {member.linkname!r}, which is not there"
            ) from error

    def _hide(self, parent: int, name: str) -> None:
        """Make overlayfs's whiteout, which hides this name in lower layers."""
        if name in ("", ".", "..") or "/" in name or name.startswith(WHITEOUT):
            raise ImageInvalid("the archive has a whiteout without a name")
        _clear(parent, name)
        os.mknod(name, stat.S_IFCHR, os.makedev(0, 0), dir_fd=parent)

    def _own(self, parent: int, name: str, member: tarfile.TarInfo) -> None:
        if self._privileged:
            os.chown(
                name,
                _id(member.uid),
                _id(member.gid),
                dir_fd=parent,
                follow_symlinks=False,
            )

    def _step(self, at: int, name: str, make: bool) -> int:
        try:
            try:
                return os.open(name, _DIRECTORY, dir_fd=at)
            except FileNotFoundError:
                if not make:
                    raise
                self._take_entry()
                os.mkdir(name, 0o755, dir_fd=at)
                return os.open(name, _DIRECTORY, dir_fd=at)
        except (
            NotADirectoryError
        ) as error:  # raised for a link too, because of O_NOFOLLOW
            raise ImageInvalid(
                f"the archive has members below {name!r}, which is not a directory"
            ) from error

    def _take_entry(self) -> None:
        self._allowance.take_entry()
        self._look(ENTRY_BYTES)

    def _look(self, written: int) -> None:
        self._until_look -= written
        if self._until_look <= 0:
            self._until_look = LOOK_EVERY
            check_room(self._path)


def in_user_namespace() -> bool:
    return Path("/proc/self/uid_map").read_text().split() != ["0", "0", "4294967295"]


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a path like `./a/b`; raises ImageInvalid for a path that could lead out."""
    if len(name) > PATH_MAX:
        raise ImageInvalid(f"the archive has a path that is too long: {name[:40]!r}…")
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise ImageInvalid(f"the archive has a path outside of it: {name!r}")
    return parts


def _clear(parent: int, name: str) -> None:
    """Remove an earlier member of this name. A directory is never replaced."""
    try:
        os.unlink(name, dir_fd=parent)
    except FileNotFoundError:
        pass
    except IsADirectoryError as error:
        raise ImageInvalid(
            f"the archive has {name!r} both as a directory and as something else"
        ) from error


def _mode(member: tarfile.TarInfo) -> int:
    return member.mode & 0o1777


def _id(number: int) -> int:
    return number if 0 <= number <= LAST_ID else NOBODY
