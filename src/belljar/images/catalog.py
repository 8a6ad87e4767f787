"""The images that sandboxes start from: four of our own, and any other that the engine has.

Our images are named after their recipe: `belljar/base:<digest of its recipe>` (and `:latest` for people). A changed
recipe has another name, so nothing runs on a stale image. If a registry can be reached, an image is built from its
Dockerfile, otherwise from the same list of Debian packages. Everything here blocks: call it in a thread.
"""

from __future__ import annotations

import hashlib
import io
import re
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import IO

from belljar import resources
from belljar.errors import ImageMissing, UsageError
from belljar.images import build_times
from belljar.images.image_store import (
    ImageStore,
    Others,
    Recipe,
    StoredImage,
    no_others,
)
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
KEY_DIGITS = 24
OCI_FETCHES = "belljar images import"
LABEL = "org.belljar.image"
RECIPE_LABEL = "org.belljar.recipe"

# A registry that did not answer is not asked again for this long.
_REGISTRY_MEMORY_SECONDS = 3600.0


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


def ensure(
    store: ImageStore,
    name: str,
    progress: Progress = quiet,
    others: Others = no_others,
) -> str:
    """The reference of an existing image. One that is missing is taken from another engine, or built if it is ours."""
    wanted = reference(name)
    if store.image(wanted) is not None:
        return wanted
    if name in PARENTS:
        return build(store, name, progress, others=others)
    if (copy := _shared(store, wanted, others, progress)) is not None:
        return copy
    raise ImageMissing(
        f"no image {name!r} here: `{store.fetch_with} {name}`, or use one of {', '.join(PARENTS)}"
    )


def key(name: str, store: Callable[[], ImageStore]) -> str:
    """Stands for what an image holds. That of one of ours is known before it is built, and without an engine."""
    if name in PARENTS:
        return f"{name}-{_digest(name)}"
    found = store().image(name)
    if found is None:
        raise ImageMissing(f"no image {name!r} here")
    readable = re.sub(r"[^a-z0-9]+", "-", name)
    return f"{readable}-{found.ref.removeprefix('sha256:')[:KEY_DIGITS]}"


def _shared(
    store: ImageStore, wanted: str, others: Others, progress: Progress
) -> str | None:
    from belljar.images import sharing  # seldom needed

    with resources.locked(resources.cache_dir() / "shared.lock"):  # copy it only once
        return sharing.fetched(store, wanted, others, progress)


def build(
    store: ImageStore,
    name: str,
    progress: Progress = quiet,
    *,
    force: bool = False,
    others: Others = no_others,
) -> str:
    """Build an image of ours, unless this engine has it or (without `force`) another of this machine."""
    if name not in PARENTS:
        raise UsageError(f"no recipe for {name!r}; choose from {', '.join(PARENTS)}")
    wanted = reference(name)
    with resources.locked(resources.cache_dir() / f"{name}.lock"):  # build it only once
        if force or store.image(wanted) is None:
            with repeating(progress) as report:
                copy = None if force else _shared(store, wanted, others, report)
                if copy is not None:
                    store.image_tag(copy, wanted)
                else:
                    began = time.monotonic()
                    _make(store, name, wanted, report)
                    build_times.note(
                        name, time.monotonic() - began, store.image_size(wanted)
                    )
    store.image_tag(wanted, f"belljar/{name}:latest")
    progress(1.0, f"{wanted} is ready")
    return wanted


def _make(store: ImageStore, name: str, wanted: str, progress: Progress) -> None:
    if _registry_answers(store):
        _build_on_parent(store, name, wanted, progress)
    else:
        _import_bootstrapped(store, name, wanted, progress)


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
        wanted, _context(name), f"{name}/Dockerfile", {"FROM": start}, labels(name)
    )
    store.image_build(recipe, lambda line: report_step(line, progress))


def stop_building() -> None:
    """Stop what this process builds from packages; the build fails."""
    from belljar.images import bootstrap

    bootstrap.stop()


def _import_bootstrapped(
    store: ImageStore, name: str, wanted: str, progress: Progress
) -> None:
    import tempfile

    from belljar.images.bootstrap import bootstrap, fetch

    progress(0.0, f"building {wanted} from Debian packages{build_times.last(name)}")
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
        store.image_import(tar, wanted, cwd="/workspace", labels=labels(name))


def _readable(script: Path, directory: Path) -> Path:
    copy = directory / "-".join(script.parts[-2:])
    copy.write_bytes(script.read_bytes())
    copy.chmod(0o644)
    return copy


def report_step(line: str, progress: Progress) -> None:
    """Docker's `Step 2/5 : RUN …` and buildah's `STEP 2/5: RUN …` give the fraction; any other line has none."""
    words = line.split()
    if len(words) > 1 and words[0].lower() == "step" and "/" in words[1]:
        step, _, steps = words[1].rstrip(":").partition("/")
        progress((int(step) - 1) / int(steps), line.strip())
    elif line.strip():
        progress(None, line.strip())


def labels(name: str) -> dict[str, str]:
    """Of one of ours that is built from today's recipe."""
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
