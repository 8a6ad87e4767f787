"""The image of `belljar serve` for a cluster: this checkout and what its extras need, on the base image.

Everything comes from the running environment, so no registry is asked. The nodes get it as an archive, as all images.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement

from belljar import __version__, resources
from belljar.images import catalog

NAME = f"belljar/serve:{__version__}"
CHECKOUT = Path(__file__).resolve().parents[2]
EXTRAS = {"serve", "kubernetes"}
PARTS = ("src/belljar", "policies", "sandbox-images")
RECIPE = f"""
FROM {catalog.reference("base")}
COPY packages /opt/belljar/packages
COPY checkout /opt/belljar
COPY programs belljar /usr/local/bin/
ENV PYTHONPATH=/opt/belljar/src:/opt/belljar/packages
"""
PROGRAM = """#!/usr/bin/python3
from belljar.surfaces.cli.main import main
raise SystemExit(main())
"""


def make() -> str:
    with tempfile.TemporaryDirectory(prefix="bjk-image-", dir="/var/tmp") as place:
        context = Path(place)
        for each in needed("belljar-sandbox", EXTRAS):
            _copy(each, context / "packages")
        for part in PARTS:
            source, target = CHECKOUT / part, context / "checkout" / part
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(source, target, ignore=ignored)
        own = context / "checkout/src/belljar/_init"
        own.mkdir()
        shutil.copy(resources.init_binary(), own)
        (context / "belljar").write_text(PROGRAM)
        (context / "belljar").chmod(0o755)
        (context / "Dockerfile").write_text(RECIPE)
        built = ["docker", "build", "-q", "-t", NAME, place]
        subprocess.run(built, check=True, capture_output=True)
    return NAME


def needed(name: str, extras: set[str]) -> list[Distribution]:
    """The distributions that this one needs with its extras, without itself."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(name, extras)]
    while waiting:
        wanted, more = waiting.pop()
        try:
            there = distribution(wanted)
        except PackageNotFoundError:  # for another platform or Python
            continue
        found[there.name] = there
        for extra in more | {""}:
            if (there.name, extra) in seen:
                continue
            seen.add((there.name, extra))
            waiting += _required(there, extra)
    del found[distribution(name).name]
    return list(found.values())


def _required(there: Distribution, extra: str) -> Iterator[tuple[str, set[str]]]:
    for line in there.requires or ():
        asked = Requirement(line)
        without = asked.marker is None or asked.marker.evaluate({"extra": ""})
        wanted = asked.marker is None or asked.marker.evaluate({"extra": extra})
        if wanted and (not extra or not without):
            yield asked.name, set(asked.extras)


def _copy(package: Distribution, target: Path) -> None:
    for file in package.files or ():
        source = Path(str(package.locate_file(file)))
        outside = ".." in file.parts
        # Of the programs only those that need no Python of that environment: shfmt, which parses commands.
        if not source.is_file() or file.suffix == ".pyc":
            continue
        if outside and source.read_bytes()[:4] != b"\x7fELF":
            continue
        place = target.with_name("programs") / file.name if outside else target / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, place)
