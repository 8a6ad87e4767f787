"""Building an image from packages, without a registry."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from tests.images.conftest import Registry

from belljar.errors import ImageMissing
from belljar.images import catalog
from belljar.images.bootstrap import RELEASE, _host_sources, bootstrap


def test_a_bootstrap_without_mmdebstrap_says_what_to_install_and_installs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    apt = tmp_path / "apt-get"
    apt.write_text(f"#!/bin/sh\n: > {tmp_path}/installed\n")
    apt.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageMissing, match="install mmdebstrap"):
        bootstrap(
            ["bash"],
            [tmp_path / "finish.sh"],
            tmp_path / "root.tar",
            lambda fraction, text: None,
        )
    assert not (tmp_path / "installed").exists()


@pytest.fixture
def poor_mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A local Debian mirror with very few packages. Fetching a real one's lists takes half a minute."""
    packages = (
        tmp_path
        / "mirror/dists"
        / RELEASE
        / "main"
        / f"binary-{_architecture()}"
        / "Packages"
    )
    packages.parent.mkdir(parents=True)
    packages.write_text(
        f"Package: nothing\nArchitecture: {_architecture()}\nVersion: 1\nFilename: nothing.deb\nSize: 1\n"
    )
    suite = f"Suite: {RELEASE}\nCodename: {RELEASE}\nComponents: main\nArchitectures: {_architecture()}\n"
    checksum = hashlib.sha256(packages.read_bytes()).hexdigest()
    listed = f"{checksum} {packages.stat().st_size} {packages.relative_to(packages.parents[2])}"
    (packages.parents[2] / "Release").write_text(f"{suite}SHA256:\n {listed}\n")
    source = f"deb [trusted=yes] copy:{tmp_path}/mirror {RELEASE} main"
    monkeypatch.setattr("belljar.images.bootstrap._host_sources", lambda: [source])


def _architecture() -> str:
    return subprocess.run(
        ["dpkg", "--print-architecture"], check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.skipif(
    not shutil.which("mmdebstrap"), reason="mmdebstrap is not installed"
)
def test_a_bootstrap_that_fails_says_why_and_imports_nothing(
    poor_mirror: None, registry: Registry, tiny: str, recipes: Path
) -> None:
    registry.answers = False
    (recipes / tiny / "packages").write_text("no-such-package-as-this\n")
    with pytest.raises(ImageMissing, match="no-such-package-as-this"):
        catalog.ensure(registry, tiny)
    assert registry.image(catalog.reference(tiny)) is None


def test_the_mirrors_are_those_of_this_machine_or_mmdebstrap_s_own() -> None:
    assert all(
        re.fullmatch(rf"deb \S+ {RELEASE}\S* main", source)
        for source in _host_sources()
    )


def test_a_build_that_is_stopped_ends_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake build that would never end; a real one takes minutes."""
    slow = tmp_path / "mmdebstrap"
    trap = "trap 'echo E: stopped >&2; exit 1' TERM"  # runs only between two commands, so each must be short
    slow.write_text(
        f"#!/bin/sh\n{trap}\necho I: downloading packages >&2\nwhile :; do sleep 0.1; done\n"
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def begun(fraction: float, text: str) -> None:
        catalog.stop_building()

    with pytest.raises(ImageMissing, match="stopped"):
        bootstrap(["bash"], [tmp_path / "finish.sh"], tmp_path / "root.tar", begun)
