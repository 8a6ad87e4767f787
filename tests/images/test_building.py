"""Images from Dockerfiles: by the engine's own builder, and by buildah where no daemon is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from belljar.engines.docker.engine import DockerEngine
from belljar.engines.oci.images import OciImages
from belljar.errors import EngineError, ImageMissing, UsageError
from belljar.images import build_times, buildah, building
from belljar.images.image_store import ImageStore
from belljar.images.store import Store

NAME = f"built{os.getpid()}:1"
DOCKERFILE = "FROM scratch AS first\nCOPY file /a\nFROM scratch\nARG WHO=nobody\nENV WHO=$WHO\nCOPY --from=first /a /file\n"


@pytest.fixture
def order(tmp_path: Path) -> building.Order:
    place = tmp_path / "context"
    place.mkdir()
    (place / "file").write_text("content")
    (place / "Dockerfile").write_text(DOCKERFILE)
    return building.Order(NAME, place / "Dockerfile", place, {"WHO": "me"})


@pytest.fixture(params=["docker", "buildah"])
def images(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[ImageStore]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    if request.param == "buildah":
        if shutil.which("buildah") is None:
            pytest.skip("buildah is not installed here")
        yield OciImages(Store(tmp_path / "images"))
        return
    engine: DockerEngine = request.getfixturevalue("engine")
    client: Any = request.getfixturevalue("docker_client")
    yield engine.images
    for image in client.images.list(NAME.partition(":")[0]):
        client.images.remove(image.id, force=True)


def built(images: ImageStore, order: building.Order, said: list[str]) -> bool:
    """Whether a build was needed."""
    with building.planned(order) as plan:
        if building.is_built(images, plan):
            return False
        building.build(images, plan, lambda fraction, text: said.append(text))
        return True


def test_an_image_is_built_once_until_a_file_or_an_argument_changes(
    images: ImageStore, order: building.Order
) -> None:
    said: list[str] = []
    assert built(images, order, said)
    found: Any = images.image(NAME)
    assert "WHO=me" in found.env
    assert "2 files" in said[0]
    assert not built(images, order, said)
    (order.context / "file").write_text("changed")
    del said[:]
    assert built(images, order, said)
    assert "; last time" in said[0]


def test_a_build_that_fails_is_one_error_and_no_image(
    images: ImageStore, order: building.Order
) -> None:
    order.dockerfile.write_text("FROM scratch\nCOPY missing /x\n")
    with pytest.raises(EngineError, match="missing"):
        built(images, order, [])
    assert images.image(NAME) is None


def test_the_key_is_known_before_the_build_and_needs_no_engine(
    order: building.Order,
) -> None:
    with building.planned(order) as plan:
        first = plan.digest
        assert plan.parents == ()
    order.dockerfile.write_text(
        "FROM --platform=linux/amd64 base AS x\nFROM x\nfrom $ANY\n"
    )
    with building.planned(order) as plan:
        assert plan.digest != first
        assert plan.parents == ("base",)


def test_a_name_of_belljar_s_own_images_is_refused(order: building.Order) -> None:
    other = building.Order("belljar/base", order.dockerfile, order.context, {})
    with pytest.raises(UsageError, match="Belljar's own"), building.planned(other):
        pass


def test_without_buildah_it_is_said_what_is_missing(
    order: building.Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buildah.shutil, "which", lambda name: None)
    with pytest.raises(ImageMissing, match="apt-get install buildah"):
        built(OciImages(Store(tmp_path / "images")), order, [])


def test_buildah_begins_with_an_image_of_our_store(
    order: building.Order, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shutil.which("buildah") is None:
        pytest.skip("buildah is not installed here")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    images = OciImages(Store(tmp_path / "images"))
    assert built(images, order, [])
    order.dockerfile.write_text(f"FROM {NAME}\nENV MORE=yes\n")
    on_top = building.Order("top:1", order.dockerfile, order.context, {})
    said: list[str] = []
    assert built(images, on_top, said)
    assert f"on {NAME} (0.0 MB)" in said[0]
    found = images.image("top:1")
    assert found is not None
    assert {"WHO=me", "MORE=yes"} <= set(found.env)


def test_what_cannot_be_read_of_the_last_build_is_not_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build_times.last("a/b:1") == ""
    build_times.note("a/b:1", 200.0, 225_000_000)
    assert build_times.last("a/b:1") == "; last time 3 min, 225 MB"
    build_times.note("a/b:1", 20.0, None)
    assert build_times.last("a/b:1") == "; last time 20 s"
    (kept,) = tmp_path.rglob("built-*")
    kept.write_text('{"seconds": "long"}')
    assert build_times.last("a/b:1") == ""


def test_no_name_of_a_dockerfile_lets_it_include_files_of_this_machine(
    order: building.Order, images: ImageStore, tmp_path: Path
) -> None:
    """buildah hands one that ends in .in to cpp."""
    (tmp_path / "secret").write_text("ENV SECRET=1\n")
    (order.context / "Dockerfile.in").write_text(
        f'{DOCKERFILE}#include "{tmp_path}/secret"\n'
    )
    chosen = replace(order, dockerfile=order.context / "Dockerfile.in")
    assert built(images, chosen, [])
    if isinstance(images, OciImages):
        image = Store(tmp_path / "images").find(NAME)
        assert image is not None
        assert "WHO=me" in image.env
        assert "SECRET=1" not in image.env


def test_only_names_of_images_are_looked_for() -> None:
    """An engine would be asked for anything else, as a part of a URL, before the user is."""
    names = [
        "debian:12",
        "localhost:5000/a/b_c:1.0",
        "GHCR.io/own/er-x",
        f"a@sha256:{'0' * 64}",
        "0123456789ab",
    ]
    odd = [
        "\\",
        "../../x",
        "a/../b",
        "a//b",
        "http://h/x",
        "UPPER/x",
        '"q"',
        "a?b=c",
        "a%2fb",
        "-x",
        "$X",
        "é",
        "a\0",
    ]
    text = "\n".join(f"FROM {each}" for each in [*names, *odd])
    assert building._parents(text) == tuple(names)
