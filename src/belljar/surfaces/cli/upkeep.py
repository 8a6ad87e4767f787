"""`belljar images`, `doctor` and `prune`"""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime

from belljar import engines
from belljar.images import catalog
from belljar.sandbox import reaper
from belljar.surfaces.cli import console


def listing(args: Namespace) -> int:
    found = catalog.listing(engines.connect())
    if args.json:
        console.document([image.as_dict() for image in found])
        return 0
    rows = [
        (
            image.name,
            image.reference,
            f"{image.size / 1e6:.0f} MB",
            datetime.fromtimestamp(image.created, UTC).date(),
            "current" if image.current else "old recipe",
        )
        for image in found
    ]
    console.table(rows, "NAME", "IMAGE", "SIZE", "BUILT", "RECIPE")
    return 0


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


def prune(args: Namespace) -> int:
    removed = reaper.reap(engines.connect())
    if args.json:
        console.document({"removed": removed})
    else:
        console.say("\n".join(removed) if removed else "nothing to remove")
    return 0
