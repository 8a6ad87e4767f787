"""One program call, as the program table sees it: its arguments, its input, and verbs for its effects."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from . import files
from .machine import Machine
from .marks import ENCODED, FILE, NETWORK, SECRET, SENSITIVE, UNKNOWN, has, show, solid, unglob
from .shellstate import Feed, ShellState

Handler = Callable[["Call"], str | None]
PROGRAMS: dict[str, Handler] = {}
_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def program(names: str) -> Callable[[Handler], Handler]:
    """Register the reader of these programs' arguments. It gives the abstract standard output (None: not known)."""

    def register(handler: Handler) -> Handler:
        PROGRAMS.update(dict.fromkeys(names.split(), handler))
        return handler

    return register


@dataclass(slots=True, repr=False, eq=False)
class Options:
    """What a program was given besides its operands."""

    flags: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        """A flag by any of its names; a long one may be abbreviated, as getopt_long allows."""
        for name in names:
            if name in self.flags or name in self.values:
                return True
            if len(name) > 1 and any(len(flag) > 2 and name.startswith(flag) for flag in (*self.flags, *self.values)):
                return True
        return False

    def after_flag(self, words: list[str], args: list[str]) -> bool:
        """Whether each of these operands comes right behind an option, so that it may be its value."""
        places = [args.index(word) for word in words if word in args]
        return all(place and args[place - 1].startswith("-") for place in places)

    def get(self, *names: str) -> str:
        return next((self.values[name][-1] for name in names if name in self.values), "")

    def all(self, *names: str) -> list[str]:
        return [value for name in names for value in self.values.get(name, [])]


