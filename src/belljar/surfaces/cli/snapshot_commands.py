"""`belljar snapshots make|list|remove`. What begins with one says `--snapshot NAME`."""

from __future__ import annotations

import time
from argparse import Namespace

from belljar import host
from belljar.session import snapshot
from belljar.session.session import Session
from belljar.surfaces.cli import console, names


async def make(args: Namespace) -> int:
    async with await Session.attach(
        names.session(args.session), policy="default"
    ) as box:  # nothing will be judged
        made = await box.snapshot(args.name, workspace=args.whole, replace=args.replace)
    if made.left_out:
        console.note(f"not in it: {', '.join(made.left_out)}")
    return console.answer(args, made.as_dict(), made.name)


def listing(args: Namespace) -> int:
    if (far := host.far_of(None)) is not None:
        return _listing_there(args, far)
    found = snapshot.listed(host.default())
    rows = [
        (s.name, s.image, s.engine, _when(s.created), _size(s.size), s.workspace)
        for s in found
    ]
    shown = [each.as_dict() for each in found]
    return console.answer_table(
        args, shown, rows, "NAME", "IMAGE", "ENGINE", "MADE", "SIZE", "WORKSPACE"
    )


def _listing_there(args: Namespace, far: host.FarHost) -> int:
    found = [*reversed(far.portal().call(far.items, "snapshots"))]
    rows = [
        (s["name"], s["image"], _when(s["created"]), _size(s["size"])) for s in found
    ]
    return console.answer_table(args, found, rows, "NAME", "IMAGE", "MADE", "SIZE")


def remove(args: Namespace) -> int:
    far = host.far_of(None)
    for name in args.names:
        if far is not None:
            far.portal().call(far.drop_snapshot, name)
        else:
            snapshot.remove(host.default(), name)
    return console.answer(args, {"removed": args.names})


def _size(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _when(seconds: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(seconds))
