"""What was built once on a machine is found by each of its engines. Blocking.

An image that an engine lacks is taken from Belljar's store (for Docker and Podman) or from one of them (for `oci`). A
copy is called `belljar/shared:<id at its origin>` and made once. Which image a name means is asked at its origin each
time, so a name that leads to another image since is no trap.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from belljar.errors import EngineError, UsageError
from belljar.images.progress import Progress
from belljar.images.store import LayeredImage, Store

if TYPE_CHECKING:
    from belljar.images.image_store import ImageStore, Others

COPIES = "belljar/shared"
_DIGITS = 24


def fetched(
    store: ImageStore, reference: str, others: Others, progress: Progress
) -> str | None:
    """The name that an image of this machine has in `store` now; None: no other engine has it either."""
    if store.holds_imports:
        return _from_engines(store, reference, others(), progress)
    with suppress(UsageError):  # not a name for an image of ours
        if (image := Store().find(reference, with_names=False)) is not None:
            return _into_engine(store, image, progress)
    return None


def _into_engine(store: ImageStore, image: LayeredImage, progress: Progress) -> str:
    from belljar.images.exporting import export_image

    copy = _copy(image.id)
    if store.image(copy) is None:
        with tempfile.TemporaryDirectory(prefix="belljar-shared-") as directory:
            archive = Path(directory, "image.tar")
            progress(None, f"copying the image {copy} from Belljar's own store")
            export_image(Store(), image, archive, [copy])
            store.image_load(archive)
        if store.image(copy) is None:
            raise EngineError(f"the engine did not take the image {copy}")
    return copy


def _from_engines(
    store: ImageStore, reference: str, others: Iterable[ImageStore], progress: Progress
) -> str | None:
    for other in others:
        with suppress(EngineError):  # it went away: as if it had no such image
            if (copied := own_copy(other, reference, progress)) is not None:
                return _copy_of(copied)
    return None


def own_copy(
    other: ImageStore, reference: str, progress: Progress
) -> LayeredImage | None:
    """What an engine has, as an image of Belljar's own store; None: the engine has no such image."""
    own = Store()
    if other.holds_imports:
        return own.find(reference)
    found = other.image(reference)
    if found is None:
        return None
    copy = _copy(found.ref.removeprefix("sha256:"))
    if (known := own.find(copy)) is not None:
        return known
    from belljar.images.importing import import_shared

    progress(None, f"copying the image {reference} from {other.kept_by}")
    with tempfile.TemporaryDirectory(prefix="belljar-shared-") as directory:
        archive = Path(directory, "image.tar")
        other.image_save(found.ref, archive)
        return import_shared(own, archive, copy)


def _copy_of(image: LayeredImage) -> str:
    return next(name for name in image.names if name.startswith(f"{COPIES}:"))


def _copy(id: str) -> str:
    return f"{COPIES}:{id[:_DIGITS]}"
