"""Tests mirror the source: a module's test is found by its name.

The tests of `src/belljar/FOLDER/module.py` are in `tests/FOLDER/test_module.py`. A module without a file of its own is
proved together with its neighbours, in the test that FIRST names for its folder.
"""

from collections import defaultdict
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
SOURCE = TESTS.parent / "src" / "belljar"
FIRST = {
    ".": "test_host.py",
    "audit": "audit/test_writer.py",
    "doctor": "doctor/test_doctor.py",
    "engines": "engines/test_contract.py",
    "engines/docker": "engines/docker/test_client.py",
    "engines/oci": "engines/oci/test_engine.py",
    "engines/podman": "engines/test_contract.py",
    "images": "images/test_store.py",
    "link": "link/test_link.py",
    "network": "network/test_door.py",
    "policy": "policy/test_corpus.py",
    "sandbox": "attacks/test_walls.py",
    "session": "session/test_session.py",
    "staged": "staged/test_apply.py",
    "surfaces": "surfaces/cli/test_safe_mode.py",
    "surfaces/cli": "surfaces/cli/test_main.py",
    "surfaces/mcp": "surfaces/mcp/test_server.py",
    "surfaces/terminal": "surfaces/cli/test_run_on_a_terminal.py",
    "sync": "test_sync.py",
    "tools": "tools/test_registry.py",
    "workspace": "workspace/test_pinned.py",
}
BY_TOPIC = ("abuse", "attacks", "init", ".")
"""Folders of tests that go by topic: not one module's, but a promise's."""


def _folder(path: Path, root: Path) -> str:
    return path.parent.relative_to(root).as_posix()


@pytest.mark.parametrize("folder", sorted({_folder(path, SOURCE) for path in SOURCE.rglob("*.py")}))
def test_a_modules_test_is_found_by_its_name_or_its_folders(folder: str) -> None:
    modules = [path.stem for path in (SOURCE / folder).glob("*.py") if path.stem != "__init__"]
    alone = [name for name in modules if not (TESTS / folder / f"test_{name}.py").is_file()]
    assert not alone or (TESTS / FIRST[folder]).is_file(), f"{folder}: where are {', '.join(alone)} tested?"


def test_a_test_that_has_its_modules_name_is_in_that_modules_folder() -> None:
    homes = defaultdict(set)
    for path in SOURCE.rglob("*.py"):
        homes[path.stem].add(_folder(path, SOURCE))
    strays = []
    for path in TESTS.rglob("test_*.py"):
        folder, name, text = _folder(path, TESTS), path.stem.removeprefix("test_"), path.read_text()
        tested = [home for home in homes[name] if f"belljar.{home}.{name} import".replace("/", ".") in text]
        if folder not in BY_TOPIC and tested and folder not in homes[name]:
            strays.append(str(path.relative_to(TESTS)))
    assert not strays
