"""Docker's images: looked for, listed, and its refusals as one clear error."""

import pytest

from belljar.engines.docker.engine import DockerEngine
from belljar.errors import EngineError


def test_an_image_is_there_or_not(engine: DockerEngine, base_image: str) -> None:
    assert engine.image_exists(base_image)
    assert not engine.image_exists("belljar-test-nosuch:1")


def test_an_alias_that_cannot_be_is_one_clear_error(engine: DockerEngine, base_image: str) -> None:
    with pytest.raises(EngineError, match="tagging") as failed:
        engine.image_tag(base_image, "NOT/A:name:at all")
    assert "\n" not in str(failed.value)
