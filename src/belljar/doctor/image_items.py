"""Checks of the init and the images that sandboxes are started from."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

from belljar import resources
from belljar.doctor.check import Check
from belljar.engines.base import Engine
from belljar.errors import BelljarError
from belljar.images import catalog
from belljar.images.image_store import ImageStore


def checks(engine: Engine) -> Iterator[Check]:
    yield _init(engine)
    reference = catalog.reference("base")
    if engine.image(reference) is not None:
        yield Check("image base", True, reference)
        return
    if engine.images is not None:
        yield _image_source(engine.images)
    yield Check(
        "image base",
        False,
        f"{reference} is not built yet",
        "run `belljar images build base`",
    )


def _init(engine: Engine) -> Check:
    try:
        binary = resources.init_binary(engine.machine)
    except BelljarError as error:
        return Check(
            "init", False, str(error), "run `make setup`, or install the wheel"
        )
    return Check("init", True, f"{binary.name}, {binary.stat().st_size >> 10} KiB")


def _image_source(store: ImageStore) -> Check:
    """Only checked if an image is missing: it takes ten seconds if no registry answers."""
    name = "image sources"
    if store.registry_has(catalog.ROOT_IMAGE):
        return Check(name, True, "a registry answers")
    if shutil.which("mmdebstrap"):
        return Check(
            name,
            True,
            "no registry answers; images are built from Debian packages (mmdebstrap)",
        )
    who = "" if os.geteuid() == 0 else "sudo "
    fix = f"`{who}apt-get install mmdebstrap`, or load an image from another machine (`docker save`, `docker load`)"
    return Check(
        name, False, "no registry answers, and mmdebstrap is not installed", fix
    )
