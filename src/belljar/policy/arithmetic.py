"""Shell arithmetic, as far as it is known."""

import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from .marks import ATOM, known, solid
from .parser import Node

if TYPE_CHECKING:
    from .expand import Expander

_LIMIT = 1 << 63
_BINARY: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "<": operator.lt, ">": operator.gt, "<=": operator.le,
    ">=": operator.ge, "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


def evaluate(node: Node | None, expander: "Expander") -> str:
    """The number as text, or an ATOM; the words inside are expanded in any case, for what they run."""
    number = _number(node, expander) if node else 0
    return ATOM if number is None or abs(number) >= _LIMIT else str(int(number))


def _number(node: Node, expander: "Expander") -> int | None:
    kind, op = node.get("Type"), node.get("Op", "")
    if kind == "Word" or "Parts" in node:
        return _word(expander.text(node if "Parts" in node else {"Parts": []}), expander)
    if kind == "ParenArithm":
        return _number(node["X"], expander)
    if kind == "UnaryArithm":
        value = _number(node["X"], expander)
        if op in ("++", "--"):
            return _assign(node["X"], None if value is None else value + (1 if op == "++" else -1), expander)
        return None if value is None else {"-": -value, "+": value, "!": int(not value)}.get(op)
    if kind != "BinaryArithm":
        return None
    left, right = _number(node["X"], expander), _number(node["Y"], expander)
    if op.endswith("=") and op not in _BINARY:
        return _assign(node["X"], right if op == "=" else _apply(op[:-1], left, right), expander)
    return _apply(op, left, right)


def _word(text: str, expander: "Expander", depth: int = 0) -> int | None:
    text = solid(text).strip()
    if re.fullmatch(r"[-+]?[0-9]{1,18}|", text):
        return int(text or "0")
    if re.fullmatch(r"[A-Za-z_]\w*", text) and depth < 4:
        value = expander.lookup(text)
        return _word(value, expander, depth + 1) if isinstance(value, str) and known(solid(value)) else None
    return None


def _apply(op: str, left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None or op not in _BINARY else int(_BINARY[op](left, right))


def _assign(node: Node, value: int | None, expander: "Expander") -> int | None:
    parts = node.get("Parts") or []
    name = parts[0].get("Value", "") if len(parts) == 1 else ""
    if re.fullmatch(r"[A-Za-z_]\w*", name):
        expander.state.env[name] = ATOM if value is None or abs(value) >= _LIMIT else str(value)
    return value
