"""The images that sandboxes start from: four of our own, and any other that the engine has.

Our images are named after their recipe: `belljar/base:<digest of its recipe>` (and `:latest` for people). A changed
recipe has another name, so nothing runs on a stale image. If a registry can be reached, an image is built from its
Dockerfile, otherwise from the same list of Debian packages. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import io
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, Protocol

from belljar import resources
from belljar.errors import ImageMissing, UsageError
from belljar.images.progress import Progress, quiet, repeating
from belljar.records import record

ROOT_IMAGE = "debian:bookworm-slim"
PARENTS: dict[str, str | None] = {
    "base": None,
    "python": "base",
    "node": "base",
    "dev": "python",
}
INSTALLERS = {
    "python": "python/install.sh",
    "node": "node/install.sh",
    "dev": "node/install.sh",
}
"""Scripts that run inside, with the network, after the packages: they install what Debian does not have."""
OCI_FETCHES = "belljar images import"
LABEL = "org.belljar.image"
RECIPE_LABEL = "org.belljar.recipe"

# A registry that did not answer is not asked again for this long.
_REGISTRY_MEMORY_SECONDS = 3600.0


@record
class StoredImage:
    """An image that an engine has."""

    id: str
    names: tuple[str, ...]
    """With tags: belljar/base:latest …"""
    labels: Mapping[str, str]
    size: int
    created: float


@record
class Recipe:
    """An image to be built from a Dockerfile."""

    reference: str
    context: IO[bytes]
    """A tar that holds the Dockerfile."""
    dockerfile: str
    arguments: dict[str, str]
    labels: dict[str, str]


class ImageStore(Protocol):
    """Where images are found and made. An engine has one, or leaves that to a registry (`Engine.images`)."""

    fetch_with: str
    """The command that gets an image from elsewhere (`docker pull`)."""
    holds_imports: bool
    """Whether it is the store that `belljar images import` fills."""

    def image(self, reference: str) -> object | None:
        """None: there is no such image."""

    def image_import(
        self, tar: Path, reference: str, *, cwd: str, labels: dict[str, str]
    ) -> None:
        """Make an image from the tar of a root file system."""

    def image_build(self, recipe: Recipe, report: Callable[[str], None]) -> None:
        """Called only if `registry_has` returned True."""

    def image_tag(self, reference: str, alias: str) -> None: ...
    def image_list(self, label: str) -> list[StoredImage]: ...
    def registry_has(self, reference: str) -> bool:
        """Whether a registry can be reached that has this image."""


@record
class Image:
    name: str
    reference: str
    size: int
    created: float
    current: bool
    """Whether it was made from this version's recipe."""


@cache
def reference(name: str) -> str:
    """The engine's reference: a name of ours becomes its exact image, any other stays as it is."""
    return f"belljar/{name}:{_digest(name)}" if name in PARENTS else name


def ensure(store: ImageStore, name: str, progress: Progress = quiet) -> str:
    """The reference of an existing image; one of ours is built first if it is missing."""
    wanted = reference(name)
    if store.image(wanted) is not None:
        return wanted
    if name not in PARENTS:
        ours = ", ".join(PARENTS)
        if not store.holds_imports and _in_our_store(name):
            raise ImageMissing(
                f"no image {name!r} in this engine; the engine oci has it: --engine oci"
            )
        raise ImageMissing(
            f"no image {name!r} here: `{store.fetch_with} {name}`, or use one of {ours}"
        )
    return build(store, name, progress)


def _in_our_store(name: str) -> bool:
    """Whether it was imported with `belljar images import`, which is for the engine oci."""
    from belljar.images.store import Store

    with suppress(UsageError):  # not a valid name
        return Store().find(name) is not None
    return False


def build(
    store: ImageStore, name: str, progress: Progress = quiet, *, force: bool = False
) -> str:
    if name not in PARENTS:
        raise UsageError(f"no recipe for {name!r}; choose from {', '.join(PARENTS)}")
    wanted = reference(name)
    with resources.locked(resources.cache_dir() / f"{name}.lock"):  # build it only once
        if force or store.image(wanted) is None:
            with repeating(progress) as report:
                make = (
                    _build_on_parent
                    if _registry_answers(store)
                    else _import_bootstrapped
                )
                make(store, name, wanted, report)
    store.image_tag(wanted, f"belljar/{name}:latest")
    progress(1.0, f"{wanted} is ready")
    return wanted


def listing(store: ImageStore) -> list[Image]:
    images = [image for found in store.image_list(LABEL) for image in _described(found)]
    return sorted(
        images, key=lambda image: (image.name, not image.current, image.reference)
    )


