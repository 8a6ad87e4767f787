"""The image store of the engine `oci`, as the catalog sees it."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from belljar.engines.oci.images import OciImages
from belljar.images.store import Store

pytestmark = pytest.mark.root


@pytest.fixture
def images(tmp_path: Path) -> OciImages:
    return OciImages(Store(tmp_path / "images"))


def test_an_imported_root_is_found_listed_by_its_label_and_tagged(
    images: OciImages, tmp_path: Path
) -> None:
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo("etc"), None)
    images.image_import(tmp_path / "root.tar", "mine:1", cwd="/", labels={"of": "test"})
    images.image_tag("mine:1", "mine:2")
    found = images.image("mine:2")
    assert found is not None
    [listed] = images.image_list("of")
    assert listed.id == found.ref
    assert set(listed.names) == {"mine:1", "mine:2"}
    assert images.image_list("another") == []


def test_an_image_that_nobody_imported_is_none(images: OciImages) -> None:
    assert images.image("nobody:1") is None


def test_no_registry_is_asked(images: OciImages) -> None:
    assert not images.registry_has("debian:bookworm-slim")
