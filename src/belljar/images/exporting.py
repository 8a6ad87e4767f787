"""Writes an image of the store as one archive that any machine can import, and any engine load. Blocking.

The same image gives the same bytes: layers are packed by `pack`, documents have sorted keys, and nothing in the archive
has a date but the image's own files. So its id, the digest of the configuration, which holds the digests of the
layers, stands for all of it; `belljar images import --id` checks that.

    oci-layout, index.json     for tools that read OCI layouts
    manifest.json              for `docker load`
    blobs/sha256/<digest>      configuration, manifest, layers (not compressed: caches do that themselves)
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from belljar.errors import UsageError
from belljar.images import archive
from belljar.images.pack import pack_for_caller
from belljar.images.progress import Progress, quiet
from belljar.images.store import LayeredImage, Store
from belljar.records import record

_OCI = "application/vnd.oci.image"


@record
class Exported:
    id: str
    """The digest of its configuration."""
    size: int
    """Of the archive, in bytes."""


@record
class _Blob:
    digest: str
    content: bytes | Path

    @property
    def name(self) -> str:
        return f"blobs/sha256/{self.digest}"

    @property
    def size(self) -> int:
        if isinstance(self.content, Path):
            return self.content.stat().st_size
        return len(self.content)

    def described(self, kind: str) -> dict[str, Any]:
        return {
            "mediaType": f"{_OCI}.{kind}",
            "digest": f"sha256:{self.digest}",
            "size": self.size,
        }


def export_image(
    store: Store,
    image: LayeredImage,
    target: Path,
    names: Sequence[str] = (),
    progress: Progress = quiet,
) -> Exported:
    """Write the archive to `target`, which is replaced only by a whole one. `names`: those that the archive gives it."""
    with store.adding() as work:
        layers = []
        for number, tree in enumerate(reversed(store.layer_directories(image))):
            share = number / len(image.layers)
            progress(share, f"packing layer {number + 1} of {len(image.layers)}")
            tar = work / f"{number}.tar"
            layers.append(_Blob(pack_for_caller(tree, tar), tar))
        config = _document(_configuration(image, [each.digest for each in layers]))
        partial = target.with_name(f".{target.name}.{os.urandom(8).hex()}")
        try:
            _write(partial, config, layers, names)
            partial.replace(target)
        except OSError as error:
            raise UsageError(f"{target} cannot be written: {error.strerror}") from error
        finally:
            partial.unlink(missing_ok=True)
    progress(1.0, f"{target} is written")
    return Exported(config.digest, target.stat().st_size)


def _configuration(image: LayeredImage, layers: Sequence[str]) -> dict[str, Any]:
    return {
        "architecture": archive.machine(),
        "os": "linux",
        "config": {
            "Env": list(image.env),
            "Volumes": {each: {} for each in image.volumes},
            "Labels": dict(image.labels),
            "WorkingDir": "/workspace",
            "Cmd": ["bash"],
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{each}" for each in layers]},
    }


def _write(
    target: Path, config: _Blob, layers: Sequence[_Blob], names: Sequence[str]
) -> None:
    manifest = _document(
        {
            "schemaVersion": 2,
            "mediaType": f"{_OCI}.manifest.v1+json",
            "config": config.described("config.v1+json"),
            "layers": [each.described("layer.v1.tar") for each in layers],
        }
    )
    entry = manifest.described("manifest.v1+json")
    if names:
        entry["annotations"] = {"io.containerd.image.name": names[0]}
    index = {"schemaVersion": 2, "manifests": [entry]}
    loaded = {
        "Config": config.name,
        "RepoTags": list(names),
        "Layers": [each.name for each in layers],
    }
    files: dict[str, bytes | Path] = {
        "oci-layout": _json({"imageLayoutVersion": "1.0.0"}),
        "index.json": _json(index),
        "manifest.json": _json([loaded]),
    }
    files |= {each.name: each.content for each in (config, manifest, *layers)}
    """`target` must be new: in a directory that others write to, a link may be there."""
    with tarfile.open(target, "x", format=tarfile.PAX_FORMAT) as tar:
        for directory in ("blobs", "blobs/sha256"):
            made = tarfile.TarInfo(directory)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
        for name, content in files.items():
            _add(tar, name, content)


def _add(tar: tarfile.TarFile, name: str, content: bytes | Path) -> None:
    entry = tarfile.TarInfo(name)
    entry.mode = 0o644
    if isinstance(content, Path):
        entry.size = content.stat().st_size
        with open(content, "rb") as file:
            tar.addfile(entry, file)
    else:
        entry.size = len(content)
        tar.addfile(entry, io.BytesIO(content))


def _document(value: object) -> _Blob:
    data = _json(value)
    return _Blob(hashlib.sha256(data).hexdigest(), data)


def _json(value: object) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
