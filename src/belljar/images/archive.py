"""Reads a file that should hold images: from `docker save`, an OCI layout, or the tar of a root file system.

Its contents tell which. Nothing is unpacked here: the result is a plan with the layers as streams.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import stat
import tarfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import IO, Any, cast

from belljar.errors import ImageInvalid
from belljar.images.unpack import NAMES_MAX, PATH_MAX, Metered, forget
from belljar.layout import MACHINES
from belljar.patterns import lazy_pattern
from belljar.records import record

DOCUMENT_MAX = 4 << 20
DOCUMENTS_MAX = 16 << 20
"""All manifests and configurations of one archive together: they are held in memory."""
LAYERS_MAX = 256
MEMBERS_MAX = 100_000
LINKS_MAX = 16
INDEX_DEPTH = 3
_BLOB = lazy_pattern(r"blobs/sha256/([0-9a-f]{64})")
_DIGEST = lazy_pattern(r"sha256:([0-9a-f]{64})")


@record
class Layer:
    open: Callable[[], IO[bytes]]
    digest: str | None = None
    """Digest of the stored, perhaps compressed, bytes."""
    diff_id: str | None = None
    """Digest of the uncompressed tar."""


@record
class Plan:
    """One image that can be imported."""

    layers: tuple[Layer, ...]
    id: str | None = None
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    labels: Mapping[str, str] | None = None
    names: tuple[str, ...] = ()


class Files(ABC):
    """The files of an archive."""

    _documents_left = DOCUMENTS_MAX

    @abstractmethod
    def open(self, name: str) -> IO[bytes]: ...

    @abstractmethod
    def has(self, name: str) -> bool: ...

    def read(self, name: str, digest: str | None = None) -> bytes:
        """A manifest or a configuration."""
        with closing(self.open(name)) as stream:
            data = stream.read(DOCUMENT_MAX + 1)
        self._documents_left -= len(data)
        if len(data) > DOCUMENT_MAX or self._documents_left < 0:
            raise ImageInvalid(f"{name} is too large")
        if digest is not None and hashlib.sha256(data).hexdigest() != digest:
            raise ImageInvalid(f"{name} is damaged: its digest is wrong")
        return data


def plans(path: Path) -> list[Plan]:
    """The images in a directory or in an uncompressed tar."""
    files = Directory(path) if path.is_dir() else Tar(path)
    if files.has("manifest.json"):
        return list(_docker_images(files))
    if files.has("index.json"):
        return list(_oci_images(files, _document(files.read("index.json")), ()))
    if isinstance(files, Directory):
        raise ImageInvalid(
            f"{path} is not an image: it has neither index.json nor manifest.json"
        )
    if files.is_cut:
        raise ImageInvalid(f"{path} is not a whole tar archive: its end is missing")
    return [root_plan(path)]


def root_plan(tar: Path, labels: Mapping[str, str] | None = None) -> Plan:
    """The tar of a root file system, as an image of one layer."""
    return Plan((Layer(lambda: tar.open("rb")),), labels=labels)


class Directory(Files):
    def __init__(self, path: Path) -> None:
        self._path = path

    def has(self, name: str) -> bool:
        return (self._path / name).is_file()

    def open(self, name: str) -> IO[bytes]:
        """Follows no link: a layout from a checkout must not make us read other files."""
        at = os.open(self._path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            for part in _inside(name):
                below = os.open(
                    part,
                    os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
                    dir_fd=at,
                )
                os.close(at)
                at = below
            if not stat.S_ISREG(os.fstat(at).st_mode):
                raise ImageInvalid(f"{name} is not a file")
            return os.fdopen(os.dup(at), "rb")
        except OSError as error:
            raise ImageInvalid(
                f"the image is missing {name}: {error.strerror}"
            ) from error
        finally:
            os.close(at)


class Tar(Files):
    """Read in place."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._members: dict[str, tuple[int, int]] = {}
        self._links: dict[str, str] = {}
        self._names_left = NAMES_MAX
        with open(path, "rb") as file:
            try:
                self._index(Metered(file, path.stat().st_size, hashed=False))
            except (
                tarfile.TarError,
                ValueError,
                ArithmeticError,
                RecursionError,
            ) as error:
                raise ImageInvalid(
                    f"{path} is not a whole tar archive: {error}"
                ) from error

    def _index(self, stream: Metered) -> None:
        with tarfile.open(
            fileobj=cast("IO[bytes]", stream), mode="r:", errors="surrogateescape"
        ) as archive:
            for member in archive:
                self._note(member)
                forget(archive)
                stream.begin_header()
        self.is_cut = stream.ran_out

    def _note(self, member: tarfile.TarInfo) -> None:
        """Records files and links to them: `docker save` stores a layer that two images share only once."""
        names = len(member.name) + len(member.linkname)
        if (
            names > 2 * PATH_MAX
            or names > self._names_left
            or len(self._members) + len(self._links) >= MEMBERS_MAX
        ):
            return
        self._names_left -= names
        name = member.name.removeprefix("./")
        if member.isfile() and not member.issparse():
            self._members[name] = (member.offset_data, member.size)
        elif member.issym():
            self._links[name] = os.path.normpath(
                os.path.join(os.path.dirname(name), member.linkname)
            )
        elif member.islnk():
            self._links[name] = member.linkname.removeprefix("./")

    def _resolve(self, name: str) -> str:
        for _ in range(LINKS_MAX):
            if name in self._members or name not in self._links:
                break
            name = self._links[name]
        return name

    def has(self, name: str) -> bool:
        return self._resolve(name) in self._members

    def open(self, name: str) -> IO[bytes]:
        target = self._resolve(name)
        if target not in self._members:
            raise ImageInvalid(f"the image is missing {name}")
        return cast("IO[bytes]", _Part(self._path, *self._members[target]))


