"""The schemas of policy and knowledge files, and what a schema cannot say: that roles exist and expressions compile.

policies/*.schema.json are JSON Schema; what they use of it is checked here, so that an operator's file is refused with
the place and the reason and no library is needed. A test holds this and a full implementation to the same answers.
"""

import difflib
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from . import expressions
from .knowledge import Entry, policies_directory, read_entry

_TYPES: dict[str, type] = {"object": dict, "string": str, "array": list, "boolean": bool}
_NAMES = {"object": "a table", "string": "text", "array": "a list", "boolean": "true or false"}


@functools.cache
def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((policies_directory() / f"{name}.schema.json").read_text("utf-8"))
    return found


def complaint(data: Any, name: str = "knowledge") -> tuple[str, str]:
    """Where a file is wrong, and what is wrong there; nothing where nothing is."""
    found = next(_Checker(schema(name)).problems(data, schema(name), ""), None)
    if found is None and name == "knowledge":
        entries = (one for name, data in data.get("program", {}).items() for one in read_entry(name, data, "").every())
        found = next(((f"program.{one.name}", problem) for one in entries for problem in _meaning(one)), None)
    return found or ("", "")


class _Checker:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        self.definitions = schema["$defs"]

    def problems(self, value: Any, rule: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
        if "$ref" in rule:
            rule = self.definitions[rule["$ref"].rsplit("/", 1)[-1]]
        if "anyOf" in rule:
            tries = [list(self.problems(value, one, where)) for one in rule["anyOf"]]
            yield from () if [] in tries else tries[isinstance(value, list | dict)]
        elif "enum" in rule and value not in rule["enum"]:
            yield where, f"{where} is one of {', '.join(rule['enum'])}, not {value!r}"
        elif "type" in rule and not isinstance(value, _TYPES[rule["type"]]):
            yield where, f"{where or 'the file'} is {_NAMES[rule['type']]}, not {value!r}"[:200]
        elif isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
            yield where, f"{where} is {rule.get('description', 'something else')}, not {value!r}"
        elif isinstance(value, list):
            for at, one in enumerate(value):
                yield from self.problems(one, rule["items"], f"{where}[{at}]")
        elif isinstance(value, dict):
            yield from self._table(value, rule, where)

    def _table(self, value: Mapping[str, Any], rule: Mapping[str, Any], where: str) -> Iterator[tuple[str, str]]:
        known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        for key, one in value.items():
            inner = known.get(key, others)
            if inner is False:
                yield where, f"{where or 'the file'} has an unknown key {key!r}{_meant(key, known)}"
            elif inner is not True:
                yield from self.problems(one, inner, f"{where}.{key}" if where else key)
        for key in rule.get("required", ()):
            if key not in value:
                yield where, f"{where or 'the file'} needs {key!r}"


def _meant(word: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _meaning(entry: Entry) -> Iterator[str]:
    from . import dispatch  # noqa: F401  it has all roles registered
    from .reading import FILTERS, MANY, ONE, PRINTS

    roles = [*entry.options.values(), *(when.role for when in entry.when), entry.stdin]
    for role in [*roles, *(word.rstrip("*…") for word in entry.operands.split())]:
        if role and role.partition(":")[0] not in {*ONE, *MANY}:
            yield f"program.{entry.name}: there is no role {role!r}{_meant(role, {*ONE, *MANY})}"
    for word in [entry.prints, *(when.prints for when in entry.when)]:
        if word and word not in {*FILTERS, *PRINTS, "content", "ran"}:
            yield f"program.{entry.name}: {word!r} is nothing that a program prints"
    patterns = (text for when in entry.when for text in (when.args, when.arg, when.given, when.unless))
    for pattern in [entry.unless, *patterns]:
        problem = expressions.fault(pattern)
        if problem:
            yield f"program.{entry.name}: {pattern!r} is not a regular expression: {problem}"
