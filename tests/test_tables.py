"""The shipped TOML files, which are parsed when Belljar is installed."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from belljar import tables
from belljar.errors import PolicyError
from belljar.policy import policies_directory
from belljar.policy.rules import parse_rules

POLICIES = policies_directory()


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    target = tmp_path / "share" / "belljar" / tables.NAME
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    tables._shipped.cache_clear()
    tables.write(POLICIES, target)
    yield target
    monkeypatch.undo()
    tables._shipped.cache_clear()


def test_every_shipped_file_is_cached_as_parsed(written: Path) -> None:
    for path in POLICIES.rglob("*.toml"):
        text = path.read_text()
        assert tables.ships(text)
        assert tables.parsed(text) == tomllib.loads(text)


def test_an_edited_file_is_parsed_and_checked_anew(written: Path) -> None:
    edited = (
        POLICIES / "default.toml"
    ).read_text() + '\n[[rule]]\nid = "x"\nreason = "y"\nrisk = "absurd"\n'
    assert not tables.ships(edited)
    with pytest.raises(PolicyError, match="absurd"):
        parse_rules(edited, "edited.toml")


@pytest.mark.parametrize("content", [b"", b"{", b"\xff"])
def test_a_broken_cache_of_tables_is_ignored(written: Path, content: bytes) -> None:
    written.write_bytes(content)
    text = (POLICIES / "default.toml").read_text()
    assert not tables.ships(text)
    assert tables.parsed(text) == tomllib.loads(text)
