"""What a file says that can make the host run something, as a set of values: what is in the set of the new contents and
not in that of the old ones is new. None: that cannot be known (too long, not parseable), so any change counts.

Contents are parsed as the programs that read them do it, with comments and trailing commas in JSON, so that an escape
or a line break hides nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from belljar.patterns import lazy_pattern
from belljar.runs_later import git_settings

Values = frozenset[object]
Reader = Callable[[bytes], "Values | None"]
LONGEST = 256 << 10  # bytes of a file that is parsed; any change of a longer one counts
DEEPEST = 64  # levels of a JSON document

# A string, a comment, or a comma before a closing bracket.
_JSONC = lazy_pattern(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|/\*.*?\*/|,(?=(?:\s|//[^\n]*|/\*.*?\*/)*[\]}])',
    re.DOTALL,
)
_EXEC = lazy_pattern(rb"\s*(?:x|exec|[^\s#]*!.*)(?:\s|$)")


def anything(content: bytes) -> Values | None:
    """Every change counts."""
    return None


def git(content: bytes) -> Values | None:
    parsed = git_settings.that_run(content)
    return None if parsed is None else frozenset(parsed)


def todo(content: bytes) -> Values | None:
    """Of a rebase: the lines that run a command. What else it does is done to the repository."""
    return frozenset(line.strip() for line in content.splitlines() if _EXEC.match(line))


def opens(content: bytes) -> Values | None:
    """Editors' tasks: one that begins by itself may begin any other, so then all of the document counts."""
    pairs = _document(content)
    if pairs is None:
        return None
    return (
        frozenset(pairs)
        if any('"folderOpen"' in text for _, text in pairs)
        else frozenset()
    )


def keys(names: Iterable[str], content: bytes) -> Values | None:
    wanted, pairs = set(names), _document(content)
    if pairs is None:
        return None
    return frozenset(pair for pair in pairs if pair[0].partition(".")[0] in wanted)


def except_keys(harmless: Iterable[str], content: bytes) -> Values | None:
    allowed, pairs = tuple(harmless), _document(content)
    if pairs is None:
        return None
    return frozenset(pair for pair in pairs if not _is_allowed(pair[0], allowed))


def reader_of(said: str, harmless: dict[str, list[str]]) -> Reader | None:
    """The reader that a line of runs.txt names; None for `none`."""
    kind, _, rest = said.partition(":")
    if kind == "keys":
        return partial(keys, rest.split(","))
    if kind == "except":
        return partial(except_keys, harmless[rest])
    return {
        "any": anything,
        "hooks": anything,
        "git": git,
        "opens": opens,
        "none": None,
    }[kind]


def parsed_json(content: bytes) -> Any:
    """A JSON document with comments and trailing commas; ValueError if it is none. Objects are lists of pairs, so that
    no key hides another of its name."""
    text = content.decode("utf-8-sig")
    plain = _JSONC.sub(
        lambda match: match[0] if match[0].startswith('"') else " ", text
    )
    return json.loads(plain, object_pairs_hook=Pairs)


class Pairs(list[tuple[str, Any]]):
    """A JSON object."""


def strings(document: Any) -> Iterator[str]:
    """All keys and strings of a document."""
    if isinstance(document, str):
        yield document
    elif isinstance(document, Pairs):
        for key, value in document:
            yield key
            yield from strings(value)
    elif isinstance(document, list):
        for value in document:
            yield from strings(value)


def _document(content: bytes) -> list[tuple[str, str]] | None:
    """The leaves of a document: each key with dots, and its value as text."""
    if not content.strip():
        return []
    try:
        return list(_leaves("", parsed_json(content), DEEPEST))
    except (ValueError, RecursionError):
        return None


def _leaves(key: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    if not depth:
        raise RecursionError
    if isinstance(value, Pairs) and value:
        for name, inner in value:
            yield from _leaves(f"{key}.{name}" if key else name, inner, depth - 1)
    else:
        yield key, json.dumps(value)


def _is_allowed(key: str, allowed: tuple[str, ...]) -> bool:
    key = re.sub(r"^\[[^\]]*\]\.", "", key)  # of one language only
    return any(
        key.startswith(name[:-1])
        if name.endswith("*")
        else key == name or key.startswith(f"{name}.")
        for name in allowed
    )
