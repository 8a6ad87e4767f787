"""The abstract interpreter: walks a syntax tree as bash would and writes down what would happen.

Each command has an abstract standard output, so pipes and substitutions carry text (known or not) to the next one.
Both sides of a condition are taken; variables keep what the last branch left, and where a branch replaced a known
value a second pass runs with the branches undone, so a harmless reassignment cannot hide a harmful one. Loops,
commands, nesting and time are bounded: over a bound the verdict is "too complex", a denial.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .compound import Feed
from .effects import Effect
from .expand import Expander, flat, flat_list
from .knowledge import Knowledge
from .marks import DISGUISED, ENCODED, NETWORK, SELF, UNKNOWN, clip, has, has_glob, known, sayable, solid
from .parser import Node, ParseError, TooComplex, parse
from .paths import could_match, is_place, resolve
from .plain import plain_words
from .quoting import whole
from .redirects import Redirects
from .shellstate import ShellState, Value

MAX_RECURSION = 3
SUSPECT = re.compile(
    r"\s*(?:\S*/)?(?:rm|dd|sh|bash|chmod|chown|shred|mkfs\S*|curl|wget|nc|find|sudo|mv|eval|kill)\s+\S"
)
MAX_STEPS, MAX_DEPTH, MAX_EFFECTS, MAX_LITERALS = 3000, 40, 400, 100


class NeedsParser(Exception):
    """The fast path met a text that only the parser can read."""


Dispatch = Callable[["Machine", list[str], ShellState, Feed], str]


class _Recursion:
    """A function or script that is running: how deep, and how often it started itself beside itself."""

    __slots__ = ("depth", "parallel")

    def __init__(self) -> None:
        self.depth = self.parallel = 0


class Machine(Redirects):
    def __init__(self, dispatch: Dispatch, knowledge: Knowledge, parsing: bool = True) -> None:
        self.effects: dict[Effect, None] = {}
        self.trail: list[str] = []
        self.traps: list[tuple[str, ShellState]] = []
        self.fifos = False
        self.made: list[tuple[str, str]] = []  # every text written to a file, in order
        self.beside: list[tuple[Node, ShellState, Feed, int]] = []  # what was started, and how much was written then
        self.undo_branches, self.branched = False, False
        self.sinks: dict[str, list[Node]] = {}
        self.privileged = 0
        self._dispatch, self._parsing = dispatch, parsing
        self._steps = 0
        self._calls: dict[str, _Recursion] = {}
        self._background = self._piping = 0
        self._feed = self.source = Feed()
        self.truth: bool | None = None
        self.knowledge = knowledge
        self.seen: dict[str, None] = {}  # the commands, and the entries that they were read by
        self.packed: list[str] = []  # members of the archives that this command made
        self.judged: set[str] = set()  # files of commands that a build tool has been seen to read
        self.literals: list[str] = []  # the longer arguments: what a shell that reads unknown text might be handed

    # -- what the programs use -----------------------------------------------------------------------------------

    def emit(
        self, kind: str, target: str = "", path_class: str = "", flags: frozenset[str] = frozenset(), program: str = ""
    ) -> None:
        if self.privileged:
            flags = flags | frozenset({"sudo"})
        if len(self.effects) >= MAX_EFFECTS:
            raise TooComplex("it does too much to be judged")
        self.effects[
            Effect(
                kind,
                sayable(target[:400]),
                path_class,
                flags,
                sayable(program) or (self.trail[-1] if self.trail else ""),
                tuple(self.trail[-8:]),
            )
        ] = None

    def note(self, line: str) -> None:
        if len(self.seen) < MAX_LITERALS:
            self.seen[sayable(line[:400])] = None

    @contextmanager
    def under(self, name: str) -> Iterator[None]:
        if len(self.trail) >= MAX_DEPTH:
            raise TooComplex("it is nested too deeply to judge")
        self.trail.append(sayable(name[:60]))
        try:
            yield
        finally:
            self.trail.pop()

    def run_text(self, text: str, state: ShellState, feed: Feed | None = None) -> str:
        """Run text as a script: what `bash -c`, `eval`, a pipe into sh or a written file comes down to."""
        if NETWORK in text:
            self.emit("exec.network", text)
        if SELF in text or not solid(text).strip():
            return ""
        words = plain_words(text.strip())
        if words:
            return self.simple(words, state, feed or Feed())
        if not self._parsing:
            raise NeedsParser
        try:
            tree = parse(solid(text))
        except ParseError as error:
            if known(solid(text)):
                self.emit("text.unparseable", str(error))
            else:
                self.emit("exec.disguised" if has(text, ENCODED + DISGUISED) else "exec.unseen", text)
            return UNKNOWN
        return self.block(tree.get("Stmts"), state, feed or Feed())

    def run_script(self, key: str, text: str, state: ShellState, feed: Feed) -> str:
        """A file or a function by name: calling itself in parallel is a fork bomb, calling itself once is recursion."""
        return self._guarded(key, lambda: self.run_text(text, state, feed))

    def run_suspects(self, state: ShellState) -> None:
        """A shell runs text that cannot be computed: then what this command holds is what it might run."""
        for text in [*self.literals, *state.files.values()]:
            for candidate in (text, text.partition("=")[2], text.lstrip("+"), *re.findall(r"['\"\[]([^'\"\]]+)", text)):
                if SUSPECT.match(candidate):
                    self.run_text(candidate, state.fork())

    def run_subscripts(self, text: str, state: ShellState) -> None:
        """bash evaluates the subscript of `a[$(…)]` in arithmetic, tests and assignments even where it is quoted."""
        for inner in re.findall(r"\$\((.*)\)|`([^`]*)`", text):
            self.run_text(inner[0] or inner[1], state.fork())

    def read_file(self, path: str, state: ShellState) -> str | None:
        """What this command itself wrote there."""
        full = resolve(path, state.cwd, state.links, state.home())
        if full in state.files:
            return state.files[full]
        if has_glob(full):
            texts = [text for name, text in state.files.items() if could_match(full, name)]
            return "\n".join(texts) if texts else None
        return None

    def write_file(self, path: str, text: str, state: ShellState, append: bool = False) -> None:
        full = resolve(path, state.cwd, state.links, state.home())
        full = flat(state.env.get(re.sub(r"^/(?:dev|proc/self)/fd/(\d+)$", r"&\1>", full), full))
        stmts = self.sinks.get(full)
        if stmts is not None:
            self.block(stmts, state.captured(), Feed(text))
            return
        from .environment import planted

        planted(self, full, text)
        if is_place("own_rc", full) and text.strip():
            self._rc(text, state)
        if full.endswith("/.envrc"):
            self.run_text(text, state.fork())
        state.files[full] = clip((state.files.get(full, "") if append else "") + text)
        self.made.append((full, state.files[full]))

    def _rc(self, text: str, state: ShellState) -> None:
        """Lines that the sandbox's own shells run: judged as if they ran now, refused where nobody can see them."""
        planted = re.search(
            r"(?:^|[\s;&|!.'\"=])(?:/tmp|/var/tmp|/dev/shm)/|\balias (?:sudo|su|ssh|git|ls|cd)=\S*/", text
        )
        if has(text, NETWORK + ENCODED + DISGUISED + UNKNOWN) or planted:
            self.emit("persist.rc", text)
        elif known(text):
            self.run_text(text, state.fork())

    # -- statements ----------------------------------------------------------------------------------------------

    def block(self, stmts: list[Node] | None, state: ShellState, feed: Feed) -> str:
        return clip("".join([self.statement(stmt, state, feed) for stmt in stmts or []]))

    def statement(self, stmt: Node, state: ShellState, feed: Feed) -> str:
        self.tick()
        if stmt.get("Background") or stmt.get("Coprocess"):
            self.beside.append((stmt, state.fork(), feed, len(self.made)))
            with self._parallel():
                return self._redirected(stmt, state.fork(), feed)
        return self._redirected(stmt, state, feed)

    def catch_up(self) -> None:
        """What runs in the background reads what is written after its start, be it into a fifo or a file."""
        for stmt, state, feed, start in self.beside[:20]:
            later = dict(self.made[start:])
            if later:
                shell = state.detached()
                shell.files |= later
                self._redirected(stmt, shell, feed)

    def tick(self) -> None:
        """Count one step; over their bound, stop."""
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooComplex("it does too much to be judged")

    def spare(self) -> bool:
        """Whether there is room for more rounds of a loop than have to be."""
        return self._steps < MAX_STEPS // 4

    @contextmanager
    def _parallel(self) -> Iterator[None]:
        self._background += 1
        try:
            yield
        finally:
            self._background -= 1

    def read_effect(self, path: str, state: ShellState) -> str:
        from .files import read_path

        return read_path(self, path, state)

    def write_effect(self, path: str, state: ShellState, append: bool) -> None:
        from .files import write_path

        write_path(self, path, state, frozenset({"append"}) if append else frozenset({"truncate"}))

    def command(self, node: Node | None, state: ShellState, feed: Feed) -> str:
        if node is None:
            return ""
        handler = getattr(self, "_" + re.sub(r"(?<!^)(?=[A-Z])", "_", node["Type"]).lower(), None)
        if handler is None:
            raise TooComplex(f"{node['Type']} is not understood")
        return str(handler(node, state, feed))

    def expander(self, state: ShellState) -> Expander:
        return Expander(
            state,
            lambda part: self._substitution(part, state),
            lambda part: self._process(part, state),
            lambda text: self.run_subscripts(text, state),
        )

    def _substitution(self, part: Node, state: ShellState) -> str:
        stmts = part.get("Stmts") or []
        if len(stmts) == 1 and not stmts[0].get("Cmd"):  # $(< file)
            return "".join(
                self.read_effect(self.expander(state).text(r["Word"]), state) for r in stmts[0].get("Redirs") or []
            )
        return self.block(
            stmts,
            state.captured(),
            Feed(self._feed.text, self._feed.outside) if self._feed.text else Feed(UNKNOWN, outside=True),
        )

    def _process(self, part: Node, state: ShellState) -> str:
        path = f"/dev/fd/{60 + len(self.sinks) + len(state.files)}"
        if part["Op"] == "<(":
            state.files[path] = self.block(part.get("Stmts"), state.captured(), Feed())
        else:
            self.sinks[path] = part.get("Stmts") or []
        return path

    def attach(self, name: str, stmt: Node, state: ShellState) -> None:
        """The two ends of a coprocess: what it says is not known, what is written to it is its input."""
        number = 60 + len(self.sinks) + len(state.files)
        ends = [f"/dev/fd/{number}", f"/dev/fd/{number + 1}"]
        state.files[ends[0]], self.sinks[ends[1]] = UNKNOWN, [stmt]
        state.env[name] = ends

    # -- commands ------------------------------------------------------------------------------------------------

    def _call_expr(self, node: Node, state: ShellState, feed: Feed) -> str:
        expander = self.expander(state)
        words = expander.words(node.get("Args") or [])
        assigns = node.get("Assigns") or []
        if not words:
            for assign in assigns:
                self.assign(assign, state)
            return ""
        before = dict(state.env)
        for assign in assigns:
            self.assign(assign, state, words[0])
        try:
            return self.simple(words, state, feed)
        finally:
            for assign in assigns:
                name = assign["Name"]["Value"]
                if name in before:
                    state.env[name] = before[name]
                else:
                    state.env.pop(name, None)

    def simple(self, words: list[str], state: ShellState, feed: Feed) -> str:
        """Run one simple command, its words expanded."""
        self.tick()
        while words and words[0] != "" and solid(words[0]) == "":
            words = words[1:]
        if not words:
            return ""
        name = solid(words[0])
        if len(self.literals) < MAX_LITERALS:
            self.literals += [word for word in words[1:] if " " in word]
        if name in state.aliases and known(name):
            return self._alias(name, words, state, feed)
        if name in state.functions:
            return self._function(name, words, state, feed)
        out = self._dispatch(self, [name, *words[1:]], state, feed)
        state.last = words[-1]
        return out

    def _alias(self, name: str, words: list[str], state: ShellState, feed: Feed) -> str:
        rest = state.fork()
        text = rest.aliases.pop(name)
        with self.under(f"alias {name}"):
            quoted = " ".join("'" + word.replace("'", "'\\''") + "'" for word in words[1:])
            out = self.run_text(f"{text} {quoted}", rest, feed)
        # bash expands aliases line by line, and only where it is told to: the name may as well mean the program.
        self._dispatch(self, [name, *words[1:]], rest, feed) if self.knowledge.entries(name) else None
        return out

    def _function(self, name: str, words: list[str], state: ShellState, feed: Feed) -> str:
        args, state.args = state.args, words[1:]
        state.env["FUNCNAME"] = name
        try:
            with self.under(f"{name}()"):
                body = state.functions[name]
                return self._guarded(f"{name} {id(body)}", lambda: self.statement(body, state, feed))
        finally:
            state.args = args

    def _guarded(self, key: str, run: Callable[[], str]) -> str:
        """Recursion is followed a few levels. What starts itself in the background, or twice in a pipe, is a bomb."""
        call = self._calls.setdefault(key, _Recursion())
        if call.depth and (self._background or self._piping):
            call.parallel += call.depth == 1
            if self._background or call.parallel > 1:
                self.emit("process.forkbomb", key)
                return UNKNOWN
        if call.depth >= MAX_RECURSION:
            return UNKNOWN
        outer, self._background, self._piping = (self._background, self._piping), 0, 0
        call.depth += 1
        try:
            return run()
        finally:
            call.depth -= 1
            self._background, self._piping = outer
            if not call.depth:
                del self._calls[key]

    @staticmethod
    def written(names: str, state: ShellState) -> str:
        """The texts that this command wrote to files of such names."""
        return "\n".join(text for path, text in state.files.items() if re.search(names, path))

    def assign(self, node: Node, state: ShellState, program: str = "") -> None:
        if node.get("Naked") or not node.get("Name"):
            return
        name, expander = node["Name"]["Value"], self.expander(state)
        value: Value = self._array(node["Array"], expander) if node.get("Array") else expander.text(node.get("Value"))
        if node.get("Index"):
            value = self._element(state.env.get(name), expander.text(node["Index"]), flat(value))
        elif node.get("Append"):
            old = state.env.get(name, "")
            value = (
                flat_list(old) + flat_list(value)
                if isinstance(old, list) or isinstance(value, list)
                else flat(old) + flat(value)
            )
        self.set(name, value, state, program)

    def set(self, name: str, value: Value, state: ShellState, program: str = "") -> None:
        from .environment import poisoned

        held = state.env.get(name)
        if isinstance(held, str) and held.startswith("\0") and not flat(value).startswith("\0"):
            name = held[1:]  # a reference
        poisoned(self, name, flat(value), state, program)
        if name == "PWD":
            return
        if re.match(r"\w+\[.*[$`]", flat(value)):  # arithmetic that meets this name evaluates its subscript
            self.run_subscripts(flat(value), state)
        element = re.fullmatch(r"(\w+)\[(.*)\]", name)
        if element:
            name, value = element[1], self._element(state.env.get(element[1], []), element[2], flat(value))
        state.env[name] = clip(value) if isinstance(value, str) else value

    def _array(self, node: Node, expander: Expander) -> Value:
        elements = node.get("Elems") or []
        if any(element.get("Index") for element in elements):
            keyed = {
                expander.text(e["Index"]) if e.get("Index") else str(i): expander.text(e.get("Value"))
                for i, e in enumerate(elements)
            }
            numbered = all(key.isdecimal() for key in keyed)
            return [keyed[key] for key in sorted(keyed, key=whole)] if numbered else keyed
        return expander.words([element.get("Value") or {} for element in elements])

    @staticmethod
    def _element(old: Value | None, index: str, value: str) -> Value:
        if isinstance(old, list) and index.isdecimal() and whole(index) < 4096:
            return (
                [*old, *[""] * (int(index) - len(old)), value]
                if int(index) >= len(old)
                else [*old[: int(index)], value, *old[int(index) + 1 :]]
            )
        base = (
            dict(old)
            if isinstance(old, dict)
            else {str(i): v for i, v in enumerate(old)}
            if isinstance(old, list)
            else {}
        )
        made = {**base, index: value}
        return dict(sorted(made.items(), key=lambda item: whole(item[0]))) if all(map(str.isdecimal, made)) else made

    def _binary_cmd(self, node: Node, state: ShellState, feed: Feed) -> str:
        chain = [(node["Op"], node["Y"])]
        left = node["X"]
        piping = node["Op"] in ("|", "|&")
        while _joins(left, piping):
            chain.append((left["Cmd"]["Op"], left["Cmd"]["Y"]))
            left = left["Cmd"]["X"]
        chain.reverse()
        if piping:
            self._piping += 1
            out = self.statement(left, state.captured(), feed)
            for _, right in chain[:-1]:
                out = self.statement(right, state.captured(), Feed(out))
            out = self.statement(chain[-1][1], state.fork(), Feed(out))
            self._piping -= 1
            return out
        out = self.statement(left, state, feed)
        for _, right in chain:
            with self._branch(state):
                out += self.statement(right, state, feed)
        return out


def _joins(stmt: Node, piping: bool) -> bool:
    """Whether the left side is more of the same chain (of pipes, or of && and ||)."""
    command = stmt.get("Cmd") or {}
    plain = not (stmt.get("Redirs") or stmt.get("Background") or stmt.get("Negated"))
    return plain and command.get("Type") == "BinaryCmd" and (command["Op"] in ("|", "|&")) == piping
