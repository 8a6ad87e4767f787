"""Knowledge: what policies/knowledge/*.toml, and an operator's own files, say of programs and languages.

An entry says how a program's arguments are read, which role each of them plays, and what the program does with them.
The manual of the keys is policies/README.md, their schema policies/knowledge.schema.json.
"""

import fnmatch
import functools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import Any

from belljar import tables as shipped_tables
from belljar.errors import PolicyError
from belljar.records import record


def policies_directory() -> Path:
    """The shipped policies: inside the installed package, or at the top of the repository."""
    inside = Path(__file__).parent.parent / "policies"
    return inside if inside.is_dir() else Path(__file__).parents[3] / "policies"


def unversioned(name: str) -> str:
    return name.rstrip(".0123456789").removesuffix("-")


@record
class When:
    """What holds where the arguments look so: as one text (`args`), each alone (`arg`), or with the standard input and
    the files of this command that they name (`given`; `files` names more of them)."""

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
    """What is known of a program, or of one verb of it."""

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


_KEYS = {one.name for one in fields(Entry)} - {"name", "source", "trusted"}


def read_entry(name: str, data: Any, source: str, trusted: bool = True) -> Entry:
    """A verb may be written as the effect alone."""
    data = {"effect": data} if isinstance(data, str) else data
    read = [(verb, read_entry(f"{name} {verb}", one, source)) for verb, one in data.get("verbs", {}).items()]
    verbs = tuple((tuple(one.split()), entry) for patterns, entry in read for one in patterns.split(","))
    when = tuple(When(**one) for one in data.get("when", ()))
    return Entry(**{**data, "name": name, "verbs": verbs, "when": when, "source": source, "trusted": trusted})


@record
class Knowledge:
    """Programs by name (more than one entry where an operator adds to a shipped one), and languages."""

    programs: Mapping[str, tuple[Entry, ...]]
    languages: Mapping[str, Mapping[str, Any]]
    patterns: tuple[str, ...] = ()

    def entries(self, name: str) -> tuple[Entry, ...]:
        """By name, by the name without a version (python3.11, gcc-12), or by a pattern such as `mkfs.*`."""
        exact = self.programs.get(name) or self.programs.get(unversioned(name))
        return exact or next((self.programs[one] for one in self.patterns if fnmatch.fnmatchcase(name, one)), ())

    def every(self) -> list[Entry]:
        """All entries, those of verbs too, each once."""
        tops = {id(entry): entry for entries in self.programs.values() for entry in entries}
        return [inner for entry in tops.values() for inner in entry.every()]

    def has_trait(self, name: str, trait: str) -> bool:
        return any(trait in entry.traits.split() for entry in self.programs.get(name, ()))

    def taught(self, files: Iterable[tuple[str, bool]]) -> "Knowledge":
        """This, and what these files add. A file of a less trusted layer makes no program less of a stranger."""
        programs = dict(self.programs)
        for path, trusted in files:
            data = _parsed(Path(path))
            check(data, path)
            for name, entry in _entries(data, path, trusted):
                programs[name] = (*programs.get(name, ()), entry)
        return replace(self, programs=programs, patterns=_patterns(programs))


def _entries(data: Mapping[str, Any], source: str, trusted: bool) -> Iterator[tuple[str, Entry]]:
    for name, one in data.get("program", {}).items():
        entry = read_entry(name, one, source, trusted)
        yield from ((known, entry) for known in (name, *entry.also.split()))


def _parsed(path: Path) -> dict[str, Any]:
    try:
        return shipped_tables.parsed(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise PolicyError(f"{path}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    except ValueError as error:  # of tomllib
        raise PolicyError(f"{path}: {error}") from error


read_file = functools.cache(_parsed)


def check(data: Mapping[str, Any], source: str) -> None:
    """Refuse a file that the schema, or one of its own words, does not allow."""
    from .schema import complaint, located

    where, problem = complaint(data) if data else ("", "the file is empty: it needs a [policy] or a [program.NAME]")
    if problem:
        raise PolicyError(f"{located(source, where)}: {problem}")


def _files() -> list[Path]:
    return sorted((policies_directory() / "knowledge").glob("*.toml"))


@functools.cache
def tables() -> Mapping[str, Mapping[str, Any]]:
    """All shipped files as one: program, language, place, setting."""
    merged: dict[str, dict[str, Any]] = {}
    for path in _files():
        for table, content in read_file(path).items():
            merged.setdefault(table, {}).update(content)
    return merged


class _Shipped(Mapping[str, tuple[Entry, ...]]):
    """The shipped programs by each of their names. An entry is made when it is asked for: a command needs few."""

    def __init__(self) -> None:
        self._homes: dict[str, tuple[Path, str]] = {}
        self._made: dict[tuple[Path, str], tuple[Entry, ...]] = {}
        for path in _files():
            for program, data in read_file(path).get("program", {}).items():
                for name in (program, *(data.get("also", "").split() if isinstance(data, dict) else ())):
                    self._homes.setdefault(name, (path, program))

    def __getitem__(self, name: str) -> tuple[Entry, ...]:
        home = path, program = self._homes[name]
        if home not in self._made:
            entry = read_entry(program, read_file(path)["program"][program], f"knowledge/{path.name}")
            self._made.setdefault(home, (entry,))  # another thread may have been first
        return self._made[home]

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


@functools.cache
def shipped() -> Knowledge:
    programs = _Shipped()
    return Knowledge(programs, tables().get("language", {}), _patterns(programs))


def _patterns(programs: Iterable[str]) -> tuple[str, ...]:
    return tuple(name for name in programs if "*" in name)
