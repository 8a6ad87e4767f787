"""Values of the Python reader, and the pure functions on them."""

import ast
import re
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from .decoders import decoded
from .marks import ATOM, DISGUISED, FILE, MAX_TEXT, NETWORK, SENSITIVE, UNKNOWN, clip, known, taints
from .parser import TooComplex

MAX_ITEMS = 10_000
_ARITHMETIC: dict[type, Callable[[int, int], int]] = {
    ast.Sub: int.__sub__,
    ast.Mult: int.__mul__,
    ast.BitXor: int.__xor__,
    ast.BitOr: int.__or__,
    ast.BitAnd: int.__and__,
    ast.RShift: int.__rshift__,
    ast.Mod: int.__mod__,
    ast.FloorDiv: int.__floordiv__,
    ast.Add: int.__add__,
}
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
        if re.match(r"(flask|quart|bottle|sanic)\.request\b", value.name):
            return NETWORK
        return SENSITIVE if value.name == "os.environ" else UNKNOWN if value.bound is None else text_of(value.bound)
    return "" if value is None else UNKNOWN


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a list. Lists may share lists, so there can be far more texts than there is memory."""
    items = value.values() if isinstance(value, dict) else value
    for item in items:
        yield from _leaves(item) if isinstance(item, list | dict) else (text_of(item),)
    if not items:
        yield ""


def mapping(*parts: Any) -> dict[str, Any]:
    """Dictionaries, lists of pairs and the environment as one dictionary."""
    found: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, dict):
            found |= part
        elif isinstance(part, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in part):
            found |= {text_of(pair[0]): pair[1] for pair in part}
        else:
            found[""] = text_of(part)
    return found


def bounded(value: Any) -> Any:
    """A value that has not grown out of hand."""
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        raise TooComplex("its lists are too long to judge")
    return clip(value) if isinstance(value, str) else value


def repeated(piece: str, times: int, whole: Callable[[], str]) -> str:
    """A text that holds a piece so many times, unless that is more than anybody would write."""
    return clip(whole()) if len(piece) * times <= 10 * MAX_TEXT else DISGUISED


def picks(test: ast.expr) -> bool:
    """Whether a condition chooses among files by what they are called; being a file is no choice."""
    nodes = list(ast.walk(test))
    kinds = any(isinstance(node, ast.Attribute) and node.attr in _KINDS for node in nodes)
    return any(isinstance(node, ast.Name) for node in nodes) and not kinds


def many(value: Any) -> list[Any]:
    return (
        value if isinstance(value, list) else list(value) if isinstance(value, str) and known(value) else [part(value)]
    )


def part(value: Any) -> Any:
    return value if isinstance(value, str) and not known(value) else UNKNOWN


def joined(parts: list[str]) -> str:
    path = ""
    for one in parts:
        path = one if one.startswith("/") or not path else f"{path.rstrip('/')}/{one}"
    return path


def integer(args: list[Any]) -> Any:
    try:
        return int(text_of(args[0]), args[1] if len(args) > 1 and isinstance(args[1], int) else 10)
    except (ValueError, OverflowError):
        return args[0] if isinstance(args[0], str) and not known(args[0]) else UNKNOWN


def arithmetic(op: ast.operator, left: int, right: int) -> Any:
    zero = isinstance(op, ast.Mod | ast.FloorDiv) and not right
    if type(op) not in _ARITHMETIC or zero or max(abs(left), abs(right)) > 1 << 64 or right < 0:
        return left + right if isinstance(op, ast.Add) else UNKNOWN
    return _ARITHMETIC[type(op)](left, right)


def formatted(template: str, args: list[Any], words: dict[str, Any], percent: bool = False) -> str:
    """`%` and `.format`, unless the width of a field is thousands."""
    given, named = [text_of(arg) for arg in args], {key: text_of(value) for key, value in words.items() if key}
    if re.search(r"[%:][^}a-zA-Z]*(\d{4}|[*{])", template):
        return template + "".join(given)
    longest = max([*given, *named.values()], key=len, default="")
    try:
        made = (lambda: template % tuple(args)) if percent else (lambda: template.format(*given, **named))
        return repeated(longest, template.count("%" if percent else "{"), made)
    except (IndexError, KeyError, ValueError, AttributeError, TypeError, OverflowError):
        return template + "".join(given)


def decode(text: str, how: Callable[[bytes], bytes]) -> str:
    return decoded(text, how) if known(text) else taints(text).replace(FILE, UNKNOWN)
