"""`belljar images`: list and build Belljar's images; import, remove and prune images of the engine `oci`."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime

from belljar.engines.base import image_store
from belljar.host import default
from belljar.images import catalog
from belljar.images.importing import import_images
from belljar.images.store import SHORT_ID, LayeredImage, Store
from belljar.surfaces.cli import console


def listing(args: Namespace) -> int:
    store = image_store(default().connect())
    found = [*catalog.listing(store), *(_imported() if store.holds_imports else [])]
    rows = [
        (image.name, image.reference, _size(image.size), datetime.fromtimestamp(image.created, UTC).date(),
         "current" if image.current else "old recipe" if image.name in catalog.PARENTS else
         "imported" if store.holds_imports else "your own")
        for image in found
    ]  # fmt: skip
    return console.answer_table(args, [*map(asdict, found)], rows, "NAME", "IMAGE", "SIZE", "BUILT", "RECIPE")


def _imported() -> list[catalog.Image]:
    """The images that `belljar images import` added to the store of the engine oci."""
    others = [image for image in Store().images() if catalog.LABEL not in image.labels]
    return [catalog.Image(name, name, image.size, image.created, False) for image in others for name in _names(image)]


def build(args: Namespace) -> int:
    with closing(console.Bar()) as bar:
        reference = catalog.build(image_store(default().connect()), args.name, bar, force=args.force)
    return console.answer(args, {"name": args.name, "reference": reference}, reference)


def import_(args: Namespace) -> int:
    with closing(console.Bar(announce=False)) as bar:
        images = import_images(Store(), args.source, args.name, bar)
    lines = (f"{', '.join(_names(image))}  {_size(image.size)}" for image in images)
    return console.answer(args, [*map(asdict, images)], *lines)


def remove(args: Namespace) -> int:
    store = Store()
    removed = [store.remove(name) for name in args.names]
    return console.answer(args, {"removed": [image.id for image in removed]})


def prune(args: Namespace) -> int:
    pruned = Store().prune()
    facts = {"images": list(pruned.images), "layers": pruned.layers, "bytes": pruned.bytes}
    message = f"{len(pruned.images)} images, {pruned.layers} layers, {_size(pruned.bytes)} freed"
    return console.answer(args, facts, message)


def _names(image: LayeredImage) -> tuple[str, ...]:
    return tuple(image.names) or (image.id[:SHORT_ID],)


def _size(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
