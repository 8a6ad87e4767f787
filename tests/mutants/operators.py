"""Which changes are made, and where. Runs in the environment that has cosmic-ray, whose operators these are.

    python operators.py COUNT SEED MODULE …      → one JSON array on stdout

cosmic-ray has no operator that takes a statement out, swaps two arguments or turns `in` round; a check that is not
called and two flags the wrong way round are just what tests of a protection must notice. The operators of it that are
left out change what no test can see here: annotations, patience in seconds.
"""

from __future__ import annotations

import difflib
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.operators.provider import OperatorProvider
from parso.python.tree import ExprStmt, PythonLeaf

Span = tuple[tuple[int, int], tuple[int, int]]
Node = Any  # parso has no types

CHOSEN = (
    "AddNot",
    "ReplaceAndWithOr",
    "ReplaceBreakWithContinue",
    "ReplaceComparisonOperator_Eq_NotEq",
    "ReplaceComparisonOperator_GtE_Gt",
    "ReplaceComparisonOperator_Gt_GtE",
    "ReplaceComparisonOperator_IsNot_Is",
    "ReplaceComparisonOperator_Is_IsNot",
    "ReplaceComparisonOperator_LtE_Lt",
    "ReplaceComparisonOperator_Lt_LtE",
    "ReplaceComparisonOperator_NotEq_Eq",
    "ReplaceContinueWithBreak",
    "ReplaceFalseWithTrue",
    "ReplaceOrWithAnd",
    "ReplaceTrueWithFalse",
    "ReplaceUnaryOperator_Delete_Not",
    "ZeroIterationForLoop",
)


def _leaf(text: str, like: Node) -> PythonLeaf:
    (leaf,) = parso.parse(text).children[:1]
    leaf.prefix = like.get_first_leaf().prefix
    return leaf


class TakeStatementOut(Operator):  # type: ignore[misc, unused-ignore]
    """`check(path)` → `None`: a call whose answer nobody uses, or a `raise`."""

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        if (
            node.parent is None
            or node.parent.type != "simple_stmt"
            or isinstance(node, ExprStmt)
        ):
            return
        code = node.get_code(include_prefix=False)
        awaited = code.removeprefix("await ").lstrip()
        is_call = node.type in ("atom_expr", "power") and awaited.endswith(")")
        if node.type == "raise_stmt" or code == "raise" or is_call:
            yield node.start_pos, node.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        return _leaf("None", node)

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (
            Example("check(path)\n", "None\n"),
            Example("def f():\n    raise X\n", "def f():\n    None\n"),
        )


class SwapArguments(Operator):  # type: ignore[misc, unused-ignore]
    """`copy(a, b)` → `copy(b, a)`: the first two arguments that have no name."""

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        if node.type == "arglist" and self._swappable(node):
            yield node.start_pos, node.end_pos

    def _swappable(self, node: Node) -> bool:
        first, second = (
            node.children[0],
            node.children[2] if len(node.children) > 2 else None,
        )
        plain = second is not None and "argument" not in (first.type, second.type)
        return plain and first.get_code(False) != second.get_code(False)

    def mutate(self, node: Node, index: int) -> Node:
        first, second = node.children[0], node.children[2]
        a, b = first.get_first_leaf(), second.get_first_leaf()
        a.prefix, b.prefix = b.prefix, a.prefix
        node.children[0], node.children[2] = second, first
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("f(a, b)", "f(b, a)"), Example("f(a, b, c=1)", "f(b, a, c=1)"))


class TurnMembership(Operator):  # type: ignore[misc, unused-ignore]
    """`a in b` → `a not in b`, and back."""

    TURNED: ClassVar[dict[str, str]] = {"in": "not in", "not in": "in"}

    def mutation_positions(self, node: Node) -> Iterator[Span]:
        if (
            node.type == "comparison"
            and node.children[1].get_code(False) in self.TURNED
        ):
            yield node.start_pos, node.end_pos

    def mutate(self, node: Node, index: int) -> Node:
        node.children[1] = parso.parse(
            f" {self.TURNED[node.children[1].get_code(False)]}"
        )
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("a in b", "a not in b"), Example("a not in b", "a in b"))


OWN = (TakeStatementOut, SwapArguments, TurnMembership)


def mutants(
    modules: Sequence[Path], count: int, random: Random
) -> Iterator[dict[str, Any]]:
    """`count` of them, or all if that is 0. A line that has many is no likelier than one with a single one."""
    kinds = [kind() for kind in (*OWN, *map(OperatorProvider().__getitem__, CHOSEN))]
    lines: dict[tuple[Path, int], list[tuple[Operator, int]]] = {}
    for module in modules:
        nodes = list(ast_nodes(get_ast(module.read_text())))
        for kind in kinds:
            spots = [
                start for node in nodes for start, _ in kind.mutation_positions(node)
            ]
            for occurrence, (line, _) in enumerate(spots):
                lines.setdefault((module, line), []).append((kind, occurrence))
    chosen = [
        (place, choice)
        for place, choices in lines.items()
        for choice in random.sample(choices, len(choices))
    ]
    random.shuffle(chosen)
    chosen.sort(key=_turns())
    made = (_mutant(module, line, *choice) for (module, line), choice in chosen)
    return islice(filter(None, made), count or None)


def _turns() -> Callable[[tuple[Any, Any]], int]:
    """A sort key that takes one of each line, then a second of each, and so on."""
    seen: Counter[Any] = Counter()

    def turn(each: tuple[Any, Any]) -> int:
        seen[each[0]] += 1
        return seen[each[0]]

    return turn


def _mutant(
    module: Path, line: int, kind: Operator, occurrence: int
) -> dict[str, Any] | None:
    source = module.read_text()
    changed = mutate_code(source, kind, occurrence)
    if not changed or changed == source or not _compiles(changed):
        return None
    diff = list(
        difflib.unified_diff(
            source.splitlines(), changed.splitlines(), lineterm="", n=1
        )
    )[3:]
    return {"module": str(module), "line": line, "text": changed, "diff": diff}


def _compiles(text: str) -> bool:
    try:
        compile(text, "mutant", "exec")
    except SyntaxError:
        return False
    return True


def check_own() -> None:
    for kind in OWN:
        for example in kind.examples():
            assert (
                mutate_code(example.pre_mutation_code, kind(), 0)
                == example.post_mutation_code
            ), kind.__name__


if __name__ == "__main__":
    check_own()
    count, seed, *modules = sys.argv[1:]
    print(
        json.dumps(
            list(
                mutants([Path(module) for module in modules], int(count), Random(seed))
            )
        )
    )