def _described(found: StoredImage) -> Iterator[Image]:
    """One entry for our name, and one for each other name. Images made from ours inherit its label."""
    name = found.labels[LABEL]
    ours = [each for each in found.names if each.startswith(f"belljar/{name}:")]
    if ours or not found.names:
        exact = [each for each in ours if not each.endswith(":latest")]
        current = name in PARENTS and reference(name) in ours
        yield Image(
            name, (exact or ours or [found.id])[0], found.size, found.created, current
        )
    for other in found.names:
        if other not in ours:
            yield Image(other, other, found.size, found.created, False)


def _build_on_parent(
    store: ImageStore, name: str, wanted: str, progress: Progress
) -> None:
    parent = PARENTS[name]
    start = ensure(store, parent, progress) if parent else ROOT_IMAGE
    recipe = Recipe(
        wanted, _context(name), f"{name}/Dockerfile", {"FROM": start}, _labels(name)
    )
    store.image_build(recipe, lambda line: _report_step(line, progress))


def stop_building() -> None:
    """Stop what this process builds from packages; the build fails."""
    from belljar.images import bootstrap

    bootstrap.stop()


def _import_bootstrapped(
    store: ImageStore, name: str, wanted: str, progress: Progress
) -> None:
    import tempfile

    from belljar.images.bootstrap import bootstrap, fetch

    progress(0.0, f"building {wanted} from Debian packages")
    with tempfile.TemporaryDirectory(prefix="belljar-image-") as directory:
        # For an ordinary user mmdebstrap runs under ids that could otherwise enter neither this directory nor his home.
        Path(directory).chmod(0o755)
        tar, fetched = Path(directory, "root.tar"), Path(directory, "fetched")
        recipes = [INSTALLERS[each] for each in _lineage(name) if each in INSTALLERS]
        scripts = [
            _readable(_recipes() / each, Path(directory))
            for each in [*recipes, "finish.sh"]
        ]
        fetch(
            [each for each in _lineage(name) if each in INSTALLERS], fetched, progress
        )
        bootstrap(_packages(name), scripts, tar, progress, fetched)
        progress(0.95, "importing")
        store.image_import(tar, wanted, cwd="/workspace", labels=_labels(name))


def _readable(script: Path, directory: Path) -> Path:
    copy = directory / "-".join(script.parts[-2:])
    copy.write_bytes(script.read_bytes())
    copy.chmod(0o644)
    return copy


def _report_step(line: str, progress: Progress) -> None:
    """Docker's `Step 2/5 : RUN …` gives the fraction; any other line has none."""
    words = line.split()
    if len(words) > 1 and words[0] == "Step" and "/" in words[1]:
        step, _, steps = words[1].partition("/")
        progress((int(step) - 1) / int(steps), line.strip())
    elif line.strip():
        progress(None, line.strip())


def _labels(name: str) -> dict[str, str]:
    return {LABEL: name, RECIPE_LABEL: _digest(name)}


def _recipes() -> Path:
    return resources.directory("sandbox-images")


def _lineage(name: str) -> list[str]:
    """The image and those it is built on, the lowest first."""
    parent = PARENTS[name]
    return [*(_lineage(parent) if parent else []), name]


def _ingredients(name: str) -> list[str]:
    installer = [INSTALLERS[name]] if name in INSTALLERS else []
    return [f"{name}/Dockerfile", f"{name}/packages", *installer, "finish.sh"]


def _digest(name: str) -> str:
    digest = hashlib.sha256()
    for path in (path for each in _lineage(name) for path in _ingredients(each)):
        digest.update(path.encode() + b"\0" + (_recipes() / path).read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def _packages(name: str) -> list[str]:
    lists = [(_recipes() / each / "packages").read_text() for each in _lineage(name)]
    return [
        line
        for line in "".join(lists).splitlines()
        if line and not line.startswith("#")
    ]


def _context(name: str) -> IO[bytes]:
    import tarfile

    context = io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as tar:
        for path in _ingredients(name):
            tar.add(_recipes() / path, arcname=path)
    context.seek(0)
    return context


def _registry_answers(store: ImageStore) -> bool:
    silent = resources.cache_dir() / "registry-silent"
    if (
        silent.exists()
        and time.time() - silent.stat().st_mtime < _REGISTRY_MEMORY_SECONDS
    ):
        return False
    if store.registry_has(ROOT_IMAGE):
        return True
    silent.touch()
    return False
