"""`belljar images …`."""

from __future__ import annotations

import platform
from argparse import Namespace
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from belljar import engines
from belljar.engines.base import image_store
from belljar.errors import ImageMissing, UsageError
from belljar.host import default
from belljar.images import building, catalog, exporting, sharing
from belljar.images.image_store import ImageStore, Others
from belljar.images.importing import import_images
from belljar.images.store import SHORT_ID, LayeredImage, Store, normal_name
from belljar.surfaces.cli import console


def _stores() -> tuple[ImageStore, Others]:
    """The engine's, and how to find those of this machine's other engines."""
    engine = default().connect()
    return image_store(engine), partial(engines.image_stores_beside, engine)


def list_images(args: Namespace) -> int:
    store = image_store(default().connect())
    found = [*catalog.listing(store), *(_imported() if store.holds_imports else [])]
    rows = [
        (
            image.name,
            image.reference,
            _size(image.size),
            datetime.fromtimestamp(image.created, UTC).date(),
            "current"
            if image.current
            else "old recipe"
            if image.name in catalog.PARENTS
            else "imported"
            if store.holds_imports
            else "your own",
        )
        for image in found
    ]
    return console.answer_table(
        args, [*map(asdict, found)], rows, "NAME", "IMAGE", "SIZE", "BUILT", "RECIPE"
    )


def _imported() -> list[catalog.Image]:
    """The images that `belljar images import` added to the store of the engine oci."""
    others = [image for image in Store().images() if catalog.LABEL not in image.labels]
    return [
        catalog.Image(name, name, image.size, image.created, False)
        for image in others
        for name in _names(image)
    ]


def build_image(args: Namespace) -> int:
    if args.file is not None:
        return _build_from_dockerfile(args)
    if args.context is not None or args.build_arg:
        raise UsageError("--context and --build-arg go with --file")
    store, others = _stores()
    with closing(console.Bar()) as bar:
        name = args.name or "base"
        reference = catalog.build(store, name, bar, force=args.force, others=others)
    return console.answer(args, {"name": name, "reference": reference}, reference)


def _build_from_dockerfile(args: Namespace) -> int:
    store, others = _stores()
    with building.planned(_order(args)) as plan, closing(console.Bar()) as bar:
        if args.force or not building.is_built(store, plan):
            building.build(store, plan, bar, others)
    return console.answer(args, {"name": args.name, "reference": plan.name}, plan.name)


def _order(args: Namespace) -> building.Order:
    if args.name is None:
        raise UsageError(
            "name the image: `belljar images build NAME --file Dockerfile`"
        )
    dockerfile = Path(args.file)
    context = Path(args.context) if args.context else dockerfile.parent
    return building.Order(args.name, dockerfile, context, dict(args.build_arg))


def import_image(args: Namespace) -> int:
    """With a name of ours, only what was built from today's recipe."""
    name, labels = args.name, {}
    if name in catalog.PARENTS:
        name, labels = catalog.reference(name), catalog.labels(name)
    with closing(console.Bar(announce=False)) as bar:
        images = import_images(Store(), args.source, name, bar, args.id, labels)
    lines = (f"{', '.join(_names(image))}  {_size(image.size)}" for image in images)
    return console.answer(args, [*map(asdict, images)], *lines)


def export_image(args: Namespace) -> int:
    """For a cache between jobs, or another machine. One of ours is built if it is missing."""
    store, others = _stores()
    with closing(console.Bar(announce=False)) as bar:
        reference = catalog.ensure(store, args.name, bar, others)
        image = sharing.own_copy(store, reference, bar)
        if image is None:
            raise ImageMissing(f"the image {reference} was just removed")
        target = Path(args.file)
        written = exporting.export_image(
            Store(), image, target, [_name_inside(args.name)], bar
        )
    facts = {"id": f"sha256:{written.id}", "file": args.file, "size": written.size}
    return console.answer(args, facts, f"sha256:{written.id}  {_size(written.size)}")


def _name_inside(name: str) -> str:
    return normal_name(catalog.reference(name))


def key(args: Namespace) -> int:
    """It changes whenever the image would: what a CI system can call its cache by."""
    text = (
        f"belljar-{catalog.key(args.name, lambda: _stores()[0])}-{platform.machine()}"
    )
    return console.answer(args, {"name": args.name or "base", "key": text}, text)


def remove_images(args: Namespace) -> int:
    store = Store()
    removed = [store.remove(name) for name in args.names]
    return console.answer(args, {"removed": [image.id for image in removed]})


def prune_images(args: Namespace) -> int:
    pruned = Store().prune()
    facts = {
        "images": list(pruned.images),
        "layers": pruned.layers,
        "bytes": pruned.bytes,
    }
    message = f"{len(pruned.images)} images, {pruned.layers} layers, {_size(pruned.bytes)} freed"
    return console.answer(args, facts, message)


def _names(image: LayeredImage) -> tuple[str, ...]:
    return tuple(image.names) or (image.id[:SHORT_ID],)


def _size(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
