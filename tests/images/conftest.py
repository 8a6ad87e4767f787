"""An image store, archives and recipes for one test."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.images.archives import directory, member, tar

from belljar import resources
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.docker.images import DockerImages
from belljar.images import catalog
from belljar.images.store import Store
from belljar.images.unpack import Allowance, Metered, unpack

BASE = tar([directory("etc"), member("etc/name", b"base"), member("etc/gone", b"x")])


TOP = tar([member("etc/name", b"top"), member("etc/.wh.gone")])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


def unpacked(tmp_path: Path, data: bytes, allowance: Allowance | None = None) -> Path:
    target = tmp_path / "layer"
    target.mkdir()
    unpack(Metered(io.BytesIO(data), 1 << 30), target, allowance or Allowance())
    return target


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the recipes, and a separate cache."""
    copy = tmp_path / "sandbox-images"
    shutil.copytree(resources.directory("sandbox-images"), copy)
    monkeypatch.setattr(catalog.resources, "directory", lambda name: copy)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    catalog.reference.cache_clear()
    yield copy
    catalog.reference.cache_clear()


class Registry(DockerImages):
    """The real engine, with a registry that answers or not."""

    answers = True
    asked = 0
    builds = 0

    def registry_has(self, reference: str) -> bool:
        self.asked += 1
        return self.answers

    def image_build(self, *args: Any, **options: Any) -> None:
        self.builds += 1
        super().image_build(*args, **options)


@pytest.fixture
def registry(engine: DockerEngine) -> Registry:
    return Registry(engine.client, engine.images.name_prefixes)


@pytest.fixture
def tiny(
    recipes: Path, base_image: str, monkeypatch: pytest.MonkeyPatch, docker_client: Any
) -> Iterator[str]:
    """A recipe on top of base that needs no network, with a name that no other run has."""
    name = f"tiny{os.getpid()}"
    (recipes / name).mkdir()
    (recipes / name / "packages").write_text("# none\n")
    (recipes / name / "Dockerfile").write_text(
        f"ARG FROM\nFROM ${{FROM}}\nCOPY {name}/packages /{name}\n"
    )
    monkeypatch.setitem(catalog.PARENTS, name, "base")
    yield name
    for image in docker_client.images.list(f"belljar/{name}"):
        docker_client.images.remove(image.id, force=True)


def disk_bytes(store: Store) -> int:
    """The size of all layers; images may share them."""
    return sum(store._layer_size(path.name) for path in store._layers.glob("*"))
