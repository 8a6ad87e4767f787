"""TOML files that people write, checked against a JSON Schema: the place of a mistake, its line, and what was meant.

What our schemas use of JSON Schema is checked here, so that no library is needed. A test holds this and a full
implementation to the same answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_TYPES: dict[str, type] = {"object": dict, "string": str, "array": list, "boolean": bool}
_NAMES = {"object": "a table", "string": "text", "array": "a list", "boolean": "true or false"}


Problems = Iterator[tuple[str, str]]  # where, and what is wrong there


def problems(value: Any, schema: Mapping[str, Any]) -> Problems:
    """All that is wrong with what a file says, in its order."""
    return _problems(value, schema, "", schema.get("$defs", {}))


def _problems(value: Any, rule: Mapping[str, Any], where: str, definitions: Mapping[str, Any]) -> Problems:
    if "$ref" in rule:
        rule = definitions[rule["$ref"].rsplit("/", 1)[-1]]
    if "anyOf" in rule:
        tries = [list(_problems(value, one, where, definitions)) for one in rule["anyOf"]]
        yield from () if [] in tries else tries[isinstance(value, list | dict)]
    elif "enum" in rule and value not in rule["enum"]:
        yield where, f"{where} is one of {', '.join(rule['enum'])}, not {value!r}"
    elif "type" in rule and not isinstance(value, _TYPES[rule["type"]]):
        yield where, f"{where or 'the file'} is {_NAMES[rule['type']]}, not {value!r}"[:200]
    elif isinstance(value, str) and not re.search(rule.get("pattern", ""), value):
        guess = meant(value, rule.get("examples", ()))
        yield where, f"{where} is {rule.get('description', 'something else')}, not {value!r}{guess}"
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _problems(one, rule["items"], f"{where}[{at}]", definitions)
    elif isinstance(value, dict):
        known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        for key, one in value.items():
            inner = known.get(key, others)
            if inner is False:
                told = f"{where or 'the file'} has an unknown key {key!r}{meant(key, known)}"
                yield f"{where}.{key}", told
            elif inner is not True:
                yield from _problems(one, inner, f"{where}.{key}" if where else key, definitions)
        for key in (key for key in rule.get("required", ()) if key not in value):
            yield where, f"{where or 'the file'} needs {key!r}"


def meant(word: str, known: Iterable[str]) -> str:
    import difflib

    close = difflib.get_close_matches(word, known, 1)
    return f"; did you mean {close[0]!r}?" if close else ""


def line_of(text: str, where: str) -> int:
    """The line of a place such as `rule[2].risk` or `program.deployctl.verbs.destroy`: of the last word that is there,
    as a key if it is one."""
    lines, table, at = text.splitlines(), re.match(r"(\w+)\[(\d+)\]", where), 0
    if table:
        starts = [number for number, line in enumerate(lines) if line.strip() == f"[[{table[1]}]]"]
        at, where = (starts + [0] * 999)[int(table[2])], where[table.end() :]
    for word in map(re.escape, filter(None, re.split(r"[.\s]+|\[\d+\]", where))):
        keys = (rf'\W*(?:[\w"-]+\.)*"?{word}(?![\w-])', rf".*(?<![\w-]){word}(?![\w-])")
        at = next((number for key in keys for number in range(at, len(lines)) if re.match(key, lines[number])), at)
    return at + 1
