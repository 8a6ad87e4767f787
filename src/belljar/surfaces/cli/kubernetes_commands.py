"""`belljar kubernetes`: what a cluster needs for Belljar."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from belljar import host
from belljar.engines.kubernetes import init_image
from belljar.engines.kubernetes.manifests import Wanted, as_text, manifests
from belljar.errors import UsageError
from belljar.surfaces.cli import console
from belljar.surfaces.cli.arguments import options_of

MOST_WAITING = 1000


def print_manifests(args: Namespace) -> int:
    wanted = Wanted(
        namespace=args.namespace,
        images=args.images,
        sandboxes=args.sandboxes,
        runtime_class=args.runtime or "",
        url=args.public_url,
    )
    objects = manifests(wanted, service=not args.no_service)
    return console.answer(args, objects, as_text(objects).rstrip("\n"))


def write_image(args: Namespace) -> int:
    reference = init_image.reference(args.images, args.machine)
    init_image.write(Path(args.file), reference, args.machine)
    note = f"{reference} is in {args.file}: `docker load -i {args.file} && docker push {reference}`"
    return console.answer(args, {"image": reference, "file": args.file}, note)


def keep_warm(args: Namespace) -> int:
    """Until it is interrupted; what waits then waits on, until its lease ends."""
    import anyio

    from belljar.sandbox.keep_waiting import keep_waiting

    if not 1 <= args.size <= MOST_WAITING:
        raise UsageError(f"warm: {args.size} must be from 1 to {MOST_WAITING}")
    options = replace(options_of(args), changes="staged")
    anyio.run(keep_waiting, options, args.size, host.default(), console.note)
    return 0
