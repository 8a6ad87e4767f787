"""The schemas of policy and knowledge files, and what a schema cannot say: that roles exist and expressions compile.

policies/*.schema.json are JSON Schema; what they use of it is checked here, so that an operator's file is refused with
the place and the reason and no library is needed. A test holds this and a full implementation to the same answers.
"""

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from . import expressions
from .knowledge import Entry, policies_directory, read_entry

_TYPES: dict[str, type] = {"object": dict, "string": str, "array": list, "boolean": bool}
_NAMES = {"object": "a table", "string": "text", "array": "a list", "boolean": "true or false"}


Problems = Iterator[tuple[str, str]]  # where, and what is wrong there


@functools.cache
def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((policies_directory() / f"{name}.schema.json").read_text("utf-8"))
    return found


def complaint(data: Any, name: str = "knowledge") -> tuple[str, str]:
    """Where a file is wrong, and what is wrong there; nothing where nothing is."""
    found = next(_problems(data, schema(name), "", schema(name)["$defs"]), None)
    if found is None and name == "knowledge":
        entries = (one for name, data in data.get("program", {}).items() for one in read_entry(name, data, "").every())
        found = next(((f"program.{one.name}", problem) for one in entries for problem in _meaning(one)), None)
    return found or ("", "")


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
        meant = _meant(value, rule.get("examples", ()))
        yield where, f"{where} is {rule.get('description', 'something else')}, not {value!r}{meant}"
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _problems(one, rule["items"], f"{where}[{at}]", definitions)
    elif isinstance(value, dict):
        known, others = rule.get("properties", {}), rule.get("additionalProperties", True)
        for key, one in value.items():
            inner = known.get(key, others)
            if inner is False:
                told = f"{where or 'the file'} has an unknown key {key!r}{_meant(key, known)}"
                yield f"{where}.{key}", told
            elif inner is not True:
                yield from _problems(one, inner, f"{where}.{key}" if where else key, definitions)
        for key in (key for key in rule.get("required", ()) if key not in value):
            yield where, f"{where or 'the file'} needs {key!r}"


def _meant(word: str, known: Iterable[str]) -> str:
    import difflib

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


def located(source: str, where: str) -> str:
    """A file and the line of a place in it; for a shipped one, the file as the repository names it."""
    try:
        text = (policies_directory() / source if source.startswith("knowledge/") else Path(source)).read_text("utf-8")
    except (OSError, UnicodeDecodeError):
        return source
    return f"{source}:{line_of(text, where)}"
