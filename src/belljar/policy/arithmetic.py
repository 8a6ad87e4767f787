"""Shell arithmetic, as far as it is known."""

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .marks import ATOM, has_glob, known, solid
from .parser import Node

if TYPE_CHECKING:
    from .expand import Expander

_LIMIT = 1 << 63
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "/": lambda a, b: int(a / b), "%": lambda a, b: a - b * int(a / b), "**": lambda a, b: a**b if b < 64 else 0,
    "<<": lambda a, b: a << (b & 63), ">>": lambda a, b: a >> (b & 63), ",": lambda a, b: b,
    "<": operator.lt, ">": operator.gt, "<=": operator.le, ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_COMPARE = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


def evaluate(node: Node | None, expander: "Expander") -> str:
    """The number as text, or an ATOM; the words inside are expanded in any case, for what they run."""
    number = _number(node, expander) if node else 0
    return ATOM if number is None or abs(number) >= _LIMIT else str(int(number))


def _number(node: Node, expander: "Expander") -> int | None:
    kind = node.get("Type")
    if kind == "Word" or "Parts" in node:
        return _word(expander.text(node if "Parts" in node else {"Parts": []}), expander)
    if kind == "ParenArithm":
        return _number(node["X"], expander)
    if kind == "UnaryArithm":
        return _unary(node, expander)
    return _binary(node, expander) if kind == "BinaryArithm" else None


def _word(text: str, expander: "Expander", depth: int = 0) -> int | None:
    text = solid(text).strip()
    if re.match(r"\w+\[", text):
        expander.subscripts(text)
    based = re.fullmatch(r"(\d{1,2})#([0-9A-Za-z@_]+)", text)
    try:
        if based:
            return int(based[2], int(based[1]))
        if re.fullmatch(r"[-+]?(0[xX][0-9a-fA-F]+|\d+)|", text):
            return int(text or "0", 8 if re.fullmatch(r"[-+]?0[0-7]+", text) else 0 if text.strip("+-0") else 10)
    except ValueError:
        return None
    if re.fullmatch(r"[A-Za-z_]\w*", text) and depth < 4:
        value = expander.lookup(text)
        return _word(value, expander, depth + 1) if isinstance(value, str) and known(solid(value)) else None
    return None


def _unary(node: Node, expander: "Expander") -> int | None:
    value, op = _number(node["X"], expander), node["Op"]
    if op in ("++", "--"):
        new = None if value is None else value + (1 if op == "++" else -1)
        _assign(node["X"], new, expander)
        return value if node.get("Post") else new
    return None if value is None else {"-": -value, "+": value, "~": ~value, "!": int(not value)}.get(op)


def _binary(node: Node, expander: "Expander") -> int | None:
    op, right = node["Op"], _number(node["Y"], expander)
    if op.endswith("=") and op not in ("==", "!=", "<=", ">="):
        value = right if op == "=" else _apply(op[:-1], _number(node["X"], expander), right)
        _assign(node["X"], value, expander)
        return value
    return _apply(op, _number(node["X"], expander), right)


def _apply(op: str, left: int | None, right: int | None) -> int | None:
    if left is None or right is None or op not in _BINARY:
        return None
    try:
        value = int(_BINARY[op](left, right))
    except (ZeroDivisionError, OverflowError, ValueError):
        return None
    return value if abs(value) < _LIMIT else None  # powers of powers have no end


def _assign(node: Node, value: int | None, expander: "Expander") -> None:
    parts = node.get("Parts") or []
    name = parts[0].get("Value", "") if len(parts) == 1 else ""
    if re.fullmatch(r"[A-Za-z_]\w*", name):
        expander.state.env[name] = ATOM if value is None else str(value)


def truth(words: list[str]) -> bool | None:
    """Whether a test of known words holds; None where nobody can tell."""
    match [solid(word) for word in words]:
        case [text] | ["-n", text] if known(text):
            return text != ""
        case ["-z", text] if known(text):
            return text == ""
        case [left, "=" | "==" | "!=" as op, right] if known(left + right) and not has_glob(right):
            return (left == right) == (op != "!=")
        case [left, op, right] if op in _COMPARE and re.fullmatch(r"-?\d{1,9}/-?\d{1,9}", f"{left}/{right}"):
            return bool(_BINARY[_COMPARE[op]](int(left), int(right)))
    return None
