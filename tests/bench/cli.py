"""The command line as a separate process."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from belljar import engines
from belljar.engines.base import image_store
from belljar.images import catalog

from .core import timed
from .table import Row, ms, p50

SETTLED_SECONDS = 30.0
READY = 2  # sandboxes that wait
BELLJAR = str(Path(sys.executable).with_name("belljar"))


def quietly(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True, stdin=subprocess.DEVNULL)


def settle(run: Path) -> None:
    """Returns when the sandboxes wait that the server starts in the background, or after a while."""
    until = time.monotonic() + SETTLED_SECONDS
    while time.monotonic() < until:
        facts = [path.read_text() for path in run.glob("bj-*/session.json")]
        if sum('"waits": true' in each for each in facts) >= READY:
            return
        time.sleep(0.05)


def served(workspace: Path, image: str, engine: str) -> list[Row]:
    """With a local server: a sandbox waits for each command, or none does, since a named one is never started ahead.
    Only `oci` starts one quickly enough for the second goal."""
    with tempfile.TemporaryDirectory(prefix="bj-") as run:
        own = {"BELLJAR_RUN": run, "BELLJAR_ENGINE": engine}
        os.environ.update(own)
        belljar = (BELLJAR, "run", "--workspace", str(workspace))
        quietly(BELLJAR, "serve", "--local", "--detach")
        hits, misses, theirs = [], [], []
        try:
            quietly(*belljar, "--", "true")
            for number in range(10):
                misses.append(
                    timed(
                        lambda number=number: quietly(
                            *belljar, "--name", f"miss-{number}", "--", "true"
                        )
                    )
                )
                theirs.append(
                    timed(
                        lambda: quietly(
                            "docker", "run", "--rm", "--network", "none", image, "true"
                        )
                    )
                )
                settle(Path(run))
                hits.append(timed(lambda: quietly(*belljar, "--", "true")))
        finally:
            quietly(BELLJAR, "serve", "--stop")
            for name in own:
                del os.environ[name]
    baseline = f"docker run {ms(p50(theirs))}"
    return [
        Row(f"  with `belljar serve --local`, {what}, p50", ms(p50(times)), baseline, f"{p50(times) / p50(theirs):.3f}",
            f"<= {goal}" if goal else "", p50(times) <= goal * p50(theirs) if goal else None)
        for what, times, goal in (
            ("a sandbox waits", hits, 0.06),
            ("none waits", misses, 0.2 if engine == "oci" else None),
        )
    ]  # fmt: skip


async def rows(workspace: Path) -> list[Row]:
    engine = engines.connect()
    image = catalog.ensure(image_store(engine), "base")
    helps, ours, theirs = [], [], []
    for _ in range(10):
        helps.append(timed(lambda: quietly(BELLJAR, "--help")))
        ours.append(
            timed(
                lambda: quietly(
                    BELLJAR, "run", "--workspace", str(workspace), "--", "true"
                )
            )
        )
        theirs.append(
            timed(
                lambda: quietly(
                    "docker", "run", "--rm", "--network", "none", image, "true"
                )
            )
        )
    ratio = p50(ours) / p50(theirs)
    return [
        Row(
            "belljar --help, p50",
            ms(p50(helps)),
            "",
            "",
            "<= 150 ms",
            p50(helps) <= 0.150,
        ),
        Row(
            "belljar run -- true, p50",
            ms(p50(ours)),
            f"docker run {ms(p50(theirs))}",
            f"{ratio:.2f}",
            "<= 1.2",
            ratio <= 1.2,
        ),
        *served(workspace, image, "docker"),
    ]
