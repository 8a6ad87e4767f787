"""Upkeep: `belljar doctor`, `prune` and `network explain`."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from tempfile import TemporaryDirectory

import anyio

from belljar import Session
from belljar import host as hosts
from belljar.doctor import examine
from belljar.engines.base import Engine
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
