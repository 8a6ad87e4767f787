"""The TOML files of policies and knowledge: where they are, how they are read, what the shipped ones hold."""

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from belljar import tables as shipped
from belljar.errors import PolicyError


def policies_directory() -> Path:
    """The shipped policies: inside the installed package, or at the top of the repository."""
    inside = Path(__file__).parent.parent / "policies"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "policies"


def read_text(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(
            f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from error


def parse_toml(text: str, source: str) -> dict[str, Any]:
    try:
        return shipped.parsed(text)
    except ValueError as error:
        raise PolicyError(f"{source}: {error}") from error


def read_toml(path: Path) -> dict[str, Any]:
    return parse_toml(read_text(path), str(path))


read_shipped = functools.cache(read_toml)


def shipped_files() -> list[Path]:
    return sorted((policies_directory() / "knowledge").glob("*.toml"))


@functools.cache
def tables() -> Mapping[str, Mapping[str, Any]]:
    """All shipped files as one: program, language, place, setting."""
    merged: dict[str, dict[str, Any]] = {}
    for path in shipped_files():
        for table, content in read_shipped(path).items():
            merged.setdefault(table, {}).update(content)
    return merged


def file_and_line(source: str, where: str) -> str:
    """A file and the line of a place in it. Shipped files are named as in the repository."""
    from belljar.toml_schema import line_of

    try:
        text = (
            policies_directory() / source
            if source.startswith("knowledge/")
            else Path(source)
        ).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return source
    return f"{source}:{line_of(text, where)}"
