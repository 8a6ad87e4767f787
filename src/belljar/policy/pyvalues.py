"""Values of the Python reader, and the pure functions on them."""

import ast
import base64
import binascii
import codecs
import json
import zlib
from collections.abc import Callable
from typing import Any

from .marks import DISGUISED, FILE, SENSITIVE, STAR, UNKNOWN, known, taints


class Ref:
    """A dotted name that is not a value: a module, a function, a method bound to a value."""

    __slots__ = ("bound", "name")

    def __init__(self, name: str, bound: Any = None) -> None:
        self.name, self.bound = name, bound


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, list):
        return " ".join(_text(item) for item in value)
    if isinstance(value, dict):
        return " ".join(_text(item) for item in value.values())
    if isinstance(value, Ref):
        return SENSITIVE if value.name == "os.environ" else _text(value.bound) if value.bound is not None else UNKNOWN
    return "" if value is None else UNKNOWN


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
    except ValueError:
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
    try:
        return str(left % tuple(right) if isinstance(right, list) else left % right)
    except (TypeError, ValueError, KeyError):
        return left + _text(right)


def _format(text: str, args: list[Any], words: dict[str, Any]) -> str:
    try:
        return text.format(*[_text(arg) for arg in args], **{key: _text(value) for key, value in words.items() if key})
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
