"""Checks TOML files that people write against a JSON Schema, and says where a mistake is and what was probably meant.

Only what our schemas use of JSON Schema is implemented, so no library is needed. A test compares the answers with those
of a full implementation.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from belljar.errors import closest

_TYPES: dict[str, type] = {
    "object": dict,
    "string": str,
    "array": list,
    "boolean": bool,
}
_NAMES = {
    "object": "a table",
    "string": "text",
    "array": "a list",
    "boolean": "true or false",
}

Problems = Iterator[tuple[str, str]]  # place, message


def problems(value: Any, schema: Mapping[str, Any]) -> Problems:
    """Every mistake in a file, in the file's order."""
    return _problems(value, schema, "", schema.get("$defs", {}))


def _problems(
    value: Any, rule: Mapping[str, Any], where: str, definitions: Mapping[str, Any]
) -> Problems:
    if "$ref" in rule:
        rule = definitions[rule["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in rule:
        # Our schemas list the simple type first, then the list or table: report the mistakes for the matching one.
        tries = [
            list(_problems(value, choice, where, definitions))
            for choice in rule["anyOf"]
        ]
        yield from () if [] in tries else tries[isinstance(value, list | dict)]
    elif "enum" in rule and value not in rule["enum"]:
        yield where, f"{where} is one of {', '.join(rule['enum'])}, not {value!r}"
    elif "type" in rule and not isinstance(value, _TYPES[rule["type"]]):
        yield (
            where,
            f"{where or 'the file'} is {_NAMES[rule['type']]}, not {value!r}"[:200],
        )
    elif isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        guess = did_you_mean(value, rule.get("examples", ()))
        yield (
            where,
            f"{where} is {rule.get('description', 'something else')}, not {value!r}{guess}",
        )
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _problems(item, rule["items"], f"{where}[{index}]", definitions)
    elif isinstance(value, dict):
        known, others = (
            rule.get("properties", {}),
            rule.get("additionalProperties", True),
        )
        for key, item in value.items():
            inner = known.get(key, others)
            if inner is False:
                yield (
                    f"{where}.{key}",
                    f"{where or 'the file'} has an unknown key {key!r}{did_you_mean(key, known)}",
                )
            elif inner is not True:
                yield from _problems(
                    item, inner, f"{where}.{key}" if where else key, definitions
                )
        for key in (key for key in rule.get("required", ()) if key not in value):
            yield where, f"{where or 'the file'} needs {key!r}"


def did_you_mean(word: str, known: Collection[str]) -> str:
    close = closest(word, known)
    return f"; did you mean {close!r}?" if close else ""


def line_of(text: str, where: str) -> int:
    """The line number of a place such as `rule[2].risk` or `program.deployctl.verbs.destroy`.

    Follows the words of the place as far as they are in the file. A key is preferred to a word inside a line.
    """
    lines, table, line = text.splitlines(), re.match(r"(\w+)\[(\d+)\]", where), 0
    if table:
        starts = [
            number
            for number, content in enumerate(lines)
            if content.strip() == f"[[{table[1]}]]"
        ]
        line, where = (starts + [0] * 999)[int(table[2])], where[table.end() :]
    for word in map(re.escape, filter(None, re.split(r"[.\s]+|\[\d+\]", where))):
        keys = (rf'\W*(?:[\w"-]+\.)*"?{word}(?![\w-])', rf".*(?<![\w-]){word}(?![\w-])")
        following = range(line, len(lines))
        line = next(
            (
                number
                for key in keys
                for number in following
                if re.match(key, lines[number])
            ),
            line,
        )
    return line + 1
