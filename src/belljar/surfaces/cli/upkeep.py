"""`belljar doctor` and `belljar prune`"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict

from belljar import host as hosts
from belljar.doctor import examine
from belljar.engines.base import Engine
from belljar.sandbox import caches, reaper
from belljar.surfaces.cli import console, staged_remains


def doctor(args: Namespace) -> int:
    checks = examine()
    lines = []
    for check in checks:
        state = "FAIL" if not check.ok else "note" if check.fix else "ok  "
        lines += [f"{state}  {check.name}: {check.detail}", *([f"      → {check.fix}"] if check.fix else [])]
    console.answer(args, [*map(asdict, checks)], *lines)
    return 0 if all(check.ok for check in checks) else 1


def _engines_to_prune() -> list[Engine]:
    """The engine in use, and oci if it was ever used: it has no daemon that cleans up."""
    engine = hosts.default().connect()
    if not (hosts.default().state_root / "oci").is_dir():
        return [engine]
    oci = hosts.Host(engine="oci").connect()
    return [engine] if engine.identity == oci.identity else [engine, oci]


def prune(args: Namespace) -> int:
    removed = sorted({id for engine in _engines_to_prune() for id in reaper.reap(engine)})
    dropped, kept = staged_remains.prune(args)
    emptied = _caches(remove=args.caches)
    facts = {"removed": removed, "staged_dropped": dropped, "staged_kept": kept, "caches_removed": emptied}
    return console.answer(args, facts, *([*removed, *dropped, *emptied] or ["nothing to remove"]))


def _caches(*, remove: bool) -> list[str]:
    """Remove or list what `--cache` keeps. All of it can be downloaded again."""
    removed = []
    found = caches.kept(hosts.default().caches_root)
    for cache in found:
        description = f"cache {cache.name} of user {cache.owner}, {cache.bytes / 1e6:.0f} MB"
        if not remove:
            console.note(description)
        elif cache.remove():
            removed.append(description)
        else:
            console.note(f"{description}: a sandbox uses it")
    if found and not remove:
        console.note("these are kept; `belljar prune --caches` removes them")
    return removed
