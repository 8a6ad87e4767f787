"""The image that brings the init: one file, always the same bytes."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from belljar import resources
from belljar.engines.kubernetes import init_image


def test_it_holds_the_init_and_nothing_else(tmp_path: Path) -> None:
    name = init_image.reference("registry.example.com/")
    init_image.write(tmp_path / "init.tar", name)
    with tarfile.open(tmp_path / "init.tar") as tar:
        [manifest] = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]
        config = json.load(tar.extractfile(manifest["Config"]))  # type: ignore[arg-type]
        layer = tar.extractfile(manifest["Layers"][0])
        assert layer is not None
        with tarfile.open(fileobj=io.BytesIO(layer.read())) as files:
            [entry] = files.getmembers()
            content = files.extractfile(entry)
            assert content is not None
            assert content.read() == resources.init_binary("x86_64").read_bytes()
            assert (entry.name, entry.mode) == ("init", 0o755)
    assert manifest["RepoTags"] == [name]
    assert config["config"]["User"] == init_image.USER


def test_its_name_and_its_bytes_follow_from_the_binary(tmp_path: Path) -> None:
    assert init_image.reference("a/") == "a/" + init_image.reference("")
    for path in (tmp_path / "one", tmp_path / "two"):
        init_image.write(path, "x:1")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
