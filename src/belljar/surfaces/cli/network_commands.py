"""`belljar network explain`"""

from __future__ import annotations

from argparse import Namespace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import anyio

from belljar.surfaces.cli import console

if TYPE_CHECKING:
    from belljar.network.presets import Found


async def _with_image(presets: list[str], image: str) -> list[tuple[str, Found]]:
    """Ask the image's clients too, in a sandbox as a session with that image would have it."""
    from belljar import Session
    from belljar.session.network_door import explained

    with TemporaryDirectory(prefix="belljar-explain-") as nothing:
        async with Session(nothing, image=image) as box:
            return [(preset, each) for preset in presets for each in await explained(preset, box.init_tools)]


def explain(args: Namespace) -> int:
    from belljar.network.presets import explain as found_for

    if args.image:
        found = anyio.run(_with_image, args.presets, args.image)
    else:
        found = [(preset, each) for preset in args.presets for each in found_for(preset)]
    facts = [{"preset": preset, "host": each.host, "why": each.why} for preset, each in found]
    return console.answer_table(args, facts, (tuple(each.values()) for each in facts), "PRESET", "HOST", "WHY")
