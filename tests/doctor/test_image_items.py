"""The doctor's checks of the init and the images."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.doctor.test_doctor import failing

from belljar.doctor import examine, image_items
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.docker.images import DockerImages
from belljar.errors import EngineError


def test_an_init_or_an_image_that_is_missing_is_named(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(machine: str) -> Path:
        raise EngineError("no init for this machine")

    monkeypatch.setattr(image_items.resources, "init_binary", missing)
    monkeypatch.setattr(
        image_items.catalog, "reference", lambda name: "belljar-test/no-such-image"
    )
    monkeypatch.setattr(DockerImages, "registry_has", lambda self, reference: False)
    monkeypatch.setattr(image_items.shutil, "which", lambda name, path=None: None)
    checks = examine(engine)
    assert failing(checks) == {"init", "image base", "image sources"}
    assert all(check.fix for check in checks if not check.ok)
    assert checks[-1].name != "a real sandbox", "none is tried without them"


def test_without_a_registry_images_come_from_packages(
    engine: DockerEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DockerImages, "registry_has", lambda self, reference: False)
    monkeypatch.setattr(image_items.shutil, "which", lambda name: "/usr/bin/mmdebstrap")
    assert image_items._image_source(engine.images).ok
