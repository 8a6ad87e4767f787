"""Makes valid and invalid image archives."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import platform
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

MACHINE = {"x86_64": "amd64", "aarch64": "arm64"}.get(
    platform.machine(), platform.machine()
)


def member(
    name: str, content: bytes = b"", **more: Any
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info, content


def directory(
    name: str, mode: int = 0o755, **more: Any
) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=tarfile.DIRTYPE, mode=mode, **more)


def link(
    name: str, target: str, kind: bytes = tarfile.SYMTYPE
) -> tuple[tarfile.TarInfo, bytes]:
    return member(name, type=kind, linkname=target)


def tar(members: Iterable[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for info, content in members:
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def pax(kind: bytes, key: str, value: str) -> bytes:
    """A PAX header with one record."""
    rest = f" {key}={value}\n".encode()
    length = len(rest) + len(str(len(rest) + 8))
    info, content = member(
        "pax", str(length).encode().rjust(length - len(rest), b"0") + rest, type=kind
    )
    return info.tobuf(tarfile.USTAR_FORMAT) + content + bytes(-len(content) % 512)


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def configuration(layers: list[bytes], **more: Any) -> bytes:
    document = {
        "architecture": MACHINE, "os": "linux", "config": {"Env": ["A=1"], "Volumes": {"/data": {}}},
        "rootfs": {"type": "layers", "diff_ids": [digest(layer) for layer in layers]},
    }  # fmt: skip
    return json.dumps({**document, **more}).encode()


def docker_save(path: Path, layers: list[bytes], names: list[str], **more: Any) -> Path:
    config = configuration(layers, **more)
    files = [
        member(f"{number}/layer.tar", layer) for number, layer in enumerate(layers)
    ]
    entry = {
        "Config": "config.json",
        "RepoTags": names,
        "Layers": [info.name for info, _ in files],
    }
    listing = member("manifest.json", json.dumps([entry]).encode())
    path.write_bytes(tar([*files, member("config.json", config), listing]))
    return path


def oci_layout(path: Path, layers: list[bytes], name: str = "tools:2") -> Path:
    """An OCI layout directory with compressed layers, as registries have them."""
    blobs = path / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def put(data: bytes, **more: Any) -> dict[str, Any]:
        (blobs / digest(data).removeprefix("sha256:")).write_bytes(data)
        return {"digest": digest(data), "size": len(data), **more}

    packed = [put(gzip.compress(layer)) for layer in layers]
    manifest = {
        "schemaVersion": 2,
        "config": put(configuration(layers)),
        "layers": packed,
    }
    platform = {"architecture": MACHINE, "os": "linux"}
    other = {
        "digest": digest(b"elsewhere"),
        "platform": {"architecture": "s390x", "os": "linux"},
    }
    index = {
        "manifests": [other, put(json.dumps(manifest).encode(), platform=platform)]
    }
    note = {"org.opencontainers.image.ref.name": name}
    (path / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (path / "index.json").write_text(
        json.dumps({"manifests": [put(json.dumps(index).encode(), annotations=note)]})
    )
    return path
