"""One call of a program: its arguments, its standard input, and methods for the effects that it has."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from . import files
from .interpreter import Interpreter
from .marks import (
    ENCODED,
    FILE,
    NETWORK,
    SECRET,
    SENSITIVE,
    UNKNOWN,
    drop_unset,
    is_unseen,
    plain_text,
    show,
    unglob,
)
from .shellstate import Feed, ShellState

Handler = Callable[["Call"], str | None]
PROGRAMS: dict[str, Handler] = {}
_STDIN = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def program(names: str) -> Callable[[Handler], Handler]:
    """Register the function that reads calls of these programs. It returns what they print (None: not known)."""

    def register(handler: Handler) -> Handler:
        PROGRAMS.update(dict.fromkeys(names.split(), handler))
        return handler

    return register


@dataclass(slots=True, repr=False, eq=False)
class Options:
    """A call's options, and in `rest` its operands."""

    flags: set[str] = field(default_factory=set)
    values: dict[str, list[str]] = field(default_factory=dict)
    rest: list[str] = field(default_factory=list)

    def has(self, *names: str) -> bool:
        """Whether an option is given, by any of its names. A long one may be abbreviated, as getopt_long allows."""
        for name in names:
            if name in self.flags or name in self.values:
                return True
            if len(name) > 1 and any(
                len(flag) > 2 and name.startswith(flag)
                for flag in (*self.flags, *self.values)
            ):
                return True
        return False

    def after_flag(self, words: list[str], args: list[str]) -> bool:
        """Whether each of these operands follows an option and so may be its value."""
        places = [args.index(word) for word in words if word in args]
        return all(place and args[place - 1].startswith("-") for place in places)

    def get(self, *names: str) -> str:
        return next(
            (self.values[name][-1] for name in names if name in self.values), ""
        )

    def all(self, *names: str) -> list[str]:
        return [value for name in names for value in self.values.get(name, [])]


