"""Builds an image from a Dockerfile: by Docker or Podman, or for the engine `oci` by buildah. Blocking.

The digest of all files that the build may see, and of its arguments, is a label of the image. So the same build is not
made twice, here or where the image was imported, and a CI system can call its cache by it.
"""

from __future__ import annotations

import hashlib
import json
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from belljar.errors import UsageError
from belljar.images import build_times, catalog, context
from belljar.images.context import Context
from belljar.images.image_store import ImageStore, Others, Recipe, no_others
from belljar.images.progress import Progress, quiet, repeating
from belljar.images.store import normal_name
from belljar.patterns import lazy_pattern
from belljar.records import record

LABEL = "org.belljar.build"
OURS = "belljar/"
_DIGITS = 24
_FROM = lazy_pattern(
    r"^[ \t]*FROM[ \t]+(?:--\S+[ \t]+)*(\S+)(?:[ \t]+AS[ \t]+(\S+))?",
    re.IGNORECASE | re.MULTILINE,
)
_WORD = "[a-z0-9]+(?:(?:[.]|__?|-+)[a-z0-9]+)*"
_REFERENCE = lazy_pattern(
    rf"(?:(?:localhost|[\w-]+(?:[.][\w-]+)+|[\w-]+(?=:))(?::[0-9]+)?/)?{_WORD}(?:/{_WORD})*(?::\w[\w.-]{{0,127}})?(?:@sha256:[0-9a-f]{{64}})?",
    re.ASCII,
)
"""An image's name. What else stands there comes from a stranger, and engines are not asked for it."""
_OWN_NAME = lazy_pattern(r"belljar/([a-z]+)(?::latest)?")


@record
class Order:
    """What is to be built."""

    name: str
    dockerfile: Path
    context: Path
    arguments: Mapping[str, str]


@record
class Planned:
    """A build that could begin."""

    name: str
    context: Context
    arguments: Mapping[str, str]
    parents: tuple[str, ...]
    """The images that it begins with, as far as the Dockerfile names them."""

    @property
    def digest(self) -> str:
        made_of = [self.context.digest, self.context.dockerfile, {**self.arguments}]
        text = json.dumps(made_of, sort_keys=True).encode()
        return hashlib.sha256(text).hexdigest()[:_DIGITS]

    def described(self, store: ImageStore) -> str:
        """What is known before it begins."""
        files = f"{self.context.files} files, {megabytes(self.context.size)}"
        begins = ", ".join(_sized(store, each) for each in self.parents)
        return (
            f"{self.name} from {self.context.dockerfile}: {files}"
            f"{f'; on {begins}' if begins else ''}{build_times.last(self.name)}"
        )


@contextmanager
def planned(order: Order) -> Iterator[Planned]:
    name = normal_name(order.name)
    if name.startswith(OURS):
        raise UsageError(f"{order.name!r}: names in {OURS} are Belljar's own")
    with tempfile.TemporaryDirectory(prefix="belljar-build-") as directory:
        tar = Path(directory, "context.tar")
        found = context.write(order.context, order.dockerfile, tar)
        yield Planned(name, found, order.arguments, _parents(found.text))


def is_built(store: ImageStore, plan: Planned) -> bool:
    return any(
        plan.name in found.names and found.labels.get(LABEL) == plan.digest
        for found in store.image_list(LABEL)
    )


def build(
    store: ImageStore,
    plan: Planned,
    progress: Progress = quiet,
    others: Others = no_others,
) -> None:
    """Says first what is known of it. Ours, which a Dockerfile may begin with, are made if they are missing."""
    for each in plan.parents:
        if (ours := _OWN_NAME.fullmatch(each)) and ours[1] in catalog.PARENTS:
            catalog.build(store, ours[1], progress, others=others)
    began = time.monotonic()
    with open(plan.context.tar, "rb") as tar, repeating(progress) as report:
        report(0.0, f"building {plan.described(store)}")
        recipe = Recipe(
            plan.name, tar, plan.context.dockerfile, dict(plan.arguments),
            {LABEL: plan.digest}, plan.parents,
        )  # fmt: skip
        store.image_build(recipe, lambda line: catalog.report_step(line, report))
    build_times.note(plan.name, time.monotonic() - began, store.image_size(plan.name))
    progress(1.0, f"{plan.name} is ready")


def megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _sized(store: ImageStore, name: str) -> str:
    size = store.image_size(name)
    return f"{name} ({'not here yet' if size is None else megabytes(size)})"


def _parents(dockerfile: str) -> tuple[str, ...]:
    """Without earlier stages, and names that an argument or the next line decides."""
    stages = {"scratch"}
    found: dict[str, None] = {}
    for match in _FROM.finditer(dockerfile):
        if match[1].lower() not in stages and _REFERENCE.fullmatch(match[1]):
            found[match[1]] = None
        if match[2]:
            stages.add(match[2].lower())
    return tuple(found)