class _Part:
    """A part of a file."""

    def __init__(self, path: Path, offset: int, size: int) -> None:
        self._file, self._left = path.open("rb"), size
        self._file.seek(offset)

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._file.close()


def _docker_images(files: Files) -> Iterator[Plan]:
    entries = _json(files.read("manifest.json"))
    if not isinstance(entries, list) or not entries:
        raise ImageInvalid("manifest.json names no image")
    for entry in map(_mapping, entries):
        layers = [(name, _named_digest(name)) for name in _strings(entry.get("Layers"))]
        config = str(entry.get("Config"))
        yield _plan(
            files,
            files.read(config, _named_digest(config)),
            layers,
            _strings(entry.get("RepoTags")),
        )


def _oci_images(
    files: Files, index: Mapping[str, Any], names: tuple[str, ...], depth: int = 0
) -> Iterator[Plan]:
    entries = [_mapping(entry) for entry in _list(index.get("manifests"))]
    usable = [entry for entry in entries if _is_ours(_mapping(entry.get("platform")))]
    if not usable or depth > INDEX_DEPTH:
        raise ImageInvalid(f"the image does not support {machine()}")
    for entry in usable if depth == 0 else usable[:1]:
        document = _document(files.read(*_blob(entry)))
        own = _names(_mapping(entry.get("annotations"))) or names
        if "manifests" in document:
            yield from _oci_images(files, document, own, depth + 1)
        else:
            config = files.read(*_blob(_mapping(document.get("config"))))
            layers = [_blob(_mapping(layer)) for layer in _list(document.get("layers"))]
            yield _plan(files, config, layers, own)


def _plan(
    files: Files, config: bytes, parts: list[Any], names: tuple[str, ...]
) -> Plan:
    document = _document(config)
    settings = _mapping(document.get("config"))
    found = [
        _DIGEST.fullmatch(text)
        for text in _strings(_mapping(document.get("rootfs")).get("diff_ids"))
    ]
    diff_ids = [match[1] for match in found if match]
    if len(diff_ids) != len(parts) or not 0 < len(parts) <= LAYERS_MAX:
        raise ImageInvalid("the image's configuration does not fit its layers")
    if (built_for := document.get("architecture")) and built_for != machine():
        raise ImageInvalid(f"the image is for {built_for}; this machine is {machine()}")
    env = _strings(settings.get("Env"))
    volumes = tuple(sorted(_mapping(settings.get("Volumes"))))
    if any("\0" in text for text in (*env, *volumes)):
        raise ImageInvalid(
            "the image's configuration has a variable or a volume with a NUL byte in it"
        )
    layers = [
        Layer(partial(files.open, name), digest, diff_id)
        for (name, digest), diff_id in zip(parts, diff_ids, strict=True)
    ]
    return Plan(
        tuple(layers),
        hashlib.sha256(config).hexdigest(),
        env,
        volumes,
        {key: str(value) for key, value in _mapping(settings.get("Labels")).items()},
        names,
    )


def _names(annotations: Mapping[str, Any]) -> tuple[str, ...]:
    keys = ("io.containerd.image.name", "org.opencontainers.image.ref.name")
    return tuple(str(annotations[key]) for key in keys if key in annotations)[:1]


def _is_ours(target: Mapping[str, Any]) -> bool:
    return (target.get("architecture", machine()), target.get("os", "linux")) == (
        machine(),
        "linux",
    )


def _blob(descriptor: Mapping[str, Any]) -> tuple[str, str]:
    match = _DIGEST.fullmatch(str(descriptor.get("digest")))
    if match is None:
        raise ImageInvalid("the image uses a digest that is not sha256")
    return f"blobs/sha256/{match[1]}", match[1]


def _named_digest(name: str) -> str | None:
    """Where files are called after their digests, they must have them."""
    match = _BLOB.fullmatch(name)
    return match[1] if match else None


def _json(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ImageInvalid("the image has a manifest that is not JSON") from error


def _document(data: bytes) -> dict[str, Any]:
    return _mapping(_json(data))


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _strings(value: Any) -> tuple[str, ...]:
    return tuple(item for item in _list(value) if isinstance(item, str))


def _inside(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if ".." in parts or not parts or "\0" in name:
        raise ImageInvalid(f"the image names a file outside of it: {name!r}")
    return parts


def machine() -> str:
    return next(
        (name for name, kernels in MACHINES.items() if kernels == platform.machine()),
        platform.machine(),
    )
