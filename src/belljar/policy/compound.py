"""Compound commands: conditions, loops, functions, declarations, as the interpreter walks them."""

import re
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

from .arithmetic import evaluate, truth
from .expand import Expander, flat
from .marks import SELF, UNKNOWN, UNSET, has_glob, known
from .parser import Node
from .shellstate import ShellState

MAX_ROUNDS = 16  # of a loop whose condition is known to hold: enough to put a command together


class Feed:
    """A standard input: text that `read` takes line by line."""

    __slots__ = ("outside", "text")

    def __init__(self, text: str = "", outside: bool = False) -> None:
        self.text, self.outside = text, outside  # `outside`: whatever stands before the whole command

    def line(self) -> str:
        line, _, rest = self.text.partition("\n")
        if known(line):
            self.text = rest
        return line

    def take(self) -> str:
        """All of it at once."""
        text, self.text = self.text or UNKNOWN, ""
        return text


class Compound:
    """One half of the machine; the other runs statements and simple commands."""

    branched: bool
    undo_branches: bool
    source: Feed  # what the last `read` took its line from
    truth: bool | None  # what the last test came to, where that is known

    @abstractmethod
    def block(self, stmts: list[Node] | None, state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def statement(self, stmt: Node, state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def simple(self, words: list[str], state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def assign(self, node: Node, state: ShellState, program: str = "") -> None: ...

    @abstractmethod
    def expander(self, state: ShellState) -> Expander: ...

    @abstractmethod
    def emit(
        self, kind: str, target: str = "", path_class: str = "", flags: frozenset[str] = frozenset(), program: str = ""
    ) -> None: ...

    @abstractmethod
    def attach(self, name: str, stmt: Node, state: ShellState) -> None: ...

    @abstractmethod
    def spare(self) -> bool: ...

    @contextmanager
    def _branch(self, state: ShellState) -> Iterator[None]:
        before = dict(state.env)
        yield
        for name, value in before.items():
            if state.env.get(name) != value and name not in ("OLDPWD", "REPLY") and known(flat(value)):
                self.branched = True
                if self.undo_branches:
                    state.env[name] = value

    def _subshell(self, node: Node, state: ShellState, feed: Feed) -> str:
        return self.block(node.get("Stmts"), state.fork(), feed)

    def _block(self, node: Node, state: ShellState, feed: Feed) -> str:
        return self.block(node.get("Stmts"), state, feed)

    def _if_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        out = self.block(node.get("Cond"), state, feed)
        with self._branch(state):
            out += self.block(node.get("Then"), state, feed)
        if node.get("Else"):
            with self._branch(state):
                out += self._if_clause(node["Else"], state, feed)
        return out

    def _case_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        self.expander(state).text(node["Word"])
        out = ""
        for item in node.get("Items") or []:
            for pattern in item.get("Patterns") or []:
                self.expander(state).text(pattern)
            with self._branch(state):
                out += self.block(item.get("Stmts"), state, feed)
        return out

    def _while_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        self._endless([] if SELF in feed.text else node.get("Cond") or [], node.get("Do") or [])
        out, rounds = "", 0
        reading = any("read" in str(stmt)[:600] for stmt in node.get("Cond") or [])
        source, least = feed, max(2, len(state.args) if "getopts" in str(node.get("Cond"))[:600] else 0)
        holds: bool | None = None
        while (
            rounds < least
            or (reading and source.text and known(source.text) and rounds < 200)
            or (holds and rounds < MAX_ROUNDS and self.spare())
        ):
            self.source, self.truth = feed, None
            out += self.block(node.get("Cond"), state, feed)
            source, holds = self.source, self.truth if not node.get("Until") else self.truth is False
            with self._branch(state):
                out += self.block(node.get("Do"), state, feed)
            rounds += 1
            if reading and not source.text:
                break
        return out

    def _endless(self, cond: list[Node], body: list[Node]) -> None:
        """`while true; do something & done` starts processes without end."""
        text = str(cond)
        forever = not cond or re.search(r"'Value': '(true|:|1|false)'", text) is not None
        if forever and "'Background': True" in str(body) and not _waits(body):
            self.emit("process.forkbomb", "endless loop of background processes")

    def _for_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        loop, body = node["Loop"], node.get("Do") or []
        if loop["Type"] != "WordIter":
            return self._counting(loop, body, state, feed)
        expander = self.expander(state)
        items = expander.words(loop.get("Items") or []) if loop.get("Items") or loop.get("InPos") else list(state.args)
        out = ""
        if len(items) > 16 and all(item.isdigit() for item in items):
            items = [*items[:8], items[-1]]  # one number does what the other does
        for item in items or [UNSET]:
            state.env[loop["Name"]["Value"]] = item
            out += self.block(body, state, feed)
        if has_glob("".join(items)):
            state.env[loop["Name"]["Value"]] = items[-1]
        return out

    def _counting(self, loop: Node, body: list[Node], state: ShellState, feed: Feed) -> str:
        expander, out = self.expander(state), ""
        evaluate(loop.get("Init"), expander)
        if not loop.get("Cond"):
            self._endless([], body)
        for _ in range(64):
            if evaluate(loop.get("Cond"), expander) == "0" and loop.get("Cond"):
                break
            out += self.block(body, state, feed)
            evaluate(loop.get("Post"), expander)
        return out

    def _func_decl(self, node: Node, state: ShellState, feed: Feed) -> str:
        for name in node.get("Names") or [node["Name"]]:
            state.functions[name["Value"]] = node["Body"]
        return ""

    def _arithm_cmd(self, node: Node, state: ShellState, feed: Feed) -> str:
        value = evaluate(node.get("X"), self.expander(state))
        self.truth = value != "0" if value.isdigit() else None
        return ""

    def _let_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        for expression in node.get("Exprs") or []:
            evaluate(expression, self.expander(state))
        return ""

    def _test_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        words = [self.expander(state).text(word) for word in _words_below(node.get("X"))]
        for text in words:
            if re.match(r"\w+\[", text):
                self.expander(state).subscripts(text)
        test = node.get("X") or {}
        plain = all((test.get(side) or {"Type": "Word"})["Type"] == "Word" for side in ("X", "Y"))
        self.truth = truth([*words[:-1], *([test["Op"]] if "Op" in test else []), *words[-1:]]) if plain else None
        return ""

    def _decl_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        variant = node["Variant"]["Value"]
        options = [
            field
            for item in node.get("Args") or []
            if item.get("Naked") and not item.get("Name")
            for field in self.expander(state).fields(item.get("Value") or {})
        ]
        reference = any(re.fullmatch(r"-\w*n\w*", option) for option in options) and variant != "export"
        for item in node.get("Args") or []:
            if not item.get("Name"):
                continue
            self.assign(item, state)
            for change in [
                str.lower if "l" in option else str.upper for option in options if re.search("[lu]", option)
            ]:
                state.env[item["Name"]["Value"]] = change(flat(state.env.get(item["Name"]["Value"], "")))
            if reference and isinstance(state.env.get(item["Name"]["Value"]), str):
                state.env[item["Name"]["Value"]] = "\0" + flat(state.env[item["Name"]["Value"]])
        if options:
            return self.simple([variant, *options], state, feed)
        if not node.get("Args"):
            return self.simple([variant], state, feed)
        return ""

    def _time_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        return self.statement(node["Stmt"], state, feed) if node.get("Stmt") else ""

    def _coproc_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        stmt, name = node["Stmt"], node.get("Name")
        command = stmt.get("Cmd") or {"Type": "CallExpr"}
        if name and command["Type"] == "CallExpr":  # before a simple command there is no name: it is the first word
            stmt = {**stmt, "Cmd": {**command, "Args": [name, *(command.get("Args") or [])]}}
            name = None
        self.attach(self.expander(state).text(name) if name else "COPROC", stmt, state)
        return self.statement({**stmt, "Background": True}, state, feed if feed.text else Feed(UNKNOWN))


def _waits(node: object) -> bool:
    """Whether something in the foreground of a loop's body waits."""
    if isinstance(node, list):
        return any(_waits(item) for item in node)
    if not isinstance(node, dict) or node.get("Background"):
        return False
    if node.get("Type") == "Lit" and node.get("Value") in ("sleep", "wait", "read", "inotifywait", "break", "exit"):
        return True
    return any(_waits(child) for child in node.values() if isinstance(child, dict | list))


def _words_below(node: object) -> Iterator[Node]:
    if isinstance(node, dict):
        if node.get("Type") == "Word":
            yield node
        else:
            for child in node.values():
                yield from _words_below(child)
