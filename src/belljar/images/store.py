"""Images without a daemon: a content-addressed store of layers, images and names below the state directory.

    images/
        lock                 shared while adding or using, exclusive while removing
        layers/<diff id>/    one layer: `root/` is its tree, `layer.json` its size
        manifests/<id>.json  an image: its layers from the bottom up, and the parts of its configuration that we need
        names/<name>         a name; the file holds the image's id
        uses/<sandbox>       the image that a sandbox uses, which must not be removed
        work/<random>/       an import in progress, or the remains of one that was killed

Everything is made in `work` and renamed into place: a layer before its image, an image before its name. So a process
that is killed at any moment leaves a consistent store, and at most a directory in `work`.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, field
from pathlib import Path
from urllib.parse import quote, unquote

from belljar import environment, resources
from belljar.errors import EngineError, ImageInvalid, ImageMissing, UsageError
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.syscalls import libc
from belljar.user_namespace import remove_tree

_DIGEST = lazy_pattern(r"[0-9a-f]{64}")
_NAME = lazy_pattern(
    r"[a-z0-9]+(?:[._/:-][a-z0-9]+|__[a-z0-9]+)*(?::[\w][\w.-]{0,127})?", re.ASCII
)
_NAME_MAX = 200  # with `:latest` it must fit into a file name
SHORT_ID = 12


@record
class LayeredImage:
    id: str
    layers: tuple[str, ...]
    """Digests of the uncompressed layers, from the bottom up."""
    size: int
    created: float
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    names: tuple[str, ...] = ()


@record
class Pruned:
    images: tuple[str, ...]
    layers: int
    bytes: int


def normal_name(name: str) -> str:
    """`debian` is `debian:latest`."""
    if len(quote(name, safe="")) > _NAME_MAX or not _NAME.fullmatch(name):
        raise UsageError(
            f"{name!r} is not a name for an image; write for example tools:1.2"
        )
    return name if ":" in name.rpartition("/")[2] else f"{name}:latest"


class Store:
    def __init__(self, root: Path | None = None) -> None:
        self.root = root or _root()
        self._layers, self._manifests = self.root / "layers", self.root / "manifests"
        self._names = self.root / "names"
        self._uses = self.root / "uses"
        self._work = self.root / "work"

    # Finding

    def find(self, reference: str, *, with_names: bool = True) -> LayeredImage | None:
        """By name, by id, or by a unique prefix of an id."""
        for id in self._ids(reference):
            if (image := self._read(id, None if with_names else {})) is not None:
                return image
        return None

    def images(self) -> list[LayeredImage]:
        names = self._named()
        found = [self._read(path.stem, names) for path in _entries(self._manifests)]
        return sorted(
            (image for image in found if image),
            key=lambda image: (image.names or ("~",), image.id),
        )

    def layer_directories(self, image: LayeredImage) -> list[Path]:
        """From the top down, the order that overlayfs wants."""
        return [self._layers / digest / "root" for digest in reversed(image.layers)]

    def has_layer(self, digest: str) -> bool:
        return (self._layers / digest / "layer.json").is_file()

    # Adding

    @contextmanager
    def adding(self) -> Iterator[Path]:
        """A directory to work in. Nothing in the store is removed meanwhile."""
        with self._locked(fcntl.LOCK_SH):
            import tempfile  # slow to import, and not needed to find an image

            directory = Path(tempfile.mkdtemp(dir=self._work))
            try:
                yield directory
            except OSError as error:
                raise EngineError(
                    f"the image store {self.root} cannot be written: {error.strerror}"
                ) from error
            finally:
                remove_tree(directory)

    def add_layer(self, made: Path, digest: str, size: int) -> None:
        """Move `made`, a directory that holds the layer's `root`, into the store."""
        (made / "layer.json").write_text(json.dumps({"size": size}))
        _flush(made)
        try:
            made.rename(self._layers / digest)
        except OSError:
            if not self.has_layer(digest):  # another import may have added it first
                raise

    def add_image(
        self, work: Path, image: LayeredImage, names: list[str]
    ) -> LayeredImage:
        if missing := [digest for digest in image.layers if not self.has_layer(digest)]:
            raise ImageInvalid(f"the image is missing a layer: {missing[0]}")
        size = sum(self._layer_size(digest) for digest in dict.fromkeys(image.layers))
        facts = {**asdict(image), "size": size}
        del facts["names"]
        _put(work, self._manifests / f"{image.id}.json", json.dumps(facts))
        for name in names:
            _put(work, self._name_file(normal_name(name)), image.id)
        stored = self._read(image.id)
        assert stored is not None
        return stored

    def _name_file(self, name: str) -> Path:
        return self._names / quote(name, safe="")

    def tag(self, reference: str, name: str) -> None:
        image = self.find(reference)
        if image is None:
            raise ImageMissing(f"no image {reference!r} in the store")
        with self.adding() as work:
            _put(work, self._name_file(normal_name(name)), image.id)

    # Using

    def hold(self, image: LayeredImage, sandbox: str) -> None:
        """Keep the image until `release`. Raises ImageMissing if it was just removed."""
        with self._locked(fcntl.LOCK_SH):
            if self._read(image.id, {}) is None:
                raise ImageMissing(f"the image {image.id[:SHORT_ID]} was removed")
            (self._uses / sandbox).write_text(image.id)

    def release(self, sandbox: str) -> None:
        with suppress(OSError):
            (self._uses / sandbox).unlink()

    def held(self) -> dict[str, str]:
        """Sandbox → the id of its image."""
        return dict(_contents(self._uses))

    def held_since_before(self, time: float) -> set[str]:
        found = set()
        for path in _entries(self._uses):
            with suppress(OSError):
                if path.stat().st_mtime < time:
                    found.add(path.name)
        return found

    # Removing

    def remove(self, reference: str) -> LayeredImage:
        """Remove the name. Remove the image too if that was its last name, or if `reference` is its id."""
        with self._locked(fcntl.LOCK_EX):
            image = self.find(reference)
            if image is None:
                raise UsageError(
                    f"no image {reference!r}; `belljar images list` lists them"
                )
            others = self._names_but(image, reference)
            if not others:
                self._refuse_if_used(image)
            for name in set(image.names) - set(others):
                self._name_file(name).unlink(missing_ok=True)
            if not others:
                (self._manifests / f"{image.id}.json").unlink(missing_ok=True)
                self._drop_layers()
        return image

    def prune(self) -> Pruned:
        """Remove images without name and sandbox, layers without image, and what killed imports left."""
        with self._locked(fcntl.LOCK_EX):
            used = set(self.held().values())
            idle = [
                image
                for image in self.images()
                if not image.names and image.id not in used
            ]
            for image in idle:
                (self._manifests / f"{image.id}.json").unlink(missing_ok=True)
            layers, freed = self._drop_layers()
            self._clear_work()
        return Pruned(tuple(image.id for image in idle), layers, freed)

    def sweep(self) -> None:
        """Remove what killed imports left, unless an import is in progress."""
        if _entries(self._work):
            with suppress(BlockingIOError), self._locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
                self._clear_work()

    def _clear_work(self) -> None:
        for path in _entries(self._work):
            remove_tree(path)  # no import is using it: we hold the lock exclusively

    def _names_but(self, image: LayeredImage, reference: str) -> list[str]:
        with suppress(UsageError):
            if (name := normal_name(reference)) in image.names:
                return [other for other in image.names if other != name]
        return []

    def _refuse_if_used(self, image: LayeredImage) -> None:
        sandboxes = [name for name, id in self.held().items() if id == image.id]
        if sandboxes:
            raise UsageError(
                f"the image is in use by {', '.join(sorted(sandboxes))}; `belljar prune` removes dead ones"
            )

    def _drop_layers(self) -> tuple[int, int]:
        needed = {digest for image in self.images() for digest in image.layers}
        unneeded = [path for path in _entries(self._layers) if path.name not in needed]
        freed = 0
        for path in unneeded:
            freed += self._layer_size(path.name)
            removed = self._work / f"gone-{path.name}"
            path.rename(removed)  # at once, so that nobody finds half a layer
            remove_tree(removed)
        return len(unneeded), freed

    # Internals

    @contextmanager
    def _locked(self, how: int) -> Iterator[None]:
        try:
            for directory in (
                self._layers,
                self._manifests,
                self._names,
                self._uses,
                self._work,
            ):
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.root.chmod(
                0o700
            )  # layers hold files of any origin: no other user may reach them
            descriptor = os.open(
                self.root / "lock",
                os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC,
                0o600,
            )
        except OSError as error:
            raise EngineError(
                f"the image store {self.root} cannot be used: {error.strerror}"
            ) from error
        try:
            fcntl.flock(descriptor, how)
            yield
        finally:
            os.close(descriptor)

    def _ids(self, reference: str) -> Iterator[str]:
        if _DIGEST.fullmatch(reference):
            yield reference
        with suppress(UsageError, OSError):
            yield self._name_file(normal_name(reference)).read_text()
        prefix = reference.removeprefix("sha256:")
        if len(prefix) >= SHORT_ID and re.fullmatch(r"[0-9a-f]+", prefix):
            matching = [
                path.stem
                for path in _entries(self._manifests)
                if path.name.startswith(prefix)
            ]
            if len(matching) == 1:
                yield matching[0]

    def _named(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for name, id in _contents(self._names):
            found.setdefault(id, []).append(unquote(name))
        return found

    def _read(
        self, id: str, names: Mapping[str, list[str]] | None = None
    ) -> LayeredImage | None:
        facts = (
            resources.read_json(self._manifests / f"{id}.json")
            if _DIGEST.fullmatch(id)
            else None
        )
        if facts is None:
            return None
        own = (self._named() if names is None else names).get(id, [])
        return LayeredImage(
            id,
            tuple(facts["layers"]),
            facts["size"],
            facts["created"],
            tuple(facts["env"]),
            tuple(facts["volumes"]),
            facts["labels"],
            tuple(sorted(own)),
        )

    def _layer_size(self, digest: str) -> int:
        return int(
            (resources.read_json(self._layers / digest / "layer.json") or {}).get(
                "size", 0
            )
        )


def _root() -> Path:
    if path := environment.value(
        "BELLJAR_IMAGES"
    ):  # others could make a layer a link to any directory of this user
        return resources.own_directory(Path(path), 0o022, "BELLJAR_IMAGES")
    return resources.state_dir() / "images"


def _entries(directory: Path) -> list[Path]:
    try:
        return sorted(directory.iterdir())
    except OSError:
        return []


def _contents(directory: Path) -> Iterator[tuple[str, str]]:
    """The names of the files in a directory, and what each holds."""
    for path in _entries(directory):
        with suppress(OSError):
            yield path.name, path.read_text()


def _put(work: Path, target: Path, text: str) -> None:
    import tempfile

    descriptor, temporary = tempfile.mkstemp(dir=work)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.rename(temporary, target)


def _flush(path: Path) -> None:
    """Write to the disk before the rename, so that a power cut cannot leave a layer that only looks complete."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc.syncfs(descriptor)
    finally:
        os.close(descriptor)
