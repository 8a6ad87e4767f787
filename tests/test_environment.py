"""One module reads the environment, and hands on what it says."""

import re
from pathlib import Path

import pytest

import belljar
from belljar import environment

SOURCE = Path(belljar.__file__).parent


def test_below_the_surfaces_only_this_module_reads_the_environment() -> None:
    readers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if re.search(
            r"\bos\.(environ\b(?!\")|getenv)",
            re.sub(r'"os\.environ"', "", path.read_text()),
        )
        and path.relative_to(SOURCE).parts[0] not in ("surfaces", "adapters")
    }
    assert readers == {"environment.py"}


def test_an_empty_variable_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BELLJAR_X", "")
    assert environment.value("BELLJAR_X", "default") == "default"
    monkeypatch.setenv("BELLJAR_X", "1")
    assert environment.value("BELLJAR_X", "default") == "1"
    assert environment.only("BELLJAR_X", "BELLJAR_NONE") == {"BELLJAR_X": "1"}
    assert environment.for_program(A="b")["A"] == "b"
