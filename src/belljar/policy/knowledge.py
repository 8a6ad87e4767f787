"""Knowledge: what policies/knowledge/*.toml, and an operator's own files, say about programs and languages.

An entry says how to read a program's arguments, which role each plays, and which effects follow. The keys are explained
in policies/README.md; their schema is policies/knowledge.schema.json.
"""

import fnmatch
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, replace
from pathlib import Path
from typing import Any

from belljar.records import record

from .toml_files import read_shipped, shipped_files, tables


def unversioned(name: str) -> str:
    return name.rstrip(".0123456789").removesuffix("-")


@record
class When:
    """A condition, and what follows if it holds; policies/README.md explains the keys."""

    args: str = ""
    arg: str = ""
    given: str = ""
    files: str = ""
    flag: str = ""
    unless: str = ""
    effect: str = ""
    role: str = ""
    prints: str = ""


@record
class Entry:
    """What is known of a program or of one of its verbs."""

    name: str
    also: str = ""
    traits: str = ""
    valued: str = ""
    posix: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)
    operands: str = ""
    stdin: str = ""
    effect: str = ""
    destroys: str = ""
    unless: str = ""
    when: tuple[When, ...] = ()
    verbs: tuple[tuple[tuple[str, ...], "Entry"], ...] = ()
    prints: str = ""
    settings: str = ""
    runs: Mapping[str, str] = field(default_factory=dict)
    examples: Mapping[str, str] = field(default_factory=dict)
    source: str = ""
    trusted: bool = True

    @property
    def shipped(self) -> bool:
        return self.source.startswith("knowledge/")

    @property
    def takes(self) -> str:
        """The names of all options that take a value."""
        return " ".join([self.valued, *self.options])

    def every(self) -> Iterator["Entry"]:
        yield self
        for _, verb in self.verbs:
            yield from verb.every()


def read_entry(name: str, data: Any, source: str, trusted: bool = True) -> Entry:
    """The entry that a table describes. A text instead of a table is its effect."""
    data = {"effect": data} if isinstance(data, str) else data
    read = [
        (verb, read_entry(f"{name} {verb}", one, source))
        for verb, one in data.get("verbs", {}).items()
    ]
    verbs = tuple(
        (tuple(one.split()), entry)
        for patterns, entry in read
        for one in patterns.split(",")
    )
    when = tuple(When(**one) for one in data.get("when", ()))
    return Entry(
        **{
            **data,
            "name": name,
            "verbs": verbs,
            "when": when,
            "source": source,
            "trusted": trusted,
        }
    )


@record
class Knowledge:
    """Programs by name (more than one entry where an operator adds to a shipped one), and languages."""

    programs: Mapping[str, tuple[Entry, ...]]
    languages: Mapping[str, Mapping[str, Any]]
    patterns: tuple[str, ...] = ()

    def entries(self, name: str) -> tuple[Entry, ...]:
        """By name, by the name without a version (python3.11, gcc-12), or by a pattern such as `mkfs.*`."""
        exact = self.programs.get(name) or self.programs.get(unversioned(name))
        return exact or next(
            (
                self.programs[one]
                for one in self.patterns
                if fnmatch.fnmatchcase(name, one)
            ),
            (),
        )

    def every(self) -> list[Entry]:
        """All entries, those of verbs too, each once."""
        tops = {
            id(entry): entry for entries in self.programs.values() for entry in entries
        }
        return [inner for entry in tops.values() for inner in entry.every()]

    def has_trait(self, name: str, trait: str) -> bool:
        return any(
            trait in entry.traits.split() for entry in self.programs.get(name, ())
        )

    def with_file(
        self, data: Mapping[str, Any], source: str, trusted: bool
    ) -> "Knowledge":
        """This, and what a file adds. One that is not trusted makes no program known."""
        programs = dict(self.programs)
        for name, entry in _entries(data, source, trusted):
            programs[name] = (*programs.get(name, ()), entry)
        return replace(self, programs=programs, patterns=_patterns(programs))


def _entries(
    data: Mapping[str, Any], source: str, trusted: bool
) -> Iterator[tuple[str, Entry]]:
    for name, one in data.get("program", {}).items():
        entry = read_entry(name, one, source, trusted)
        yield from ((known, entry) for known in (name, *entry.also.split()))


class _Shipped(Mapping[str, tuple[Entry, ...]]):
    """The shipped programs by each of their names. An entry is built when it is needed: a command needs few."""

    def __init__(self) -> None:
        self._locations: dict[str, tuple[Path, str]] = {}
        self._built: dict[tuple[Path, str], tuple[Entry, ...]] = {}
        for path in shipped_files():
            for program, data in read_shipped(path).get("program", {}).items():
                for name in (
                    program,
                    *(data.get("also", "").split() if isinstance(data, dict) else ()),
                ):
                    self._locations.setdefault(name, (path, program))

    def __getitem__(self, name: str) -> tuple[Entry, ...]:
        location = path, program = self._locations[name]
        if location not in self._built:
            entry = read_entry(
                program,
                read_shipped(path)["program"][program],
                f"knowledge/{path.name}",
            )
            self._built.setdefault(
                location, (entry,)
            )  # another thread may have built it
        return self._built[location]

    def __iter__(self) -> Iterator[str]:
        return iter(self._locations)

    def __len__(self) -> int:
        return len(self._locations)


@functools.cache
def shipped() -> Knowledge:
    programs = _Shipped()
    return Knowledge(programs, tables().get("language", {}), _patterns(programs))


def _patterns(programs: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in programs if "*" in name)
