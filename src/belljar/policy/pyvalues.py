"""Values of the Python reader, and the pure functions on them."""

import ast
import base64
import binascii
import codecs
import json
import re
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any

from .marks import ATOM, DISGUISED, FILE, MAX_TEXT, NETWORK, SENSITIVE, STAR, UNKNOWN, clip, known, taints
from .parser import TooComplex


class Ref:
    """A dotted name that is not a value: a module, a function, a method bound to a value."""

    __slots__ = ("bound", "name")

    def __init__(self, name: str, bound: Any = None) -> None:
        self.name, self.bound = name, bound


MAX_ITEMS = 10_000
_REQUEST = re.compile(r"(flask|quart|bottle|cherrypy|sanic)\.request\b")  # what the other side sent


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value) if abs(value) < 1 << 64 else ATOM
    if isinstance(value, list | dict):
        return clip(" ".join(islice(_leaves(value), MAX_ITEMS)))
    if isinstance(value, Ref):
        if _REQUEST.match(value.name):
            return NETWORK
        return SENSITIVE if value.name == "os.environ" else _text(value.bound) if value.bound is not None else UNKNOWN
    return "" if value is None else UNKNOWN


def mapping(*parts: Any) -> dict[str, Any]:
    """Dictionaries, lists of pairs and the environment as one dictionary."""
    found: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, dict):
            found |= part
        elif isinstance(part, list) and all(isinstance(pair, list) and len(pair) == 2 for pair in part):
            found |= {_text(pair[0]): pair[1] for pair in part}
        else:
            found[""] = _text(part)
    return found


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a list. Lists may share lists, so there can be far more texts than there is memory."""
    items = value.values() if isinstance(value, dict) else value
    for item in items:
        yield from _leaves(item) if isinstance(item, list | dict) else (_text(item),)
    if not items:
        yield ""


def bounded(value: Any) -> Any:
    """A value that has not grown out of hand."""
    if isinstance(value, list) and len(value) > MAX_ITEMS:
        raise TooComplex("its lists are too long to judge")
    return clip(value) if isinstance(value, str) else value


def repeated(piece: str, times: int, whole: Callable[[], str]) -> str:
    """A text that holds a piece so many times, unless that is more than anybody would write."""
    return clip(whole()) if len(piece) * times <= 10 * MAX_TEXT else DISGUISED


def _picks(test: ast.expr) -> bool:
    """Whether a condition chooses among files by what they are called; being a file is no choice."""
    kinds = {"is_file", "is_dir", "exists", "isfile", "isdir", "isdigit"}
    named = any(isinstance(node, ast.Name) for node in ast.walk(test))
    return named and not any(isinstance(node, ast.Attribute) and node.attr in kinds for node in ast.walk(test))


def _many(value: Any) -> list[Any]:
    return (
        value if isinstance(value, list) else list(value) if isinstance(value, str) and known(value) else [_part(value)]
    )


def _part(value: Any) -> Any:
    return value if isinstance(value, str) and not known(value) else UNKNOWN


def _join(parts: list[str]) -> str:
    path = ""
    for part in parts:
        path = part if part.startswith("/") or not path else f"{path.rstrip('/')}/{part}"
    return path


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return DISGUISED


def _integer(args: list[Any]) -> Any:
    try:
        return int(_text(args[0]), args[1] if len(args) > 1 and isinstance(args[1], int) else 10)
    except (ValueError, OverflowError):
        return args[0] if isinstance(args[0], str) and STAR in args[0] else UNKNOWN


def _arithmetic(op: ast.operator, left: int, right: int) -> Any:
    table: dict[type, Callable[[int, int], int]] = {
        ast.Sub: int.__sub__,
        ast.Mult: int.__mul__,
        ast.BitXor: int.__xor__,
        ast.BitOr: int.__or__,
        ast.BitAnd: int.__and__,
        ast.RShift: int.__rshift__,
        ast.Mod: int.__mod__,
        ast.FloorDiv: int.__floordiv__,
    }
    if (
        type(op) not in table
        or (isinstance(op, ast.Mod | ast.FloorDiv) and not right)
        or max(abs(left), abs(right)) > 1 << 64
        or (isinstance(op, ast.RShift) and right < 0)
    ):
        return UNKNOWN
    return table[type(op)](left, right)


def _percent(left: str, right: Any) -> str:
    if re.search(r"%[^a-zA-Z%]*(\d{4}|\*)", left):  # a width of millions
        return left + _text(right)
    try:
        made = partial(str.__mod__, left, tuple(right) if isinstance(right, list) else right)
        return repeated(_text(right), left.count("%"), lambda: str(made()))
    except (TypeError, ValueError, KeyError, OverflowError):
        return left + _text(right)


def _format(text: str, args: list[Any], words: dict[str, Any]) -> str:
    given = [_text(arg) for arg in args]
    named = {key: _text(value) for key, value in words.items() if key}
    if re.search(r":[^}]*(\d{4}|\{)", text):  # a width of millions
        return text + "".join(given)
    try:
        longest = max([*given, *named.values()], key=len, default="")
        return repeated(longest, text.count("{"), lambda: text.format(*given, **named))
    except (IndexError, KeyError, ValueError, AttributeError, TypeError):
        return text + "".join(_text(arg) for arg in args)


def _bytes(text: str, decode: Callable[[bytes], bytes]) -> str:
    if not known(text):
        return taints(text).replace(FILE, UNKNOWN)
    try:
        raw = decode(text.encode("latin-1", "replace"))
        return raw.decode("utf-8") if raw.isascii() else raw.decode("latin-1")
    except (ValueError, binascii.Error, zlib.error, EOFError):
        return DISGUISED


def _codec(text: str, name: str) -> str:
    if not known(text):
        return taints(text)
    name = name.replace("_codec", "").lower()
    if name in ("rot13", "rot_13"):
        return codecs.decode(text, "rot13")
    if name in ("hex", "base64"):
        return _bytes(text, binascii.unhexlify if name == "hex" else base64.b64decode)
    return text if name.startswith(("utf", "ascii", "latin")) else DISGUISED
