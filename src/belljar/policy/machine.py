"""The abstract interpreter: walks a syntax tree as bash would, and collects the effects.

Each command has an output with marks for what is unknown (marks.py), so pipes and substitutions carry text to the next.
All branches of a condition are taken. Variables keep what the last branch set. If a branch replaced a known value, a
second pass undoes what branches set, so a harmless value cannot hide a harmful one. Steps, nesting and effects are
limited; a command that reaches a limit is denied as too complex, on every machine alike.
"""

import re
from collections.abc import Callable

from . import expressions
from .canonical import plain_words
from .compound import COMMANDS, branch
from .environment import check_settings_file, check_variable
from .expand import Expander, flat, flat_list
from .files import read_path
from .interpreter import MAX_LITERALS, Interpreter, Programs
from .knowledge import Knowledge
from .marks import (
    ENDLESS,
    HIDDEN,
    NETWORK,
    UNKNOWN,
    UNSET,
    clip,
    drop_unset,
    has,
    has_glob,
    known,
)
from .parser import NeedsParser, Node, ParseError, TooComplex, parse
from .paths import could_match, is_place, resolve
from .quoting import to_int
from .redirects import run_redirected
from .shellstate import Feed, ShellState, Value

MAX_RECURSION = 3
EVALUATES = " let test [ printf read unset wait declare local export typeset readonly "


