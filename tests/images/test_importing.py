"""Importing archives of all usual kinds: docker save, OCI layouts, root file systems."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest
from tests.images.archives import docker_save, member, oci_layout, tar
from tests.images.conftest import BASE, TOP, disk_bytes

from belljar.errors import ImageInvalid, ImageMissing, UsageError
from belljar.images import unpack
from belljar.images.importing import import_images, import_root
from belljar.images.store import LayeredImage, Store


def contents(store: Store, image: LayeredImage) -> dict[str, bytes]:
    top = store.layer_directories(image)[0]
    return {
        str(path.relative_to(top)): path.read_bytes()
        for path in top.rglob("*")
        if path.is_file()
    }


def test_what_docker_save_writes_is_imported_with_its_names(
    store: Store, tmp_path: Path
) -> None:
    path = docker_save(tmp_path / "saved.tar", [BASE, TOP], ["tools:1", "tools:latest"])

    [image] = import_images(store, str(path))

    assert image.names == ("tools:1", "tools:latest")
    assert (image.env, image.volumes) == (("A=1",), ("/data",))
    assert contents(store, image) == {"etc/name": b"top"}
    assert (
        store.find("tools")
        == store.find("tools:1")
        == store.find(image.id[:12])
        == image
    )
    assert image.size == len(b"base") + len(b"x") + len(b"top")


def test_an_oci_layout_is_imported_for_this_machine(
    store: Store, tmp_path: Path
) -> None:
    [image] = import_images(store, str(oci_layout(tmp_path / "layout", [BASE, TOP])))

    assert image.names == ("tools:2",)
    assert contents(store, image) == {"etc/name": b"top"}


def test_an_oci_layout_in_a_tar_is_imported(store: Store, tmp_path: Path) -> None:
    layout = oci_layout(tmp_path / "layout", [BASE])
    archive = shutil.make_archive(str(tmp_path / "layout"), "tar", layout)

    assert import_images(store, archive)[0].names == ("tools:2",)


@pytest.mark.parametrize("packed", [False, True])
def test_a_root_file_system_gets_the_name_of_its_file(
    store: Store, tmp_path: Path, packed: bool
) -> None:
    path = tmp_path / "My Root.tar.gz"
    path.write_bytes(gzip.compress(BASE) if packed else BASE)

    [image] = import_images(store, str(path))

    assert image.names == ("my-root:latest",)
    assert contents(store, image) == {"etc/name": b"base", "etc/gone": b"x"}


def test_an_archive_cannot_take_the_name_of_an_image_of_ours(
    store: Store, tmp_path: Path
) -> None:
    [image] = import_images(
        store,
        str(
            docker_save(tmp_path / "evil.tar", [BASE], ["belljar/base:latest", "../x"])
        ),
    )

    assert image.names == ("evil:latest",)


def test_an_archive_cannot_claim_another_image_s_id_as_its_name(
    store: Store, tmp_path: Path
) -> None:
    [trusted] = import_images(
        store, str(docker_save(tmp_path / "tools.tar", [BASE], ["tools"]))
    )

    import_images(
        store, str(docker_save(tmp_path / "evil.tar", [BASE, TOP], [trusted.id[:12]]))
    )

    assert store.find(trusted.id[:12]) == trusted


@pytest.mark.parametrize("name", ["", "UPPER", "a b", "../x", "a" * 300, "x\n"])
def test_a_bad_name_is_refused_and_nothing_imported(
    store: Store, tmp_path: Path, name: str
) -> None:
    path = docker_save(tmp_path / "one.tar", [BASE], ["one"])

    if name:
        with pytest.raises(UsageError):
            import_images(store, str(path), name)
        assert store.images() == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(path.read_bytes().replace(b"base", b"BASE")),
        lambda path: path.write_bytes(path.read_bytes()[:1500]),
        lambda path: path.write_bytes(b"\x1f\x8bgarbage"),
        lambda path: path.write_bytes(os.urandom(5000)),
        lambda path: docker_save(path, [BASE], ["one"], rootfs={"diff_ids": []}),
        lambda path: docker_save(path, [BASE], ["one"], architecture="s390x"),
        lambda path: docker_save(path, [BASE], ["one"], rootfs=[[[]]]),
        lambda path: path.write_bytes(tar([member("manifest.json", b"[" * 100_000)])),
        lambda path: path.write_bytes(tar([member("manifest.json", b'[{"Config": "../../etc/passwd"}]')])),
    ],
)  # fmt: skip
def test_a_damaged_archive_changes_nothing(
    store: Store, tmp_path: Path, damage: object
) -> None:
    path = docker_save(tmp_path / "one.tar", [BASE], ["one"])
    damage(path)  # type: ignore[operator]

    with pytest.raises((ImageInvalid, UsageError)):
        import_images(store, str(path))

    assert store.images() == []
    store.prune()
    assert disk_bytes(store) == 0
    assert list((store.root / "work").iterdir()) == []


def test_a_layout_with_symbolic_links_is_refused(store: Store, tmp_path: Path) -> None:
    layout = oci_layout(tmp_path / "layout", [BASE])
    blob = max(
        (layout / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size
    )
    blob.rename(tmp_path / "elsewhere")
    blob.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ImageInvalid):
        import_images(store, str(layout))


def test_an_image_that_we_built_may_have_a_name_of_ours(
    store: Store, tmp_path: Path
) -> None:
    (tmp_path / "root.tar").write_bytes(BASE)

    image = import_root(
        store,
        tmp_path / "root.tar",
        ["belljar/base:abc"],
        {"org.belljar.image": "base"},
    )

    assert store.find("belljar/base:abc") == image
    assert image.labels == {"org.belljar.image": "base"}


def test_what_skopeo_fetches_is_imported(store: Store, tmp_path: Path) -> None:
    if shutil.which("skopeo") is None:
        pytest.skip("skopeo is not installed here")
    path = docker_save(tmp_path / "saved.tar", [BASE], ["tools:1"])

    [image] = import_images(store, f"docker-archive:{path}", "fetched")

    assert image.names == ("fetched:latest",)
    assert contents(store, image)["etc/name"] == b"base"


def test_what_a_registry_sends_does_not_fill_the_disk(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = tmp_path / "skopeo"
    endless.write_text("#!/bin/sh\nsleep 600\n")
    endless.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(unpack, "KEEP_FREE", 1 << 62)

    with pytest.raises(ImageInvalid, match="does not fit"):
        import_images(store, "docker://example.test/tools:1")


def test_an_image_name_too_long_for_a_file_is_replaced_by_the_archive_s(
    store: Store, tmp_path: Path
) -> None:
    [image] = import_images(
        store, str(docker_save(tmp_path / "one.tar", [BASE], ["a/" * 80 + "b"]))
    )

    assert image.names == ("one:latest",)


def test_without_skopeo_a_registry_is_refused_clearly(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")

    with pytest.raises(ImageMissing, match="needs skopeo"):
        import_images(store, "docker://example.test/tools:1")
    with pytest.raises(ImageMissing, match="fetching docker://debian:12 needs skopeo"):
        import_images(store, "debian:12")
    with pytest.raises(UsageError, match="neither a file"):
        import_images(store, "missing.tar")
