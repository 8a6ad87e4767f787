"""Containers for the tests of PID 1. The init never runs directly on this machine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.init.client import Box, Connection, docker
from tests.init.emulated import TREE, EmulatedBox

ROOT = Path(__file__).resolve().parents[2]
KIND = EmulatedBox if TREE in os.environ else Box


@pytest.fixture(scope="session")
def init() -> Path:
    """The init under test. With BELLJAR_INIT=sanitize it traps on undefined behaviour."""
    build = [
        sys.executable,
        str(ROOT / "sandbox-images/init/build.py"),
        os.environ.get("BELLJAR_INIT", "host"),
    ]
    return Path(
        subprocess.run(build, check=True, capture_output=True, text=True).stdout.split(
            ":"
        )[0]
    )


@pytest.fixture(scope="session")
def image() -> str:
    if TREE in os.environ:  # `make aarch64-test`
        return ""
    if not docker("images", "-q", "belljar/base"):
        pytest.fail("the image belljar/base is missing: run `make images`")
    return "belljar/base"


@pytest.fixture
def make_box(image: str, init: Path) -> Iterator[Callable[..., Box]]:
    boxes: list[Box] = []
    directories: list[Path] = []

    def make(**options: object) -> Box:
        directory = Path(
            tempfile.mkdtemp(prefix="bj-init-", dir="/tmp")
        )  # a socket's path must be short
        directory.chmod(0o755)
        directories.append(directory)
        boxes.append(KIND(image, options.pop("init", init), directory, **options))  # type: ignore[arg-type]
        return boxes[-1]

    yield make
    for box in boxes:
        box.close()
    for directory in directories:
        shutil.rmtree(directory)


@pytest.fixture(scope="module")
def shared_box(image: str, init: Path) -> Iterator[Box]:
    """One box for all tests of a module that do not change it."""
    directory = Path(tempfile.mkdtemp(prefix="bj-init-", dir="/tmp"))
    directory.chmod(0o755)
    box = KIND(image, init, directory, lease=60_000)
    yield box
    box.close()
    shutil.rmtree(directory)


@pytest.fixture
def link(shared_box: Box) -> Iterator[Connection]:
    connection = shared_box.connect()
    yield connection
    connection.close()


@pytest.fixture(scope="session")
def no_landlock(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, ...]:
    """Docker options that make the kernel seem to have no Landlock."""
    from belljar.engines import seccomp

    profile = json.loads(seccomp.profile_text())
    for rule in profile["syscalls"]:
        rule["names"] = [
            name for name in rule["names"] if not name.startswith("landlock_")
        ]
    path = tmp_path_factory.mktemp("seccomp") / "profile.json"
    path.write_text(json.dumps(profile))
    return ("--security-opt", f"seccomp={path}")
