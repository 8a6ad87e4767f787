"""Check policy and knowledge files: by their schemas (policies/*.schema.json), and that roles and expressions exist."""

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from belljar.errors import PolicyError
from belljar.toml_schema import did_you_mean, problems

from . import expressions
from .knowledge import Entry, read_entry
from .toml_files import file_and_line, policies_directory


@functools.cache
def schema(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (policies_directory() / f"{name}.schema.json").read_text("utf-8")
    )
    return found


def first_problem(data: Any, name: str = "knowledge") -> tuple[str, str]:
    """The place and the text of the first problem of a file; empty if there is none."""
    found = next(problems(data, schema(name)), None)
    if found is None and name == "knowledge":
        entries = (
            one
            for name, data in data.get("program", {}).items()
            for one in read_entry(name, data, "").every()
        )
        found = next(
            (
                (f"program.{one.name}", problem)
                for one in entries
                for problem in _entry_problems(one)
            ),
            None,
        )
    return found or ("", "")


def _entry_problems(entry: Entry) -> Iterator[str]:
    from . import dispatch  # noqa: F401  registers all roles
    from .reading import FILTERS, PRINTS, WORD_ROLES, WORDS_ROLES

    roles = [*entry.options.values(), *(when.role for when in entry.when), entry.stdin]
    for role in [*roles, *(word.rstrip("*…") for word in entry.operands.split())]:
        if role and role.partition(":")[0] not in {*WORD_ROLES, *WORDS_ROLES}:
            yield f"program.{entry.name}: there is no role {role!r}{did_you_mean(role, {*WORD_ROLES, *WORDS_ROLES})}"
    outputs = {*FILTERS, *PRINTS, "content", "command-output", ""}
    for word in {entry.prints, *(when.prints for when in entry.when)} - outputs:
        yield f"program.{entry.name}: prints cannot be {word!r}{did_you_mean(word, outputs)}"
    for words, verb in entry.verbs:
        if problem := _verb_problem(words, "" if entry.also else entry.name):
            yield f"program.{verb.name}: {' '.join(words)!r} {problem}"
    patterns = (
        text
        for when in entry.when
        for text in (when.args, when.arg, when.given, when.unless)
    )
    for pattern in [entry.unless, *patterns]:
        if problem := expressions.fault(pattern):
            yield f"program.{entry.name}: {pattern!r} is not a regular expression: {problem}"


def _verb_problem(pattern: tuple[str, ...], program: str) -> str:
    """Why a verb's pattern cannot match what was meant."""
    first = {*pattern[0].split("|")} if pattern else set()
    if not pattern:
        return "is no word"
    if program in first:
        return "begins with the program's own name: leave that out"
    if any(word.startswith("-") for word in pattern):
        return "holds an option, which is no verb: see `when` and `flags`"
    again = next(
        (
            piece
            for piece in pattern[1:]
            if "|" in piece and first & {*piece.split("|")}
        ),
        "",
    )
    if again:
        return f"repeats its first word: {again!r} stands for one word; write 'a b, a c' or 'a b|c'"
    return ""


def check(data: Mapping[str, Any], source: str) -> None:
    """PolicyError if the file has a key, effect, role or expression that is not valid."""
    where, problem = (
        first_problem(data)
        if data
        else ("", "the file is empty: it needs a [policy] or a [program.NAME]")
    )
    if problem:
        raise PolicyError(f"{file_and_line(source, where)}: {problem}")
