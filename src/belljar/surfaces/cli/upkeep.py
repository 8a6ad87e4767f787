"""Upkeep: `belljar doctor`, `prune`, `images …` and `network explain`."""

from __future__ import annotations

from argparse import Namespace
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from tempfile import TemporaryDirectory

import anyio

from belljar import Session
from belljar import host as hosts
from belljar.doctor import examine
from belljar.engines.base import Engine, image_store
from belljar.host import default
from belljar.images import catalog
from belljar.images.importing import import_images
from belljar.images.store import SHORT_ID, LayeredImage, Store
from belljar.network import presets
from belljar.sandbox import caches, reaper
from belljar.session.network_door import explained
from belljar.surfaces.cli import console, staged_remains


def doctor(args: Namespace) -> int:
    checks = examine()
    console.answer(
        args,
        [*map(asdict, checks)],
        *(line for check in checks for line in check.lines()),
    )
    return 0 if all(check.ok for check in checks) else 1


def _engines_to_prune() -> list[Engine]:
    """The engine in use, and oci if it was ever used: it has no daemon that cleans up."""
    engine = hosts.default().connect()
    if not (hosts.default().state_root / "oci").is_dir():
        return [engine]
    oci = hosts.Host(engine="oci").connect()
    return [engine] if engine.identity == oci.identity else [engine, oci]


def prune(args: Namespace) -> int:
    removed = sorted(
        {id for engine in _engines_to_prune() for id in reaper.reap(engine)}
    )
    dropped, kept = staged_remains.prune(args)
    emptied = _caches(remove=args.caches)
    facts = {
        "removed": removed,
        "staged_dropped": dropped,
        "staged_kept": kept,
        "caches_removed": emptied,
    }
    return console.answer(
        args, facts, *([*removed, *dropped, *emptied] or ["nothing to remove"])
    )


def _caches(*, remove: bool) -> list[str]:
    """Remove or list what `--cache` keeps. All of it can be downloaded again."""
    removed = []
    found = caches.kept(hosts.default().caches_root)
    for cache in found:
        description = (
            f"cache {cache.name} of user {cache.owner}, {cache.bytes / 1e6:.0f} MB"
        )
        if not remove:
            console.note(description)
        elif cache.remove():
            removed.append(description)
        else:
            console.note(f"{description}: a sandbox uses it")
    if found and not remove:
        console.note("these are kept; `belljar prune --caches` removes them")
    return removed


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
    with closing(console.Bar()) as bar:
        reference = catalog.build(
            image_store(default().connect()), args.name, bar, force=args.force
        )
    return console.answer(args, {"name": args.name, "reference": reference}, reference)


def import_image(args: Namespace) -> int:
    with closing(console.Bar(announce=False)) as bar:
        images = import_images(Store(), args.source, args.name, bar)
    lines = (f"{', '.join(_names(image))}  {_size(image.size)}" for image in images)
    return console.answer(args, [*map(asdict, images)], *lines)


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


async def _with_image(
    names: list[str], image: str
) -> list[tuple[str, presets.PresetHost]]:
    """Also ask the image's package managers, in a sandbox with that image."""
    with TemporaryDirectory(prefix="belljar-explain-") as empty:
        async with Session(empty, image=image) as box:
            return [
                (name, host)
                for name in names
                for host in await explained(name, box.init_tools)
            ]


def explain_presets(args: Namespace) -> int:
    if args.image:
        hosts = anyio.run(_with_image, args.presets, args.image)
    else:
        hosts = [
            (name, host) for name in args.presets for host in presets.explain(name)
        ]
    facts = [
        {"preset": preset, "host": host.host, "why": host.why} for preset, host in hosts
    ]
    return console.answer_table(
        args, facts, (tuple(row.values()) for row in facts), "PRESET", "HOST", "WHY"
    )
