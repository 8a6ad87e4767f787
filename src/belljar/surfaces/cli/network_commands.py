"""`belljar network explain`"""

from __future__ import annotations

from argparse import Namespace
from tempfile import TemporaryDirectory

import anyio

from belljar import Session
from belljar.network import presets
from belljar.session.network_door import explained
from belljar.surfaces.cli import console


async def _with_image(names: list[str], image: str) -> list[tuple[str, presets.PresetHost]]:
    """Also ask the image's package managers, in a sandbox with that image."""
    with TemporaryDirectory(prefix="belljar-explain-") as empty:
        async with Session(empty, image=image) as box:
            return [(name, host) for name in names for host in await explained(name, box.init_tools)]


def explain(args: Namespace) -> int:
    if args.image:
        hosts = anyio.run(_with_image, args.presets, args.image)
    else:
        hosts = [(name, host) for name in args.presets for host in presets.explain(name)]
    facts = [{"preset": preset, "host": host.host, "why": host.why} for preset, host in hosts]
    return console.answer_table(args, facts, (tuple(row.values()) for row in facts), "PRESET", "HOST", "WHY")
