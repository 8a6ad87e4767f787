"""Imports point downwards only: a folder may import what is below it, never what is above.

All imports count, also those inside functions and those for the type checker alone: a reader follows them too.
"""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Collection, Iterator
from functools import cache
from pathlib import Path

import pytest

import belljar

ROOT = Path(belljar.__file__).parent
# From the top down. Folders on one line do not import each other.
LAYERS = [
    {"__main__"},
    {"surfaces", "adapters"},
    {"sync", "doctor", "conformance"},
    {"tools", "remote"},
    {"session"},
    {"sandbox"},
    {"host"},
    {"enforcement"},
    {"options"},
    {"engines"},
    {"network", "staged", "codec"},
    {"runs_later"},
    {"images", "link", "workspace", "policy", "audit"},
    {"user_namespace"},
    {"limits", "resources", "patience", "tasks", "toml_schema", "turns"},
    {
        "ancestry",
        "environment",
        "layout",
        "errors",
        "syscalls",
        "records",
        "patterns",
        "tables",
    },
]
# `belljar/__init__` lists all public names and loads each on first use.
EXEMPT = {"__init__", "_init"}
LEVEL = {
    name: len(LAYERS) - level for level, names in enumerate(LAYERS) for name in names
}


def _imports(path: Path) -> Iterator[str]:
    for node in _statements(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            module = ".".join(
                [*_package(path, node.level), *filter(None, [node.module])]
            )
            yield from (
                (f"{module}.{alias.name}" for alias in node.names)
                if module == "belljar"
                else [module]
            )
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def _statements(tree: ast.AST) -> Iterator[ast.AST]:
    """Expressions are skipped: they hold no imports."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.expr):
            continue
        yield node
        yield from _statements(node)


def _package(path: Path, level: int) -> list[str]:
    """The package from which a relative import starts."""
    parts = ["belljar", *path.relative_to(ROOT).parts[:-1]]
    return parts[: len(parts) - level + 1] if level else []


def _layer(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


@cache
def _edges() -> dict[tuple[str, str], list[str]]:
    edges: dict[tuple[str, str], list[str]] = {}
    for path in ROOT.rglob("*.py"):
        for name in _imports(path):
            parts = name.split(".")
            if parts[0] == "belljar" and len(parts) > 1 and parts[1] != _layer(path):
                edges.setdefault((_layer(path), parts[1]), []).append(
                    str(path.relative_to(ROOT))
                )
    return edges


def test_surfaces_do_not_import_each_other() -> None:
    """The command line starts the servers, the service offers MCP too, the local server runs the command line. What
    draws on a terminal, words for verdicts and limits on connections are shared."""
    shared = {"terminal", "words", "connections"}
    launched = {("cli", "mcp"), ("cli", "http"), ("http", "mcp"), ("local", "cli")}
    found = set()
    for path in (ROOT / "surfaces").rglob("*.py"):
        for name in _imports(path):
            parts, own = (
                name.split("."),
                path.relative_to(ROOT / "surfaces").parts[0].removesuffix(".py"),
            )
            if (
                parts[:2] == ["belljar", "surfaces"]
                and len(parts) > 2
                and parts[2] not in {own, *shared}
            ):
                found.add((own, parts[2]))
    assert found <= launched


def test_every_folder_has_its_layer() -> None:
    found = {_layer(path) for path in ROOT.rglob("*.py")} - EXEMPT
    assert found <= LEVEL.keys(), "a new folder belongs into LAYERS"


@pytest.mark.parametrize(
    "edge", sorted(edge for edge in _edges() if edge[1] in LEVEL), ids=" → ".join
)
def test_imports_point_downwards(edge: tuple[str, str]) -> None:
    importer, imported = edge
    if importer in EXEMPT:
        return
    assert LEVEL[importer] > LEVEL[imported], (
        f"{importer} must not import {imported}: {_edges()[edge]}"
    )


def test_no_modules_import_each_other() -> None:
    names = {_module(path): path for path in ROOT.rglob("*.py")}
    needs: dict[str, set[str]] = {}
    for name, path in names.items():
        if name != "belljar":  # lists all public names
            needs[name] = set(_needs(path, names.keys())) - {name, "belljar"}
    graphlib.TopologicalSorter(needs).prepare()


def _module(path: Path) -> str:
    return ".".join(
        ["belljar", *path.relative_to(ROOT).with_suffix("").parts]
    ).removesuffix(".__init__")


def _needs(path: Path, known: Collection[str]) -> Iterator[str]:
    """The modules that a module imports, in whatever way. An imported name may be a module of its package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom):
            module = ".".join(
                [*_package(path, node.level), *filter(None, [node.module])]
            )
            for alias in node.names:
                name = f"{module}.{alias.name}"
                yield from [each for each in (name, module) if each in known][:1]


def test_the_readme_s_tree_names_every_layer() -> None:
    tree = (ROOT / "README.md").read_text().split("```")[1]
    named = {
        word
        for line in tree.splitlines()
        for word in re.findall(r"(\w+)[/ \n.]", line.split("    ")[0] + " ")
    }
    assert LEVEL.keys() - {"__main__"} <= named


def test_no_module_or_c_name_is_a_riddle() -> None:
    riddles = {
        "planted",
        "trail",
        "running",
        "watching",
        "opening",
        "lines",
        "told",
        "found",
        "utils",
        "helpers",
    }
    assert not riddles & {path.stem for path in ROOT.rglob("*.py")}
    init = ROOT.parent.parent / "sandbox-images" / "init"
    for path in init.glob("*.[ch]"):
        code = re.sub(
            r"/\*.*?\*/|//[^\n]*|\"[^\"\n]*\"", "", path.read_text(), flags=re.DOTALL
        )
        assert not re.findall(r"\b\w*(?:ahead|loan|doorway|pilot|hailed)\w*\b", code), (
            path.name
        )


def test_the_walk_through_the_code_names_files_that_exist() -> None:
    text = (ROOT / "README.md").read_text()
    init = ROOT.parent.parent / "sandbox-images" / "init"
    for name in re.findall(r"`([\w/]+\.(?:py|c|bash))`", text):
        places = [
            ROOT / name,
            ROOT / "policy" / name,
            init / name,
            ROOT.parent.parent / name,
        ]
        assert any(path.is_file() for path in places), f"README.md names {name}"


def test_no_regular_expression_repeats_a_group_possessively() -> None:
    """Python's `re` before 3.11.5, as in Debian 12, loses characters there (gh-106052)."""
    risky = re.compile(r"\)(?:[*+?]|\{[0-9,]+\})\+|\(\?>")
    for path in ROOT.rglob("*.py"):
        found = [
            text
            for text in re.findall(r"(?m)^.*$", path.read_text())
            if risky.search(text)
        ]
        assert not found, f"{path}: {found}"
