"""The image that brings the init into a Pod: one file, from which an init container copies itself.

It is written here as an archive that `docker load`, `ctr images import`, `crane push` and `skopeo copy` take. Its tag
is a digest of the binary, so another release never meets an init of another version.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from pathlib import Path

from belljar import resources

NAME = "belljar/init"
USER = "65532:65532"
"""Not the user of any sandbox: the copy belongs to this one, and nobody else may read it."""
PROGRAM = "/init"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def reference(prefix: str, machine: str = "x86_64") -> str:
    digest = hashlib.sha256(resources.init_binary(machine).read_bytes()).hexdigest()[
        :16
    ]
    return f"{prefix}{NAME}:{digest}"


def write(target: Path, reference: str, machine: str = "x86_64") -> None:
    binary = resources.init_binary(machine).read_bytes()
    target.write_bytes(
        docker_archive(
            reference, {PROGRAM.lstrip("/"): binary}, [PROGRAM], USER, machine
        )
    )


def docker_archive(
    reference: str,
    files: Mapping[str, bytes],
    entrypoint: list[str],
    user: str,
    machine: str = "x86_64",
) -> bytes:
    layer = _tar({name: (content, 0o755) for name, content in files.items()})
    digest = hashlib.sha256(layer).hexdigest()
    config = json.dumps(
        {
            "architecture": _ARCHITECTURES[machine],
            "os": "linux",
            "created": "1970-01-01T00:00:00Z",
            "config": {"Entrypoint": entrypoint, "User": user},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}"]},
            "history": [{"created": "1970-01-01T00:00:00Z"}],
        }
    ).encode()
    id = hashlib.sha256(config).hexdigest()
    manifest = [
        {
            "Config": f"{id}.json",
            "RepoTags": [reference],
            "Layers": [f"{digest}/layer.tar"],
        }
    ]
    parts = {
        f"{id}.json": config,
        f"{digest}/layer.tar": layer,
        "manifest.json": json.dumps(manifest).encode(),
    }
    return _tar({name: (content, 0o644) for name, content in parts.items()})


def _tar(files: Mapping[str, tuple[bytes, int]]) -> bytes:
    """Always the same bytes for the same files."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, (content, mode) in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return archive.getvalue()
