"""`belljar network explain`"""

from __future__ import annotations

from argparse import Namespace
from tempfile import TemporaryDirectory

import anyio

from belljar import Session
from belljar.network import presets
from belljar.session.network_door import explained
from belljar.surfaces.cli import console


async def _with_image(names: list[str], image: str) -> list[tuple[str, presets.Found]]:
    """Ask the image's clients too, in a sandbox as a session with that image would have it."""
    with TemporaryDirectory(prefix="belljar-explain-") as nothing:
        async with Session(nothing, image=image) as box:
            return [(name, each) for name in names for each in await explained(name, box.init_tools)]


def explain(args: Namespace) -> int:
    if args.image:
        found = anyio.run(_with_image, args.presets, args.image)
    else:
        found = [(name, each) for name in args.presets for each in presets.explain(name)]
    facts = [{"preset": preset, "host": each.host, "why": each.why} for preset, each in found]
    return console.answer_table(args, facts, (tuple(each.values()) for each in facts), "PRESET", "HOST", "WHY")
