"""`belljar images import`, `remove` and `prune`: the images of the engine `oci`, which keeps them itself."""

from __future__ import annotations

from argparse import Namespace

from belljar.images.store import SHORT_ID, LayeredImage, Store
from belljar.surfaces.cli import console


def import_(args: Namespace) -> int:
    from belljar.images.importing import import_images

    bar = console.Bar(announce=False)
    try:
        images = import_images(Store(), args.source, args.name, bar)
    finally:
        bar.close()
    if args.json:
        console.document([image.as_dict() for image in images])
    else:
        for image in images:
            console.say(f"{_shown(image)}  {_size(image.size)}")
    return 0


def remove(args: Namespace) -> int:
    store = Store()
    removed = [store.remove(name) for name in args.names]
    if args.json:
        console.document({"removed": [image.id for image in removed]})
    return 0


def prune(args: Namespace) -> int:
    pruned = Store().prune()
    if args.json:
        console.document({"images": list(pruned.images), "layers": pruned.layers, "bytes": pruned.bytes})
    else:
        console.say(f"{len(pruned.images)} images, {pruned.layers} layers, {_size(pruned.bytes)} freed")
    return 0


def _shown(image: LayeredImage) -> str:
    return ", ".join(image.names) or image.id[:SHORT_ID]


def _size(count: int) -> str:
    return f"{count / 1e6:.0f} MB"