class Call:
    __slots__ = ("args", "feed", "machine", "name", "original", "state")

    def __init__(self, machine: Machine, name: str, args: list[str], state: ShellState, feed: Feed) -> None:
        self.machine, self.name, self.args, self.state, self.feed = machine, name, args, state, feed
        self.original = " ".join(map(solid, args))

    @property
    def stdin(self) -> str:
        return self.feed.text

    @staticmethod
    def known(machine: Machine, name: str) -> bool:
        return name in PROGRAMS or name in machine.knowledge.programs

    def is_program(self, name: str) -> bool:
        return Call.known(self.machine, name)

    def options(self, takes: str, posix: bool = False) -> Options:
        """Parse arguments; `takes` names the options with a value: letters, and words for long ones."""
        found, wanted, index = Options(), set(takes.split()), 0
        while index < len(self.args):
            arg = unglob(solid(self.args[index])) if self.args[index][:1] == "-" else self.args[index]
            index += 1
            if arg == "--":
                found.rest += self.args[index:]
                break
            if arg.startswith("--"):
                name, equals, value = arg[2:].partition("=")
                if not equals and name in wanted and index < len(self.args):
                    value, equals, index = self.args[index], "=", index + 1
                found.values.setdefault(name, []).append(value) if equals else found.flags.add(name)
            elif arg.startswith("-") and arg != "-":
                index = self._cluster(arg[1:], wanted, found, index)
            else:
                found.rest.append(self.args[index - 1])
                if posix:
                    found.rest += self.args[index:]
                    break
        return found

    def _cluster(self, letters: str, wanted: set[str], found: Options, index: int) -> int:
        if letters in wanted and index < len(self.args):  # -name value, as find and java write it
            found.values.setdefault(letters, []).append(self.args[index])
            return index + 1
        for at, letter in enumerate(letters):
            if letter in wanted:
                value = letters[at + 1 :]
                if not value and index < len(self.args):
                    value, index = self.args[index], index + 1
                found.values.setdefault(letter, []).append(value)
                return index
            found.flags.add(letter)
        return index

    def emit(self, kind: str, target: str = "", *flags: str) -> None:
        self.machine.emit(kind, target or self.text(), flags=frozenset(flags), program=self.name)

    def text(self) -> str:
        return show(f"{self.name} {self.original}").rstrip()

    def read(self, path: str) -> str:
        return self.stdin if path in _STDIN else files.read_path(self.machine, path, self.state)

    def script(self, path: str) -> str | None:
        """The text of a script where this command feeds or wrote it."""
        return self.stdin if path in _STDIN else self.machine.read_file(path, self.state)

    def named(self) -> str:
        """What is in the files of this command that the arguments name."""
        words = [unglob(arg) for arg in self.args]
        paths = dict.fromkeys(word for arg in words for word in (arg, re.sub(r"^(--?[\w-]+=|-\w)", "", arg)))
        return "\n".join(self.machine.read_file(path, self.state) or "" for path in paths if path)

    def handed(self) -> str:
        """All the text a program is given: its arguments, its standard input, the files that it names."""
        return "\n".join([*map(unglob, self.args), self.stdin, self.named()])

    def whole(self, path: str, *kinds: str) -> bool:
        """Whether a path is all of a home or of the machine (or of such a place)."""
        _, kind, flags = self.locate(path)
        return kind in ("root", "home", *kinds) and "inner" not in flags and path != "-"

    def take(self, path: str, *kinds: str) -> str:
        """What is in a file, or in all of a place: there, something is private."""
        return SENSITIVE if self.whole(path, *kinds) else self.read(path)

    def serve(self, folder: str) -> None:
        """Hand a directory to whoever connects."""
        if self.whole(folder, "secret"):
            self.emit("net.send", "whoever connects", "sensitive")

    def write(self, path: str, text: str = UNKNOWN, *flags: str) -> None:
        files.write_path(self.machine, path, self.state, frozenset(flags))
        self.machine.write_file(path, text, self.state, "append" in flags)

    def delete(self, path: str, *flags: str) -> None:
        files.delete_path(self.machine, path, self.state, frozenset(flags))

    def change(self, path: str, *flags: str) -> None:
        files.change_path(self.machine, path, self.state, frozenset(flags))

    def locate(self, path: str) -> tuple[str, str, frozenset[str]]:
        return files.locate(path, self.state)

    def shell(self, text: str, args: list[str] | None = None, feed: Feed | None = None, same: bool = False) -> str:
        """Run text as a script of its own (or, `same`, in this very shell)."""
        state = self.state if same else self.state.spawned()
        if args:
            state.name, state.args = args[0], args[1:]
        return self.machine.run_text(text, state, feed or self.feed)

    def run(self, argv: list[str], feed: Feed | None = None, same: bool = False) -> str:
        """Run an argument vector: what a wrapper does with its operands."""
        if not argv:
            return ""
        state = self.state if same else self.state.spawned()
        return self.machine.simple(list(argv), state, feed or self.feed)

    def send(self, text: str, target: str) -> None:
        """Text leaves for a host. Credentials never may; loopback is this sandbox itself."""
        host = re.match(r"(?i)(?:[a-z][a-z0-9+.-]*://)?(?:[^/@]*@)?(\[[0-9a-f:]+\]|[^/:?#]+)", unglob(solid(target)))
        if not (host and files.is_loopback(host[1])):
            marks = (("secret", SECRET), ("sensitive", SENSITIVE), ("encoded", ENCODED))
            self.emit("net.send", show(target), *(name for name, mark in marks if mark in text))

    def unpack(self, folder: str) -> None:
        """An archive is unpacked: into a system place it overwrites it."""
        kind, flags = self.locate(folder or ".")[1:]
        if kind in ("root", "system", "kernel", "exec_hook") or (kind == "home" and "inner" not in flags and folder):
            self.write(folder or ".", UNKNOWN, "extract")

    def load(self, path: str) -> None:
        """Load code that is no script: a library, a module, an archive of classes."""
        data = re.search(r"\.(json|ya?ml|csv|tsv|toml|txt|md|xml|html?|sql|db)$", path)
        if not data and NETWORK in (self.machine.read_file(path, self.state) or ""):
            self.emit("exec.network", path)

    def guess(self, text: str) -> str:
        """Run a text that may be a command: what is no bash was none."""
        before = len(self.machine.effects)
        out = self.shell(text)
        for effect in list(self.machine.effects)[before:]:
            if effect.kind == "text.unparseable":
                del self.machine.effects[effect]
        return out

    def scan(self, language: str, code: str, argv: list[str]) -> str:
        """Look through code of another language for effects; gives what it prints."""
        from .code import scan

        return scan(self, language, code, argv)

    def run_code(self, language: str, words: list[str]) -> str:
        """A script of another language: looked through where this command wrote it, else the project's own code."""
        text, name = self.script(words[0]), words[0].rsplit("/", 1)[-1]
        if self.machine.knowledge.has_trait(name, "anywhere"):  # python manage.py
            return self.run([name, *words[1:]])
        if text is None:
            self.run_unseen(words[0])
            return FILE
        if has(text, UNKNOWN) and not text.strip(UNKNOWN + "\n"):
            self.emit("exec.unseen", self.locate(words[0])[0])
        return self.scan(language, text, words[1:]) if text.strip(FILE + "\n") else FILE

    def run_unseen(self, path: str) -> None:
        """Run a script that this command did not write. An interpreter prints what it cannot run."""
        full, kind, _ = self.locate(path)
        self.machine.emit("exec.script", full, kind, program=self.name)
        if kind == "secret":
            self.read(path)

    def run_file(self, path: str, args: list[str], same: bool = False) -> str:
        """Run a script file: its text where this command wrote it, else the project's own code."""
        text = self.script(path)
        full = self.locate(path)[0]
        if text is None:
            self.run_unseen(path)
            return UNKNOWN
        state = self.state if same else self.state.spawned()
        if not same or args:
            state.name, state.args = path, args
        with self.machine.under(show(path)):
            if text and has(text, UNKNOWN) and not text.strip(UNKNOWN + "\n "):
                self.machine.emit("exec.unseen", full)
            return self.machine.guarded(full, lambda: self.machine.run_text(text, state, self.feed))
