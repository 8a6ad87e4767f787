"""The command line as a separate process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from belljar import engines
from belljar.engines.base import image_store
from belljar.images import catalog

from .core import timed
from .table import Row, ms, p50

BELLJAR = str(Path(sys.executable).with_name("belljar"))


def quietly(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)


async def rows(workspace: Path) -> list[Row]:
    engine = engines.connect()
    image = catalog.ensure(image_store(engine), "base")
    helps, ours, theirs = [], [], []
    for _ in range(10):
        helps.append(timed(lambda: quietly(BELLJAR, "--help")))
        ours.append(timed(lambda: quietly(BELLJAR, "run", "--workspace", str(workspace), "--", "true")))
        theirs.append(timed(lambda: quietly("docker", "run", "--rm", "--network", "none", image, "true")))
    ratio = p50(ours) / p50(theirs)
    return [
        Row("belljar --help, p50", ms(p50(helps)), "", "", "<= 150 ms", p50(helps) <= 0.150),
        Row(
            "belljar run -- true, p50",
            ms(p50(ours)),
            f"docker run {ms(p50(theirs))}",
            f"{ratio:.2f}",
            "<= 1.2",
            ratio <= 1.2,
        ),
    ]
