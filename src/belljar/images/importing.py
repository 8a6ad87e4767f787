"""Imports images into the store: unpacks them, checks their digests, then names them. Blocking."""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, cast

from belljar import environment
from belljar.errors import ImageInvalid, ImageMissing, UsageError
from belljar.images.archive import Layer, Plan, plans, root_plan
from belljar.images.compression import copy, is_compressed, plain
from belljar.images.progress import Progress, quiet
from belljar.images.store import LayeredImage, Store, normal_name
from belljar.images.unpack import Allowance, Metered, check_room
from belljar.images.unpack_mapped import unpack_for_caller
from belljar.patterns import lazy_pattern

OURS = "belljar/"
WATCH_SECONDS = 0.25
"""How often the disk is checked while skopeo fills it: at 400 MB/s, a tenth of the space that must stay free."""
_LIKE_AN_ID = lazy_pattern(r"[0-9a-f]{12,}:latest")
_TRANSPORT = lazy_pattern(
    r"(docker|docker-archive|docker-daemon|oci|oci-archive|containers-storage):.+"
)


def import_images(
    store: Store,
    source: str,
    name: str | None = None,
    progress: Progress = quiet,
    id: str | None = None,
    labels: Mapping[str, str] | None = None,
) -> list[LayeredImage]:
    """Import every image of a file or directory; `name` replaces the names in the archive.

    With `id`, which `belljar images export` prints, any other image is refused; so is one without these `labels`.

    `docker://debian:12` and skopeo's other transports are fetched with skopeo first. So is a plain `debian:12`, if
    there is no such file.
    """
    chosen = [normal_name(name)] if name else []
    if not Path(source).exists() and _is_name(source):
        source = f"docker://{source}"
    with store.adding() as work:
        if _TRANSPORT.fullmatch(source):
            path = _fetched(source, work, progress)
            chosen = chosen or _names([source.rpartition("//")[2]])
        else:
            path = _readable(Path(source), work)
        found = plans(path)
        if chosen and len(found) > 1:
            raise UsageError(
                f"{source} holds {len(found)} images; --name works for one image only"
            )
        for plan in found:
            _check(plan, id, labels or {})
        importer = _Importer(store, work, progress)
        return [
            importer.add(plan, chosen or _names(list(plan.names)) or [_stem(source)])
            for plan in found
        ]


def _check(plan: Plan, id: str | None, labels: Mapping[str, str]) -> None:
    if id is not None and plan.id != id.removeprefix("sha256:"):
        raise ImageInvalid(
            f"the archive holds another image: {plan.id or 'without id'}"
        )
    found = plan.labels or {}
    if wrong := [name for name, value in labels.items() if found.get(name) != value]:
        raise ImageInvalid(
            f"the archive's image was built from another recipe than today's (its label {wrong[0]}): build it anew"
        )


def import_root(
    store: Store, tar: Path, names: list[str], labels: Mapping[str, str]
) -> LayeredImage:
    """Import the tar of a root file system that we made ourselves."""
    with store.adding() as work:
        return _Importer(store, work, quiet).add(root_plan(tar, labels), names)


def import_shared(store: Store, archive: Path, name: str) -> LayeredImage:
    """Import the one image that another engine of this machine saved, with a name of ours."""
    with store.adding() as work:
        (plan,) = plans(archive)
        return _Importer(store, work, quiet).add(plan, [name])


class _Importer:
    def __init__(self, store: Store, work: Path, progress: Progress) -> None:
        self._store = store
        self._work = work
        self._progress = progress
        self._allowance = Allowance()

    def add(self, plan: Plan, names: list[str]) -> LayeredImage:
        digests = []
        for number, layer in enumerate(plan.layers):
            self._progress(
                number / len(plan.layers), f"layer {number + 1} of {len(plan.layers)}"
            )
            known = layer.diff_id is not None and self._store.has_layer(layer.diff_id)
            digests.append(cast("str", layer.diff_id) if known else self._layer(layer))
        labels = dict(plan.labels or {})
        id = (
            plan.id
            or hashlib.sha256(
                json.dumps([digests, labels], sort_keys=True).encode()
            ).hexdigest()
        )
        image = LayeredImage(
            id, tuple(digests), 0, round(time.time(), 3), plan.env, plan.volumes, labels
        )
        return self._store.add_image(self._work, image, names)

    def _layer(self, layer: Layer) -> str:
        made = Path(tempfile.mkdtemp(dir=self._work, prefix="layer-"))
        (made / "root").mkdir(mode=0o755)
        before = self._allowance.bytes
        with closing(layer.open()) as stream:
            stored = Metered(stream, before, hashed=layer.digest is not None)
            stored.in_header = False
            with plain(cast("IO[bytes]", stored), self._work) as content:
                metered = Metered(content, 2 * before)
                unpack_for_caller(metered, made / "root", self._allowance)
                found = metered.drain()
            if layer.digest is not None and stored.drain() != layer.digest:
                raise ImageInvalid(
                    "a layer is damaged: its digest is not the one in its manifest"
                )
        if layer.diff_id is not None and found != layer.diff_id:
            raise ImageInvalid(
                "a layer is damaged: its digest is not the one in the image's configuration"
            )
        self._store.add_layer(made, found, before - self._allowance.bytes)
        return found


def _readable(path: Path, work: Path) -> Path:
    """The path itself, or the path of an uncompressed copy."""
    if not path.is_dir() and not path.is_file():
        raise UsageError(f"{path} is neither a file nor a directory")
    if path.is_dir() or not is_compressed(path):
        return path
    unpacked = work / "archive.tar"
    with open(path, "rb") as file, plain(file, work) as content:
        stream = Metered(content, Allowance().bytes, hashed=False)
        stream.in_header = False
        copy(stream, unpacked)
    return unpacked


def _fetched(source: str, work: Path, progress: Progress) -> Path:
    program = shutil.which("skopeo")
    if program is None:
        raise ImageMissing(
            f"fetching {source} needs skopeo: install it, or import an archive from `docker save`"
        )
    progress(None, f"fetching {source}")
    target = work / "fetched"
    command = [program, "copy", "--quiet", source, f"oci:{target}:fetched"]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment.for_program(TMPDIR=str(work)),
    ) as process:
        errors = _wait_and_watch_disk(process, work)
    if process.returncode:
        raise ImageMissing(f"skopeo could not fetch {source}: {errors.strip()[-300:]}")
    return target


def _wait_and_watch_disk(process: subprocess.Popen[str], work: Path) -> str:
    """Returns the program's stderr. Kills it before what a registry sends fills the disk."""
    try:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.communicate(timeout=WATCH_SECONDS)[1]
            check_room(work)
    finally:
        process.kill()


def _names(names: list[str]) -> list[str]:
    """The valid ones, without those that could replace an image of ours or look like an id."""
    valid = []
    for name in names:
        with suppress(UsageError):
            valid.append(normal_name(name))
    return [
        name
        for name in valid
        if not name.startswith(OURS) and not _LIKE_AN_ID.fullmatch(name)
    ]


def _is_name(source: str) -> bool:
    try:
        return not source.endswith((".tar", ".gz", ".tgz", ".xz", ".zst")) and bool(
            normal_name(source)
        )
    except UsageError:
        return False


def _stem(source: str) -> str:
    stem = Path(source).name.lower().split(".tar")[0]
    return normal_name(re.sub(r"[^a-z0-9]+", "-", stem).strip("-") or "imported")
