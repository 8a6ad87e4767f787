"""Imports point downwards only: a folder may import what is below it, never what is above.

Imports for the type checker alone (under `if TYPE_CHECKING`) are exempt: they bind nothing at run time.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import belljar

ROOT = Path(belljar.__file__).parent
# From the top down. Folders on one line may import each other only as `SIDEWAYS` says.
LAYERS = [
    {"__main__"},
    {"surfaces"},
    {"sync", "doctor"},
    {"tools"},
    {"session"},
    {"host"},
    {"sandbox"},
    {"engines"},
    {"network", "staged"},
    {"images", "link", "workspace", "policy", "audit", "log"},
    {"user_namespace"},
    {"limits", "resources", "patience", "tasks"},
    {"layout", "errors", "syscalls", "records", "patterns", "tables"},
]
SIDEWAYS = {("audit", "log"), ("log", "audit")}  # the log tells what the audit records, masked as the audit masks
# `belljar/__init__` names everything that is public, and loads it on first use.
EXEMPT = {"__init__", "_init"}
LEVEL = {name: len(LAYERS) - level for level, names in enumerate(LAYERS) for name in names}


def _imports(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text())
    for_types = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            module = ".".join([*_package(path, node.level), *filter(None, [node.module])])
            yield from (f"{module}.{alias.name}" for alias in node.names) if module == "belljar" else [module]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _package(path: Path, level: int) -> list[str]:
    """Where a relative import starts."""
    parts = ["belljar", *path.relative_to(ROOT).parts[:-1]]
    return parts[: len(parts) - level + 1] if level else []


def _layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def _edges() -> dict[tuple[str, str], list[str]]:
    edges: dict[tuple[str, str], list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "belljar" and len(parts) > 1 and parts[1] != _layer(path):
                edges.setdefault((_layer(path), parts[1]), []).append(str(path.relative_to(ROOT)))
    return edges


def test_every_folder_has_its_layer() -> None:
    found = {_layer(path) for path in ROOT.rglob("*.py")} - EXEMPT
    assert found <= LEVEL.keys(), "a new folder belongs into LAYERS"


@pytest.mark.parametrize("edge", sorted(edge for edge in _edges() if edge[1] in LEVEL), ids=" → ".join)
def test_imports_point_downwards(edge: tuple[str, str]) -> None:
    importer, imported = edge
    if importer in EXEMPT or edge in SIDEWAYS:
        return
    assert LEVEL[importer] > LEVEL[imported], f"{importer} must not import {imported}: {_edges()[edge]}"


def test_the_walk_through_the_code_names_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    init = ROOT.parent.parent / "sandbox-images" / "init"
    for name in re.findall(r"`([\w/]+\.(?:py|c|bash))`", text):
        places = [ROOT / name, ROOT / "policy" / name, init / name, ROOT.parent.parent / name]
        assert any(path.is_file() for path in places), f"README.md names {name}"


def test_no_group_is_repeated_possessively() -> None:
    """Python's `re` before 3.11.5, Debian 12's among them, loses characters there (gh-106052)."""
    risky = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>")
    for path in ROOT.rglob("*.py"):
        found = [text for text in re.findall(r"(?m)^.*$", path.read_text()) if risky.search(text)]
        assert not found, f"{path}: {found}"
