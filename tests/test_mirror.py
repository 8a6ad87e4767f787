"""Tests mirror the source: the tests of `src/belljar/FOLDER/module.py` are in `tests/FOLDER/`.

A test file may cover one module (`test_module.py`) or several.
"""

import re
from collections import defaultdict
from pathlib import Path

import pytest
from tests.needs import ENGINE_PLACES
from tests.order import LONGEST

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "belljar"
DATA = ("layout",)
"""Modules that contain only names of places, so there is nothing to test."""
BY_TOPIC = ("abuse", "attacks", "init", ".")
"""Folders whose tests prove a promise rather than one module."""


def _folder(path: Path, root: Path) -> str:
    return path.parent.relative_to(root).as_posix()


def _modules() -> list[Path]:
    """All modules but the policy's, whose tests are sorted by verdict."""
    found = (
        path.relative_to(SOURCE)
        for path in SOURCE.rglob("*.py")
        if path.stem not in ("__init__", *DATA)
    )
    return sorted(path for path in found if path.parts[0] != "policy")


@pytest.mark.parametrize("module", _modules(), ids=str)
def test_a_modules_test_is_found_in_its_folder(module: Path) -> None:
    """By its name, or in a file that covers several modules and imports this one."""
    folder, name = (
        TESTS / module.parent,
        ".".join(["belljar", *module.with_suffix("").parts]),
    )
    if not (folder / f"test_{module.name}").is_file():
        assert any(
            _names(test.read_text(), name) for test in folder.glob("test_*.py")
        ), f"{module}: where is it tested?"


def _names(text: str, module: str) -> bool:
    above, _, last = module.rpartition(".")
    return (
        re.search(
            rf"from {re.escape(above)} import .*\b{last}\b|{re.escape(module)}\b", text
        )
        is not None
    )


def test_a_test_that_has_its_modules_name_is_in_that_modules_folder() -> None:
    homes = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        homes[path.stem].add(_folder(path, SOURCE))
    strays = []
    for path in TESTS.rglob("test_*.py"):
        folder, name, text = (
            _folder(path, TESTS),
            path.stem.removeprefix("test_"),
            path.read_text(),
        )
        tested = [
            home
            for home in homes[name]
            if f"belljar.{home}.{name} import".replace("/", ".") in text
        ]
        if folder not in BY_TOPIC and tested and folder not in homes[name]:
            strays.append(str(path.relative_to(TESTS)))
    assert not strays


def test_the_files_that_start_first_exist() -> None:
    assert [name for name in LONGEST if not (TESTS.parent / name).is_file()] == []


@pytest.mark.parametrize("place", ENGINE_PLACES)
def test_a_place_that_needs_an_engine_exists(place: str) -> None:
    path, _, test = place.partition("::")
    assert (TESTS.parent / path).exists()
    assert not test or f"def {test}" in (TESTS.parent / path).read_text()
