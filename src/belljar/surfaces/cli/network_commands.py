"""The network door on the command line: what its options mean, and `network explain`."""

from __future__ import annotations

from argparse import Namespace
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import anyio

from belljar.errors import UsageError
from belljar.surfaces.cli import console

if TYPE_CHECKING:
    from belljar.engines.spec import Network
    from belljar.network.allow import Allow
    from belljar.network.presets import Found


def network_of(args: Namespace) -> Network | Allow:
    """What `--network`, `--allow`, `--allow-preset` and `--ask-hosts` mean together."""
    asked: Any = args.network
    if not (args.allow or args.allow_preset or args.ask_hosts):
        return asked  # type: ignore[no-any-return]
    if asked != "none":
        raise UsageError("--network full lets everything through: leave out --allow, --allow-preset and --ask-hosts")
    from belljar.network.allow import Allow

    return Allow(*args.allow, presets=args.allow_preset, ask_hosts=args.ask_hosts)


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
    if args.json:
        console.document([{"preset": preset, "host": each.host, "why": each.why} for preset, each in found])
    else:
        console.table([(preset, each.host, each.why) for preset, each in found], "PRESET", "HOST", "WHY")
    return 0
