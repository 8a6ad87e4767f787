"""The schema of knowledge files, and what a schema cannot say: that roles exist and expressions compile.

policies/knowledge.schema.json is JSON Schema; what it uses of it is checked here, so that an operator's file is refused
with the place and the reason and no library is needed. A test holds this and a full implementation to the same answers.
"""

import functools
import json
import re
from collections.abc import Mapping
from typing import Any

from . import expressions
from .knowledge import policies_directory, read_entry

_TYPES: dict[str, type | tuple[type, ...]] = {"object": dict, "string": str, "array": list, "boolean": bool}


@functools.cache
def schema() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((policies_directory() / "knowledge.schema.json").read_text("utf-8"))
    return found


def complaint(data: Any) -> str:
    """What is wrong with a knowledge file; nothing where nothing is."""
    problem = _invalid(data, schema(), "")
    return problem or next(filter(None, (_meaning(name, one) for name, one in data.get("program", {}).items())), "")


def _invalid(value: Any, rule: Mapping[str, Any], where: str) -> str:
    if "$ref" in rule:
        rule = schema()["$defs"][rule["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in rule:
        tries = [_invalid(value, one, where) for one in rule["anyOf"]]
        return "" if "" in tries else tries[-1]
    if "type" in rule and not isinstance(value, _TYPES[rule["type"]]):
        return f"{where or 'the file'} is {rule['type']}, not {value!r}"[:200]
    if isinstance(value, str):
        return "" if re.search(rule.get("pattern", ""), value) else f"{where} is not allowed to be {value!r}"
    if isinstance(value, list):
        return next(filter(None, (_invalid(one, rule["items"], f"{where}[{at}]") for at, one in enumerate(value))), "")
    return _invalid_table(value, rule, where) if isinstance(value, dict) else ""


def _invalid_table(value: dict[str, Any], rule: Mapping[str, Any], where: str) -> str:
    known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
    for key, one in value.items():
        path = f"{where}.{key}" if where else key
        if key not in known and others is False:
            return f"{where or 'the file'} has an unknown key {key!r}"
        inner = known.get(key, others)
        problem = _invalid(one, inner, path) if isinstance(inner, dict) else ""
        if problem:
            return problem
    missing = [key for key in rule.get("required", ()) if key not in value]
    return f"{where} needs {missing[0]!r}" if missing else ""


def _meaning(name: str, data: Any) -> str:
    from . import dispatch  # noqa: F401  it has all roles registered
    from .reading import FILTERS, MANY, ONE, PRINTS

    for entry in read_entry(name, data, "").every():
        roles = [*entry.options.values(), *(when.role for when in entry.when), entry.stdin]
        roles += [word.rstrip("*…") for word in entry.operands.split()]
        strange = [role for role in roles if role and role.partition(":")[0] not in {*ONE, *MANY}]
        if strange:
            return f"program.{entry.name}: there is no role {strange[0]!r}"
        prints = [entry.prints, *(when.prints for when in entry.when)]
        strange = [word for word in prints if word and word not in {*FILTERS, *PRINTS, "content", "ran"}]
        if strange:
            return f"program.{entry.name}: {strange[0]!r} is nothing that a program prints"
        for pattern in [
            entry.unless,
            *(text for when in entry.when for text in (when.args, when.arg, when.given, when.unless)),
        ]:
            try:
                expressions.compiled(pattern)
            except Exception as error:
                return f"program.{entry.name}: {pattern!r} is not a regular expression: {error}"
    return ""
