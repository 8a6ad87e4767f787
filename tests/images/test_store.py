"""The image store returns what was put in. A process that dies in the middle leaves nothing incomplete."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.images.archives import docker_save, member, tar
from tests.images.conftest import BASE, TOP, disk_bytes

from belljar.errors import ImageMissing, UsageError
from belljar.images.importing import import_images
from belljar.images.store import Store


def test_shared_layers_are_removed_with_their_last_image(
    store: Store, tmp_path: Path
) -> None:
    import_images(store, str(docker_save(tmp_path / "one.tar", [BASE], ["one"])))
    import_images(store, str(docker_save(tmp_path / "two.tar", [BASE, TOP], ["two"])))
    assert disk_bytes(store) == len("basextop")

    store.remove("two")
    assert disk_bytes(store) == len("basex")
    store.remove("one")

    assert store.images() == []
    assert list((store.root / "layers").iterdir()) == []


def test_removing_one_of_two_names_keeps_the_image(
    store: Store, tmp_path: Path
) -> None:
    [image] = import_images(
        store, str(docker_save(tmp_path / "one.tar", [BASE], ["one:1", "one:2"]))
    )

    store.remove("one:1")

    assert store.find("one:2") is not None
    assert store.find("one:1") is None
    assert store.find(image.id) is not None


def test_an_image_in_use_is_not_removed(store: Store, tmp_path: Path) -> None:
    [image] = import_images(
        store, str(docker_save(tmp_path / "one.tar", [BASE], ["one"]))
    )
    store.hold(image, "bj-1")

    with pytest.raises(UsageError, match="in use by bj-1"):
        store.remove("one")
    store.release("bj-1")
    store.remove("one")

    with pytest.raises(ImageMissing):
        store.hold(image, "bj-2")


def test_an_image_that_lost_its_name_is_pruned(store: Store, tmp_path: Path) -> None:
    import_images(store, str(docker_save(tmp_path / "one.tar", [BASE], ["one"])))
    [newer] = import_images(
        store, str(docker_save(tmp_path / "two.tar", [TOP], ["one"]))
    )

    pruned = store.prune()

    assert (len(pruned.images), pruned.layers, pruned.bytes) == (1, 1, len("basex"))
    assert [image.id for image in store.images()] == [newer.id]


def test_many_imports_at_once_store_one_layer(store: Store, tmp_path: Path) -> None:
    paths = [
        docker_save(tmp_path / f"{n}.tar", [BASE, TOP], [f"image-{n}"])
        for n in range(8)
    ]
    threads = [
        threading.Thread(target=import_images, args=[store, str(path)])
        for path in paths
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {name for image in store.images() for name in image.names} == {
        f"image-{n}:latest" for n in range(8)
    }
    assert len(list((store.root / "layers").iterdir())) == 2
    assert list((store.root / "work").iterdir()) == []


def test_imports_killed_anywhere_leave_the_store_whole(
    store: Store, tmp_path: Path
) -> None:
    """Each round kills an import a little later. Everything in the store is always complete."""
    many = tar([member(f"file-{n}", b"x" * 2000) for n in range(3000)])
    path = docker_save(tmp_path / "big.tar", [BASE, many, TOP], ["big"])
    code = f"from belljar.images.importing import *; import_images(Store(Path({str(store.root)!r})), {str(path)!r})"
    for delay in (0.0, 0.05, 0.1, 0.2, 0.3, 0.5):
        child = subprocess.Popen([sys.executable, "-c", code])
        while (
            not list((store.root / "work").glob("*/layer-*")) and child.poll() is None
        ):
            time.sleep(0.005)
        time.sleep(delay)
        child.send_signal(signal.SIGKILL)
        child.wait()
        for image in store.images():
            assert all(store.has_layer(digest) for digest in image.layers)
        for layer in (store.root / "layers").iterdir():
            assert (layer / "layer.json").is_file()
    deadline = time.monotonic() + 60
    while list((store.root / "work").iterdir()) and time.monotonic() < deadline:
        store.sweep()  # an ordinary user's import has a child that may outlive it for a moment
        time.sleep(0.05)
    assert list((store.root / "work").iterdir()) == []

    [image] = import_images(store, str(path))
    assert len(list(store.layer_directories(image)[1].iterdir())) == 3000


@pytest.mark.root
def test_another_user_s_store_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other user could replace a layer by a link to /, which would then be the sandbox's root."""
    monkeypatch.setenv("BELLJAR_IMAGES", str(tmp_path / "images"))
    assert Store().images() == []
    os.chown(tmp_path / "images", 1000, 1000)
    with pytest.raises(UsageError, match="BELLJAR_IMAGES"):
        Store()