class Machine(Interpreter):
    def __init__(
        self,
        programs: Programs,
        knowledge: Knowledge,
        parsing: bool = True,
        undo: bool = False,
    ) -> None:
        super().__init__(knowledge, undo)
        self.literals: list[str] = []  # arguments that might be commands
        self.programs = programs
        self._parsing = parsing
        self._suspecting = False
        self._calls: dict[
            tuple[str, int], list[int]
        ] = {}  # functions and scripts that run: depth, times in a pipe
        self._background = self._piping = 0

    def run_text(self, text: str, state: ShellState, feed: Feed | None = None) -> str:
        """Run text as a script: for `bash -c`, `eval`, a pipe into sh or a file that was written."""
        if NETWORK in text:
            self.emit("exec.network", text)
        if ENDLESS in text or not drop_unset(text).strip():
            return ""
        if words := plain_words(text.strip()):
            return self.simple_command(words, state, feed or Feed())
        if not self._parsing:
            raise NeedsParser
        try:
            tree = _parse_unset(text)
        except ParseError as error:
            if known(drop_unset(text)):
                self.emit("text.unparseable", str(error))
            else:
                self.emit(
                    "exec.disguised" if has(text, HIDDEN) else "exec.unseen", text
                )
            return UNKNOWN
        return self.block(tree.get("Stmts"), state, feed or Feed())

    def run_suspects(self, state: ShellState) -> None:
        """A shell runs text that is not known: run everything in this command that looks like a command."""
        texts = [] if self._suspecting else [*self.literals, *state.files.values()]
        self._suspecting = True
        for text in texts:
            for candidate in (
                text,
                text.partition("=")[2],
                text.lstrip("+"),
                *re.findall(r"['\"\[]([^'\"\]]+)", text),
            ):
                if expressions.begins("suspect", candidate):
                    self.run_text(candidate, state.fork())
        self._suspecting = not texts

    def subscripts(self, text: str, state: ShellState) -> None:
        """In arithmetic, tests and assignments bash runs the subscript of `a[$(…)]`, even if it is quoted."""
        if re.match(r"\w+\[.*[$`]", text):
            self.run_text(text.partition("$(")[2].rpartition(")")[0], state.fork())
            self.run_text(text.partition("`")[2].partition("`")[0], state.fork())

    def read_file(self, path: str, state: ShellState) -> str | None:
        """What this command wrote to a file; None if it wrote nothing there."""
        full = resolve(path, state.cwd, state.links, state.home())
        if has_glob(full) and full not in state.files:
            texts = [
                text for name, text in state.files.items() if could_match(full, name)
            ]
            return "\n".join(texts) if texts else None
        return state.files.get(full)

    def write_file(
        self, path: str, text: str, state: ShellState, append: bool = False
    ) -> None:
        full = resolve(path, state.cwd, state.links, state.home())
        full = flat(
            state.env.get(re.sub(r"^/(?:dev|proc/self)/fd/(\d+)$", r"&\1>", full), full)
        )
        if (stmts := self.sinks.get(full)) is not None:
            self.block(stmts, state.captured(), Feed(text))
            return
        check_settings_file(self, full, text)
        if full.endswith("/.envrc") or (is_place("own_rc", full) and text.strip()):
            self._runs_later(text, state)
        state.files[full] = clip((state.files.get(full, "") if append else "") + text)

    def _runs_later(self, text: str, state: ShellState) -> None:
        """Lines of an rc file: judge them as if they ran now; emit persist.rc if they are unknown or hostile."""
        if has(text, NETWORK + HIDDEN + UNKNOWN) or expressions.holds(
            "hostile_rc_line", text
        ):
            self.emit("persist.rc", text)
        elif known(text):
            self.run_text(text, state.fork())

    def block(self, stmts: list[Node] | None, state: ShellState, feed: Feed) -> str:
        return clip(
            "".join([self.statement(stmt, state, feed) for stmt in stmts or []])
        )

    def statement(self, stmt: Node, state: ShellState, feed: Feed) -> str:
        self.tick()
        if not (stmt.get("Background") or stmt.get("Coprocess")):
            return run_redirected(self, stmt, state, feed)
        self._background += 1
        try:
            return run_redirected(self, stmt, state.fork(), feed)
        finally:
            self._background -= 1

    def command(self, node: Node | None, state: ShellState, feed: Feed) -> str:
        if node is None:
            return ""
        if node["Type"] == "CallExpr":
            return self._call(node, state, feed)
        if node["Type"] == "BinaryCmd":
            return self._binary(node, state, feed)
        if node["Type"] not in COMMANDS:
            raise TooComplex(f"{node['Type']} is not understood")
        return COMMANDS[node["Type"]](self, node, state, feed)

    def expander(self, state: ShellState) -> Expander:
        return Expander(
            state,
            lambda part: self._substitution(part, state),
            lambda part: self._process(part, state),
        )

    def _substitution(self, part: Node, state: ShellState) -> str:
        stmts = part.get("Stmts") or []
        if len(stmts) == 1 and not stmts[0].get("Cmd"):  # $(< file)
            paths = [
                self.expander(state).text(redirect["Word"])
                for redirect in stmts[0].get("Redirs") or []
            ]
            return "".join(read_path(self, path, state) for path in paths)
        feed = (
            Feed(self.feed.text, self.feed.outside)
            if self.feed.text
            else Feed(UNKNOWN, outside=True)
        )
        return self.block(stmts, state.captured(), feed)

    def _process(self, part: Node, state: ShellState) -> str:
        path = f"/dev/fd/{60 + len(self.sinks) + len(state.files)}"
        if part["Op"] == "<(":
            state.files[path] = self.block(part.get("Stmts"), state.captured(), Feed())
        else:
            self.sinks[path] = part.get("Stmts") or []
        return path

    def _call(self, node: Node, state: ShellState, feed: Feed) -> str:
        words = self.expander(state).words(node.get("Args") or [])
        assigns = node.get("Assigns") or []
        before = dict(state.env)
        for assign in assigns:
            self.assign(assign, state, words[0] if words else "")
        if not words:
            return ""
        try:
            return self.simple_command(words, state, feed)
        finally:
            for name in [assign["Name"]["Value"] for assign in assigns]:
                state.env.pop(name, None)
                state.env.update({name: before[name]} if name in before else {})

    def simple_command(self, words: list[str], state: ShellState, feed: Feed) -> str:
        """Run one simple command, given its expanded words."""
        self.tick()
        while words and words[0] != "" and drop_unset(words[0]) == "":
            words = words[1:]
        if not words:
            return ""
        name = drop_unset(words[0])
        for word in words[1:] if f" {name} " in EVALUATES else ():
            self.subscripts(word, state)
        if len(self.literals) < MAX_LITERALS:
            self.literals += [word for word in words[1:] if " " in word]
        if name in state.aliases and known(name):
            return self._alias(name, words, state, feed)
        if name in state.functions:
            return self._function_or_program(name, words, state, feed)
        return self._program(name, words, state, feed)

    def _program(
        self, name: str, words: list[str], state: ShellState, feed: Feed
    ) -> str:
        out = self.programs.run(self, [name, *words[1:]], state, feed)
        state.last = words[-1]
        return out

    def _alias(self, name: str, words: list[str], state: ShellState, feed: Feed) -> str:
        rest = state.fork()
        text = rest.aliases.pop(name)
        with self.under(f"alias {name}"):
            quoted = " ".join(
                "'" + word.replace("'", "'\\''") + "'" for word in words[1:]
            )
            out = self.run_text(f"{text} {quoted}", rest, feed)
        # bash expands aliases only if it is set so, and only on later lines: the name may still mean the program.
        if self.programs.is_known(self, name, rest):
            self.programs.run(self, [name, *words[1:]], rest, feed)
        return out

    def _function_or_program(
        self, name: str, words: list[str], state: ShellState, feed: Feed
    ) -> str:
        """The function may not be defined here; then its name means the program. Each pass goes on with one of them."""
        if not self.programs.is_known(self, name, state):
            return self._call_function(name, words, state, feed)
        self.branched, other = True, state.fork()
        own, program = (other, state) if self.undo_branches else (state, other)
        copy = Feed(feed.text, feed.outside, feed.source)
        outs = (
            self._call_function(name, words, own, copy),
            self._program(name, words, program, feed),
        )
        state.env.update({**other.env, **state.env})
        return outs[self.undo_branches]

    def _call_function(
        self, name: str, words: list[str], state: ShellState, feed: Feed
    ) -> str:
        outer = (state.args, state.shadowed, state.unreliable)
        state.args = words[1:]
        state.shadowed = {}
        state.env["FUNCNAME"] = name
        try:
            with self.under(f"{name}()"):
                body = state.functions[name]
                return self.limit_recursion(
                    name, lambda: self.statement(body, state, feed), id(body)
                )
        finally:  # `local` may not have run: the second pass keeps the function's values
            self.branched = self.branched or bool(state.shadowed)
            back = {} if self.undo_branches else state.shadowed
            state.env, unreliable = (
                {**state.env, **back},
                state.unreliable - state.shadowed.keys(),
            )
            state.args = outer[0]
            state.shadowed = outer[1]
            state.unreliable = outer[2] | unreliable

    def limit_recursion(self, name: str, run: Callable[[], str], body: int = 0) -> str:
        """Follow recursion a few levels. What starts itself in the background, or twice in a pipe, is a fork bomb."""
        call = self._calls.setdefault(key := (name, body), [0, 0])
        if call[0] and (self._background or self._piping):
            call[1] += call[0] == 1
            if self._background or call[1] > 1:
                self.emit("process.forkbomb", name)
                return UNKNOWN
        if call[0] >= MAX_RECURSION:
            return UNKNOWN
        outer = (self._background, self._piping)
        self._background = 0
        self._piping = 0
        call[0] += 1
        try:
            return run()
        finally:
            call[0] -= 1
            self._background, self._piping = outer
            if not call[0]:
                del self._calls[key]

    def assign(self, node: Node, state: ShellState, program: str = "") -> None:
        if node.get("Naked") or not node.get("Name"):
            return
        name = node["Name"]["Value"]
        expander = self.expander(state)
        value: Value = (
            self._array(node["Array"], expander)
            if node.get("Array")
            else expander.text(node.get("Value"))
        )
        if node.get("Index"):
            value = _element(
                state.env.get(name), expander.text(node["Index"]), flat(value)
            )
        elif node.get("Append"):
            old = state.env.get(name, "")
            lists = isinstance(old, list) or isinstance(value, list)
            value = (
                flat_list(old) + flat_list(value) if lists else flat(old) + flat(value)
            )
        self.set(name, value, state, program)

    def set(
        self, name: str, value: Value, state: ShellState, program: str = ""
    ) -> None:
        check_variable(self, name, flat(value), state, program)
        self.subscripts(flat(value), state)
        if expressions.is_a("set_by_bash", name):
            return
        if element := re.fullmatch(r"(\w+)\[(.*)\]", name):
            name = element[1]
            value = _element(state.env.get(element[1], []), element[2], flat(value))
        state.env[name] = clip(value) if isinstance(value, str) else value
        if name in state.unreliable:
            state.mark_unreliable(name, value)

    def _array(self, node: Node, expander: Expander) -> Value:
        elements = node.get("Elems") or []
        if not any(element.get("Index") for element in elements):
            return expander.words([element.get("Value") or {} for element in elements])
        keyed: dict[str, str] = {}
        for at, one in enumerate(elements):
            keyed[expander.text(one["Index"]) if one.get("Index") else str(at)] = (
                expander.text(one.get("Value"))
            )
        if all(map(str.isdecimal, keyed)):
            return [keyed[key] for key in sorted(keyed, key=to_int)]
        return keyed

    def _binary(self, node: Node, state: ShellState, feed: Feed) -> str:
        chain = [node["Y"]]
        left = node["X"]
        piping = node["Op"] in ("|", "|&")
        while _joins(left, piping):
            chain.append(left["Cmd"]["Y"])
            left = left["Cmd"]["X"]
        chain.reverse()
        if not piping:
            out = self.statement(left, state, feed)
            for right in chain:
                with branch(self, state):
                    out += self.statement(right, state, feed)
            return out
        self._piping += 1
        out = self.statement(left, state.captured(), feed)
        for right in chain[:-1]:
            out = self.statement(right, state.captured(), Feed(out))
        out = self.statement(chain[-1], state.fork(), Feed(out))
        self._piping -= 1
        return out


def _parse_unset(text: str) -> Node:
    """The tree with unset variables as empty; where bash needs a word (`[[ -f $F ]]`), as an unknown one."""
    try:
        return parse(drop_unset(text))
    except ParseError:
        if UNSET not in text:
            raise
        return parse(text.replace(UNSET, UNKNOWN))


def _element(old: Value | None, index: str, value: str) -> Value:
    """An array with one more element: a list, or a dict if the keys are not 0, 1, 2 …"""
    if isinstance(old, list) and index.isdecimal() and to_int(index) <= len(old):
        return [*old[: int(index)], value, *old[int(index) + 1 :]]
    base = (
        old
        if isinstance(old, dict)
        else {str(at): one for at, one in enumerate(flat_list(old or []))}
    )
    return {**base, index: value}


def _joins(stmt: Node, piping: bool) -> bool:
    """Whether the left side belongs to the same chain: of pipes, or of && and ||."""
    command = stmt.get("Cmd") or {}
    plain = not (stmt.get("Redirs") or stmt.get("Background") or stmt.get("Negated"))
    return (
        plain
        and command.get("Type") == "BinaryCmd"
        and (command["Op"] in ("|", "|&")) == piping
    )