class Call:
    __slots__ = ("args", "feed", "machine", "name", "original", "state")

    def __init__(
        self,
        machine: Interpreter,
        name: str,
        args: list[str],
        state: ShellState,
        feed: Feed,
    ) -> None:
        self.machine = machine
        self.name = name
        self.args = args
        self.state = state
        self.feed = feed
        self.original = " ".join(map(drop_unset, args))

    def renamed(self, name: str) -> "Call":
        """The same call, as one of another program."""
        return Call(self.machine, name, list(self.args), self.state, self.feed)

    @property
    def stdin(self) -> str:
        return self.feed.text

    @staticmethod
    def known(machine: Interpreter, name: str) -> bool:
        return name in PROGRAMS or name in machine.knowledge.programs

    def is_program(self, name: str) -> bool:
        return Call.known(self.machine, name)

    def options(self, takes: str, posix: bool = False) -> Options:
        """Parse the arguments. `takes` names the options with a value: letters, and words for long ones."""
        found = Options()
        wanted = set(takes.split())
        index = 0
        while index < len(self.args):
            arg = (
                plain_text(self.args[index])
                if self.args[index][:1] == "-"
                else self.args[index]
            )
            index += 1
            if arg == "--":
                found.rest += self.args[index:]
                break
            if arg.startswith("--"):
                name, equals, value = arg[2:].partition("=")
                if not equals and name in wanted and index < len(self.args):
                    value = self.args[index]
                    equals = "="
                    index += 1
                if equals:
                    found.values.setdefault(name, []).append(value)
                else:
                    found.flags.add(name)
            elif arg.startswith("-") and arg != "-":
                index = self._cluster(arg[1:], wanted, found, index)
            else:
                found.rest.append(self.args[index - 1])
                if posix:
                    found.rest += self.args[index:]
                    break
        return found

    def _cluster(
        self, letters: str, wanted: set[str], found: Options, index: int
    ) -> int:
        if letters in wanted and index < len(
            self.args
        ):  # `-name value`, as in find and java
            found.values.setdefault(letters, []).append(self.args[index])
            return index + 1
        for at, letter in enumerate(letters):
            if letter in wanted:
                value = letters[at + 1 :]
                if not value and index < len(self.args):
                    value = self.args[index]
                    index += 1
                found.values.setdefault(letter, []).append(value)
                return index
            found.flags.add(letter)
        return index

    def emit(self, kind: str, target: str = "", *flags: str) -> None:
        self.machine.emit(
            kind, target or self.text(), flags=frozenset(flags), program=self.name
        )

    def text(self) -> str:
        return show(f"{self.name} {self.original}").rstrip()

    def read(self, path: str) -> str:
        return (
            self.stdin
            if path in _STDIN
            else files.read_path(self.machine, path, self.state)
        )

    def script(self, path: str) -> str | None:
        """The text of a script, if it is on standard input or this command wrote it."""
        return (
            self.stdin if path in _STDIN else self.machine.read_file(path, self.state)
        )

    def named_files(self) -> str:
        """The contents of the files that the arguments name and this command wrote."""
        words = [unglob(arg) for arg in self.args]
        paths = dict.fromkeys(
            word
            for arg in words
            for word in (arg, re.sub(r"^(--?[\w-]+=|-\w)", "", arg))
        )
        return "\n".join(
            self.machine.read_file(path, self.state) or "" for path in paths if path
        )

    def given_text(self) -> str:
        """All text that the program gets: arguments, standard input, and the files that the arguments name."""
        return "\n".join([*map(unglob, self.args), self.stdin, self.named_files()])

    def is_whole_place(self, path: str, *kinds: str) -> bool:
        """Whether a path is a whole home, the whole machine, or a place of these kinds."""
        _, kind, flags = self.locate(path)
        return kind in ("root", "home", *kinds) and "inner" not in flags and path != "-"

    def read_all(self, path: str, *kinds: str) -> str:
        """The contents of a path. A whole place (see above) holds something private."""
        return SENSITIVE if self.is_whole_place(path, *kinds) else self.read(path)

    def use_socket(self, path: str) -> None:
        if "engine" in self.locate(path)[2]:
            self.emit("kernel.engine")

    def serve(self, folder: str) -> None:
        """A server offers a directory to everyone who connects."""
        if self.is_whole_place(folder, "secret"):
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

    def shell(
        self,
        text: str,
        args: list[str] | None = None,
        feed: Feed | None = None,
        same: bool = False,
    ) -> str:
        """Run text as a script in a new process, or in this shell (`same`)."""
        state = self.state if same else self.state.new_process()
        if args:
            state.name = args[0]
            state.args = args[1:]
        return self.machine.run_text(text, state, feed or self.feed)

    def run(self, argv: list[str], feed: Feed | None = None, same: bool = False) -> str:
        """Run an argument vector, as wrappers do."""
        if not argv:
            return ""
        state = self.state if same else self.state.new_process()
        return self.machine.simple_command(list(argv), state, feed or self.feed)

    def send(self, text: str, target: str) -> None:
        """Text is sent to a host. Loopback is this sandbox itself and does not count."""
        if not files.is_loopback(files.host_of(target)):
            marks = (("secret", SECRET), ("sensitive", SENSITIVE), ("encoded", ENCODED))
            self.emit(
                "net.send",
                show(target),
                *(name for name, mark in marks if mark in text),
            )

    def unpack(self, folder: str) -> None:
        """An archive is unpacked; in a system directory that overwrites files."""
        kind, flags = self.locate(folder or ".")[1:]
        if kind in ("root", "system", "kernel", "exec_hook") or (
            kind == "home" and "inner" not in flags and folder
        ):
            self.write(folder or ".", UNKNOWN, "extract")

    def load(self, path: str) -> None:
        """Load code that is not a script: a library, a module, an archive of classes."""
        data = re.search(r"\.(json|ya?ml|csv|tsv|toml|txt|md|xml|html?|sql|db)$", path)
        if not data and NETWORK in (self.machine.read_file(path, self.state) or ""):
            self.emit("exec.network", path)

    def shell_if_bash(self, text: str) -> str:
        """Run a text that may be a command; if it is not bash, ignore it."""
        before = len(self.machine.effects)
        out = self.shell(text)
        for effect in list(self.machine.effects)[before:]:
            if effect.kind == "text.unparseable":
                del self.machine.effects[effect]
        return out

    def scan(self, language: str, code: str, argv: list[str]) -> str:
        """Search code of another language for effects. Returns what it prints."""
        return self.machine.programs.scan(self, language, code, argv)

    def run_code(self, language: str, words: list[str]) -> str:
        """Run a script of another language. Search its text if this command wrote it; else it is the project's code."""
        text = self.script(words[0])
        name = words[0].rsplit("/", 1)[-1]
        if self.machine.knowledge.has_trait(name, "anywhere"):  # python manage.py
            return self.run([name, *words[1:]])
        if text is None:
            self.run_unseen(words[0])
            return FILE
        if is_unseen(text):
            self.emit("exec.unseen", self.locate(words[0])[0])
        return self.scan(language, text, words[1:]) if text.strip(FILE + "\n") else FILE

    def run_unseen(self, path: str) -> None:
        """Run a script that this command did not write. A file that is no script is printed in error messages."""
        full, kind, _ = self.locate(path)
        self.machine.emit("exec.script", full, kind, program=self.name)
        if kind == "secret":
            self.read(path)

    def run_file(self, path: str, args: list[str], same: bool = False) -> str:
        """Run a script of a shell. Run its text if this command wrote it; else it is the project's code."""
        text = self.script(path)
        full = self.locate(path)[0]
        if text is None:
            self.run_unseen(path)
            return UNKNOWN
        state = self.state if same else self.state.new_process()
        if not same or args:
            state.name = path
            state.args = args
        with self.machine.under(show(path)):
            if is_unseen(text):
                self.machine.emit("exec.unseen", full)
            return self.machine.limit_recursion(
                full, lambda: self.machine.run_text(text, state, self.feed)
            )
