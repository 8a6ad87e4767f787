"""Docker's images: finding and listing them, and one clear error if Docker refuses."""

import os
import tarfile
from pathlib import Path

import pytest

from belljar.engines.docker.engine import DockerEngine
from belljar.errors import EngineError


def test_an_image_is_described_or_reported_missing(
    engine: DockerEngine, base_image: str
) -> None:
    assert engine.image(base_image) is not None
    assert engine.image("belljar-test-nosuch:1") is None


def test_an_invalid_alias_is_one_clear_error(
    engine: DockerEngine, base_image: str
) -> None:
    with pytest.raises(EngineError, match="tagging") as failed:
        engine.images.image_tag(base_image, "NOT/A:name:at all")
    assert "\n" not in str(failed.value)


def test_an_imported_image_has_the_name_that_it_was_given(
    engine: DockerEngine, tmp_path: Path
) -> None:
    """Podman 4.3 tags it `latest`, whatever tag the import names."""
    (tmp_path / "file").write_text("one")
    with tarfile.open(tmp_path / "root.tar", "w") as archive:
        archive.add(tmp_path / "file", "file")
    name = f"belljar-test-import:{os.urandom(6).hex()}"
    engine.images.image_import(
        tmp_path / "root.tar", name, cwd="/", labels={"belljar-test": "yes"}
    )
    try:
        assert engine.image(name) is not None
        assert [name] == [
            each
            for image in engine.images.image_list("belljar-test")
            for each in image.names
            if each == name
        ]
    finally:
        with engine.images._docker_py("removing") as client:
            client.remove_image(name, force=True)
