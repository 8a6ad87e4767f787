"""`belljar images`, `doctor` and `prune`"""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from belljar import engines, resources
from belljar.engines.base import Engine
from belljar.images import catalog
from belljar.images.store import SHORT_ID, Store
from belljar.sandbox import reaper
from belljar.surfaces.cli import console, staged_remains


def listing(args: Namespace) -> int:
    engine = engines.connect()
    found = [*catalog.listing(engine), *(_imported() if engine.name == "oci" else [])]
    if args.json:
        console.document([image.as_dict() for image in found])
        return 0
    rows = [
        (
            image.name,
            image.reference,
            f"{image.size / 1e6:.0f} MB",
            datetime.fromtimestamp(image.created, UTC).date(),
            "current" if image.current else "old recipe" if image.name in catalog.PARENTS else "imported",
        )
        for image in found
    ]
    console.table(rows, "NAME", "IMAGE", "SIZE", "BUILT", "RECIPE")
    return 0


def _imported() -> list[catalog.Image]:
    """What `belljar images import` brought into the store of the engine oci."""
    others = [image for image in Store().images() if catalog.LABEL not in image.labels]
    shown = [(image.names or (image.id[:SHORT_ID],), image) for image in others]
    return [catalog.Image(name, name, image.size, image.created, False) for names, image in shown for name in names]


def build(args: Namespace) -> int:
    bar = console.Bar()
    try:
        reference = catalog.build(engines.connect(), args.name, bar, force=args.force)
    finally:
        bar.close()
    if args.json:
        console.document({"name": args.name, "reference": reference})
    else:
        console.say(reference)
    return 0


def doctor(args: Namespace) -> int:
    from belljar.doctor import examine

    checks = examine()
    if args.json:
        console.document([check.as_dict() for check in checks])
    else:
        for check in checks:
            state = "FAIL" if not check.ok else "note" if check.fix else "ok  "
            console.say(f"{state}  {check.name}: {check.detail}")
            if check.fix:
                console.say(f"      → {check.fix}")
    return 0 if all(check.ok for check in checks) else 1


def _at_hand() -> list[Engine]:
    """The engine in use, and oci's if it was ever: it has no daemon that would look after its own."""
    engine = engines.connect()
    used = (resources.state_dir() / "oci").is_dir()
    return [engine, engines.connect("oci")] if used and engine.name != "oci" else [engine]


def prune(args: Namespace) -> int:
    removed = sorted({id for engine in _at_hand() for id in reaper.reap(engine)})
    dropped, kept = staged_remains.prune(args)
    if args.json:
        console.document({"removed": removed, "staged_dropped": dropped, "staged_kept": kept})
    else:
        console.say("\n".join([*removed, *dropped]) or "nothing to remove")
    return 0
