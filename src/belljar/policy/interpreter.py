"""What the parts of the interpreter know of the whole: what was found so far, and how to run what is inside them.

A shell is recursive: a loop holds commands, a command holds a script, a redirection holds a substitution. machine.py is
the whole. Each part (compound.py, redirects.py, files.py, call.py and those above) gets it and sees this of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from belljar.records import record

from .expand import Expander
from .knowledge import Knowledge
from .marks import encodable
from .parser import Node, TooComplex
from .shellstate import Feed, ShellState, Value
from .verdict import Effect

MAX_STEPS, MAX_DEPTH, MAX_EFFECTS, MAX_LITERALS = 3000, 40, 400, 100


@record
class Programs:
    """What the interpreter asks about programs; dispatch.py answers."""

    run: Callable[["Interpreter", list[str], ShellState, Feed], str]
    is_known: Callable[["Interpreter", str, ShellState], bool]
    scan: Callable[..., str]  # code of another language: see `Call.scan`


class Interpreter(ABC):
    programs: Programs

    def __init__(self, knowledge: Knowledge, undo_branches: bool) -> None:
        self.knowledge = knowledge
        self.undo_branches = undo_branches
        self.effects: dict[Effect, None] = {}
        self.readings: dict[
            str, None
        ] = {}  # commands, and the entries that they were read by
        self.trail: list[str] = []
        self.traps: list[tuple[str, ShellState]] = []
        self.sinks: dict[
            str, list[Node]
        ] = {}  # the statements of each >(…), by its path
        self.scanned: set[str] = set()  # build files: language, path and text
        self.branched = self.fifos = False
        self.feed = self.source = (
            Feed()
        )  # the standard input, and what the last `read` took its line from
        self.privileged = self._steps = 0

    def emit(
        self,
        kind: str,
        target: str = "",
        path_class: str = "",
        flags: frozenset[str] = frozenset(),
        program: str = "",
    ) -> None:
        if len(self.effects) >= MAX_EFFECTS:
            raise TooComplex("it does too much to be judged")
        flags = flags | {"sudo"} if self.privileged else flags
        program = encodable(program) or (self.trail[-1] if self.trail else "")
        self.effects[
            Effect(
                kind,
                encodable(target[:400]),
                path_class,
                flags,
                program,
                tuple(self.trail[-8:]),
            )
        ] = None

    def record_reading(self, line: str) -> None:
        if len(self.readings) < MAX_LITERALS:
            self.readings[encodable(line[:400])] = None

    def tick(self) -> None:
        """Count one step."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooComplex("it does too much to be judged")

    @contextmanager
    def under(self, name: str) -> Iterator[None]:
        """What follows runs inside this program or function: effects name it in their trail."""
        if len(self.trail) >= MAX_DEPTH:
            raise TooComplex("it is nested too deeply to judge")
        self.trail.append(encodable(name[:60]))
        try:
            yield
        finally:
            self.trail.pop()

    # -- from text to words: each returns what is printed

    @abstractmethod
    def run_text(self, text: str, state: ShellState, feed: Feed | None = None) -> str:
        """Run text as a script: for `bash -c`, `eval`, a pipe into sh or a file that was written."""

    @abstractmethod
    def block(self, stmts: list[Node] | None, state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def statement(self, stmt: Node, state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def command(self, node: Node | None, state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def simple_command(self, words: list[str], state: ShellState, feed: Feed) -> str:
        """Run one simple command, given its expanded words."""

    @abstractmethod
    def limit_recursion(self, name: str, run: Callable[[], str], body: int = 0) -> str:
        """Follow recursion a few levels. What starts itself in the background, or twice in a pipe, is a fork bomb."""

    @abstractmethod
    def run_suspects(self, state: ShellState) -> None:
        """A shell runs text that is not known: run everything in this command that looks like a command."""

    # -- words, variables, files

    @abstractmethod
    def expander(self, state: ShellState) -> Expander: ...

    @abstractmethod
    def subscripts(self, text: str, state: ShellState) -> None:
        """In arithmetic, tests and assignments bash runs the subscript of `a[$(…)]`, even if it is quoted."""

    @abstractmethod
    def assign(self, node: Node, state: ShellState, program: str = "") -> None: ...

    @abstractmethod
    def set(
        self, name: str, value: Value, state: ShellState, program: str = ""
    ) -> None: ...

    @abstractmethod
    def read_file(self, path: str, state: ShellState) -> str | None:
        """What this command wrote to a file; None if it wrote nothing there."""

    @abstractmethod
    def write_file(
        self, path: str, text: str, state: ShellState, append: bool = False
    ) -> None: ...
