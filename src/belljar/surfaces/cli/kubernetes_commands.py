"""`belljar kubernetes`: what a cluster needs for Belljar."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from belljar.engines.kubernetes import init_image
from belljar.engines.kubernetes.manifests import Wanted, as_text, manifests
from belljar.surfaces.cli import console


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
