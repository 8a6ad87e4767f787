"""An exported image is the same bytes everywhere, and its id stands for all of them."""

from __future__ import annotations

import json
import os
import tarfile
from pathlib import Path

import pytest
from tests.images.archives import docker_save, member, tar
from tests.images.conftest import BASE, TOP

from belljar.errors import ImageInvalid, UsageError
from belljar.images import catalog
from belljar.images.exporting import export_image
from belljar.images.importing import import_images, import_root
from belljar.images.store import Store


@pytest.fixture
def exported(store: Store, tmp_path: Path) -> Path:
    saved = docker_save(tmp_path / "saved.tar", [BASE, TOP], ["tools:1"])
    (image,) = import_images(store, str(saved))
    export_image(store, image, tmp_path / "out.tar", ["tools:1"])
    return tmp_path / "out.tar"


def test_an_image_that_was_imported_again_gives_the_same_bytes(
    exported: Path, tmp_path: Path
) -> None:
    other = Store(tmp_path / "other")
    (image,) = import_images(other, str(exported))
    assert image.names == ("tools:1",)
    assert (image.env, image.volumes) == (("A=1",), ("/data",))
    written = export_image(other, image, tmp_path / "again.tar", ["tools:1"])
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
    assert written.id == image.id


def test_the_id_holds_and_any_other_image_is_refused(
    exported: Path, tmp_path: Path
) -> None:
    other = Store(tmp_path / "other")
    with tarfile.open(exported) as archive:
        blob = archive.extractfile("index.json")
        assert blob is not None
        assert json.load(blob)["manifests"][0]["size"] > 0
    with pytest.raises(ImageInvalid, match="another image"):
        import_images(other, str(exported), id="sha256:" + "0" * 64)
    assert other.images() == []
    (image,) = import_images(other, str(exported))
    import_images(other, str(exported), id=f"sha256:{image.id}")


@pytest.mark.parametrize("marker", [b"top", b'"A=1"'])
def test_an_archive_with_a_changed_byte_is_refused(
    exported: Path, tmp_path: Path, marker: bytes
) -> None:
    data = bytearray(exported.read_bytes())
    at = data.index(marker)
    data[at + 1] ^= 1
    exported.write_bytes(data)
    other = Store(tmp_path / "other")
    with pytest.raises(ImageInvalid, match="damaged"):
        import_images(other, str(exported))
    assert other.images() == []


def test_what_cannot_be_written_leaves_nothing(store: Store, tmp_path: Path) -> None:
    saved = docker_save(tmp_path / "saved.tar", [BASE], ["tools:1"])
    (image,) = import_images(store, str(saved))
    (tmp_path / "there").mkdir()
    with pytest.raises(UsageError, match="cannot be written"):
        export_image(store, image, tmp_path / "there")
    with pytest.raises(UsageError, match="cannot be written"):
        export_image(store, image, tmp_path / "missing/out.tar")
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "saved.tar",
        "store",
        "there",
    ]


def test_a_name_of_ours_is_given_only_to_today_s_recipe(
    store: Store, tmp_path: Path
) -> None:
    root = tmp_path / "root.tar"
    root.write_bytes(tar([member("file", b"x")]))
    today = catalog.labels("base")
    old = {**today, catalog.RECIPE_LABEL: "0" * 12}
    for labels, name in ((old, "old"), (today, "new")):
        image = import_root(store, root, [f"{name}:1"], labels)
        export_image(store, image, tmp_path / f"{name}.tar", [f"{name}:1"])
    other = Store(tmp_path / "other")
    wanted = catalog.reference("base")
    with pytest.raises(ImageInvalid, match="another recipe than today's"):
        import_images(other, str(tmp_path / "old.tar"), wanted, labels=today)
    assert other.images() == []
    (image,) = import_images(other, str(tmp_path / "new.tar"), wanted, labels=today)
    assert image.names == (wanted,)


def test_links_that_wait_for_the_unfinished_archive_lead_nowhere(
    exported: Path, tmp_path: Path
) -> None:
    """The directory may be a workspace, where commands plant what they like."""
    other, victim = Store(tmp_path / "other"), tmp_path / "victim"
    (image,) = import_images(other, str(exported))
    victim.write_text("mine")
    (tmp_path / f".again.tar.{os.getpid()}").symlink_to(victim)
    export_image(other, image, tmp_path / "again.tar", ["tools:1"])
    assert victim.read_text() == "mine"
    assert (tmp_path / "again.tar").read_bytes() == exported.read_bytes()
