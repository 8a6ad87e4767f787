"""What one engine of a machine has, the others find."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.images.archives import docker_save, member, tar
from tests.images.conftest import BASE

from belljar.engines.docker.engine import DockerEngine
from belljar.engines.oci.images import OciImages
from belljar.errors import ImageMissing
from belljar.images import catalog, sharing
from belljar.images.importing import import_images
from belljar.images.store import Store

NAME = f"shared{os.getpid()}:1"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "images").mkdir(mode=0o700)
    monkeypatch.setenv("BELLJAR_IMAGES", str(tmp_path / "images"))
    return Store()


@pytest.fixture
def docker(engine: DockerEngine, docker_client: Any) -> Iterator[DockerEngine]:
    before = {image.id for image in docker_client.images.list(sharing.COPIES)}
    yield engine
    ours = docker_client.images.list(NAME.partition(":")[0])
    for image in [*ours, *docker_client.images.list(sharing.COPIES)]:
        if image.id not in before:
            docker_client.images.remove(image.id, force=True)


def load(docker: DockerEngine, tmp_path: Path, content: bytes) -> None:
    saved = tmp_path / "saved.tar"
    docker_save(saved, [tar([member("content", content)])], [NAME])
    docker.images.image_load(saved)


def read(store: Store, name: str) -> bytes:
    image = store.find(name)
    assert image is not None
    return (store.layer_directories(image)[0] / "content").read_bytes()


def test_an_image_of_docker_s_is_found_without_a_daemon_and_copied_once(
    store: Store, docker: DockerEngine, tmp_path: Path
) -> None:
    load(docker, tmp_path, b"first")
    oci = OciImages(store)
    copy = catalog.ensure(oci, NAME, others=lambda: [docker.images])
    assert read(store, copy) == b"first"
    (image,) = store.images()
    assert catalog.ensure(oci, NAME, others=lambda: [docker.images]) == copy
    assert store.images() == [image]


def test_a_name_that_was_given_to_another_image_leads_there(
    store: Store, docker: DockerEngine, tmp_path: Path
) -> None:
    oci = OciImages(store)
    load(docker, tmp_path, b"first")
    before = catalog.ensure(oci, NAME, others=lambda: [docker.images])
    load(docker, tmp_path, b"second")
    after = catalog.ensure(oci, NAME, others=lambda: [docker.images])
    assert (read(store, before), read(store, after)) == (b"first", b"second")


def test_docker_takes_what_was_imported_here(
    store: Store, docker: DockerEngine, tmp_path: Path
) -> None:
    content = member("content", os.urandom(8))
    saved = docker_save(tmp_path / "tools.tar", [BASE, tar([content])], [NAME])
    import_images(store, str(saved))
    copy = catalog.ensure(docker.images, NAME)
    found = docker.images.image(copy)
    assert found is not None
    assert found.env == ("A=1",)
    assert catalog.ensure(docker.images, NAME) == copy


def test_an_image_that_nobody_has_is_missing(
    store: Store, docker: DockerEngine
) -> None:
    with pytest.raises(ImageMissing, match="nobody/nothing"):
        catalog.ensure(
            OciImages(store), "nobody/nothing:1", others=lambda: [docker.images]
        )
    with pytest.raises(ImageMissing, match="docker pull nobody/nothing:1"):
        catalog.ensure(docker.images, "nobody/nothing:1")


def test_our_own_image_is_copied_not_built(
    store: Store, docker: DockerEngine, base_image: str, monkeypatch: Any
) -> None:
    monkeypatch.setattr(catalog, "_make", None)  # would build
    assert (
        catalog.ensure(OciImages(store), "base", others=lambda: [docker.images])
        == base_image
    )
    assert store.find("belljar/base:latest") is not None
