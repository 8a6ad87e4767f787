"""`belljar kubernetes`: what a cluster needs for Belljar."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

from belljar import host
from belljar.engines.kubernetes import init_image
from belljar.engines.kubernetes.manifests import Wanted, as_text, manifests, notes
from belljar.engines.kubernetes.settings import is_name
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
        agent_sandbox=args.agent_sandbox,
        pulled=tuple(args.pull),
    )
    objects = manifests(wanted, service=not args.no_service)
    text = notes(wanted) + as_text(objects).rstrip("\n")
    return console.answer(args, objects, text)


def print_pool(args: Namespace) -> int:
    from belljar.engines.kubernetes import agent_sandbox
    from belljar.engines.kubernetes.engine import KubernetesEngine
    from belljar.sandbox import launch

    _check_size("pool", args.size)
    if not is_name(args.name):
        raise UsageError(f"pool: {args.name!r} is not a name that Kubernetes takes")
    here = host.default()
    engine = here.connect()
    if not isinstance(engine, KubernetesEngine):
        raise UsageError(f"pool: {engine.name} has none; use --engine kubernetes")
    options = replace(options_of(args), changes="staged", lease=agent_sandbox.LEASE)
    spec = launch.plan(options, here)
    objects = agent_sandbox.objects(
        args.name, args.size, engine.api.namespace, spec, engine.settings
    )
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

    _check_size("warm", args.size)
    options = replace(options_of(args), changes="staged")
    anyio.run(keep_waiting, options, args.size, host.default(), console.note)
    return 0


def _check_size(command: str, size: int) -> None:
    if not 1 <= size <= MOST_WAITING:
        raise UsageError(f"{command}: {size} must be from 1 to {MOST_WAITING}")
