"""An image made of packages, without a registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.images.conftest import Registry

from belljar.errors import ImageMissing
from belljar.images import catalog
from belljar.images.bootstrap import bootstrap


def test_a_bootstrap_without_mmdebstrap_says_what_to_install_and_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\n: > {tmp_path}/installed\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageMissing, match="install mmdebstrap"):
        bootstrap(["bash"], [tmp_path / "finish.sh"], tmp_path / "root.tar", lambda fraction, text: None)
    assert not (tmp_path / "installed").exists()


def test_a_bootstrap_that_fails_says_why_and_imports_nothing(registry: Registry, tiny: str, recipes: Path) -> None:
    registry.answers = False
    (recipes / "tiny/packages").write_text("no-such-package-as-this\n")
    with pytest.raises(ImageMissing, match="no-such-package-as-this"):
        catalog.ensure(registry, tiny)
    assert not registry.image_exists(catalog.reference(tiny))
