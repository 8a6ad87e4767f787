"""Values of the Python reader: plain ones, text with marks, and names of what is not a value."""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .decoders import decoded
from .marks import ATOM, FILE, SENSITIVE, UNKNOWN, clip, known, taints
from .parser import TooComplex

MAX_ITEMS = 10_000
_KINDS = {"is_file", "is_dir", "exists", "isfile", "isdir", "isdigit"}


class Ref:
    """A dotted name that is not a value: a module, a function, a method bound to a value."""

    __slots__ = ("bound", "name")

    def __init__(self, name: str, bound: Any = None) -> None:
        self.name, self.bound = name, bound


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value) if abs(value) < 1 << 64 else ATOM
    if isinstance(value, list | dict):
        return clip(" ".join(islice(_leaves(value), MAX_ITEMS)))
    if isinstance(value, Ref):
        return SENSITIVE if value.name == "os.environ" else UNKNOWN if value.bound is None else text_of(value.bound)
    return "" if value is None else UNKNOWN


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a list. Lists may share lists, so there can be far more texts than there is memory."""
    items = value.values() if isinstance(value, dict) else value
    for item in items:
        yield from _leaves(item) if isinstance(item, list | dict) else (text_of(item),)
    if not items:
        yield ""


def bounded(value: Any) -> Any:
    """A value that has not grown out of hand."""
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        raise TooComplex("its lists are too long to judge")
    return clip(value) if isinstance(value, str) else value


def picks(test: ast.expr) -> bool:
    """Whether a condition chooses among files by what they are called; being a file is no choice."""
    nodes = list(ast.walk(test))
    kinds = any(isinstance(node, ast.Attribute) and node.attr in _KINDS for node in nodes)
    return any(isinstance(node, ast.Name) for node in nodes) and not kinds


def many(value: Any) -> list[Any]:
    """What a loop over it sees."""
    if isinstance(value, list):
        return value
    return list(value) if isinstance(value, str) and known(value) else [part(value)]


def part(value: Any) -> Any:
    return value if isinstance(value, str) and not known(value) else UNKNOWN


def joined(parts: list[str]) -> str:
    path = ""
    for one in parts:
        path = one if one.startswith("/") or not path else f"{path.rstrip('/')}/{one}"
    return path


def formatted(template: str, args: list[Any]) -> str:
    """`%` and `.format`, as far as they put texts in a row."""
    given = iter(args)
    return re.sub(r"%[srd]|\{\w*\}", lambda found: text_of(next(given, found[0])), template)


def decode(text: str, how: Callable[[bytes], bytes]) -> str:
    return decoded(text, how) if known(text) else taints(text).replace(FILE, UNKNOWN)
