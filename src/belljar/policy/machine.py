"""The abstract interpreter: walks a syntax tree as bash would and writes down what would happen.

Each command has an abstract standard output, so pipes and substitutions carry text (known or not) from one to the next.
Both sides of a condition are taken; variables keep what the last branch left, and where a branch replaced a known value a
second pass runs with the branches undone, so a harmless reassignment cannot hide a harmful one. Loops are bounded, and so
are commands, nesting and time: over a bound the verdict is "too complex", a denial.
"""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .effects import Effect
from .expand import Expander, flat, flat_list
from .marks import DISGUISED, ENCODED, NETWORK, SELF, UNKNOWN, UNSET, clip, has, has_glob, known, solid
from .parser import Node, ParseError, parse
from .paths import could_match, resolve
from .plain import plain_words
from .shellstate import ShellState, Value

MAX_STEPS, MAX_DEPTH, MAX_SECONDS, MAX_EFFECTS = 3000, 40, 1.2, 400


class TooComplex(Exception):
    """The command does more than can be followed."""


class NeedsParser(Exception):
    """The fast path met a text that only the parser can read."""


class Feed:
    """A standard input: text that `read` takes line by line."""

    __slots__ = ("text",)

    def __init__(self, text: str = "") -> None:
        self.text = text

    def line(self) -> str:
        line, _, rest = self.text.partition("\n")
        if known(line):
            self.text = rest
        return line


class Machine:
    def __init__(self, dispatch: Callable[["Machine", list[str], ShellState, Feed], str], parsing: bool = True) -> None:
        self.effects: dict[Effect, None] = {}
        self.trail: list[str] = []
        self.traps: list[tuple[str, ShellState]] = []
        self.fifos = self.blind_shell = False
        self.fifo_paths: set[str] = set()
        self.undo_branches, self.branched = False, False
        self.sinks: dict[str, list[Node]] = {}
        self.privileged = 0
        self._dispatch, self._parsing = dispatch, parsing
        self._steps = 0
        self._deadline = time.monotonic() + MAX_SECONDS
        self._calls: dict[str, int] = {}
        self._background = 0
        self._feed = Feed()

    # -- what the programs use -----------------------------------------------------------------------------------

    def emit(
        self, kind: str, target: str = "", path_class: str = "", flags: frozenset[str] = frozenset(), program: str = ""
    ) -> None:
        if self.privileged:
            flags = flags | frozenset({"sudo"})
        if len(self.effects) < MAX_EFFECTS:
            self.effects[
                Effect(
                    kind,
                    target[:400],
                    path_class,
                    flags,
                    program or (self.trail[-1] if self.trail else ""),
                    tuple(self.trail[-8:]),
                )
            ] = None

    @contextmanager
    def under(self, name: str) -> Iterator[None]:
        if len(self.trail) >= MAX_DEPTH:
            raise TooComplex("it is nested too deeply to judge")
        self.trail.append(name[:60])
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
        stmts = self.sinks.get(full)
        if stmts is not None:
            self.block(stmts, state.fork(), Feed(text))
            return
        if full in self.fifo_paths and self.blind_shell and known(text):
            self.run_text(text, state.fork())
        state.files[full] = clip((state.files.get(full, "") if append else "") + text)

    # -- statements ----------------------------------------------------------------------------------------------

    def block(self, stmts: list[Node] | None, state: ShellState, feed: Feed) -> str:
        return clip("".join([self.statement(stmt, state, feed) for stmt in stmts or []]))

    def statement(self, stmt: Node, state: ShellState, feed: Feed) -> str:
        self._count()
        if stmt.get("Background") or stmt.get("Coprocess"):
            with self._parallel():
                return self._redirected(stmt, state.fork(), feed)
        return self._redirected(stmt, state, feed)

    def _count(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS or time.monotonic() > self._deadline:
            raise TooComplex("it does too much to be judged")

    @contextmanager
    def _parallel(self) -> Iterator[None]:
        self._background += 1
        try:
            yield
        finally:
            self._background -= 1

    def _redirected(self, stmt: Node, state: ShellState, feed: Feed) -> str:
        outputs: list[tuple[str, bool]] = []
        discard = False
        held = state.fork() if stmt.get("Redirs") else state
        for redirect in stmt.get("Redirs") or []:
            feed, discard = self._redirect(redirect, state, feed, outputs, discard)
        self._sockets(stmt, outputs, held)
        outer, self._feed = self._feed, feed
        try:
            out = self.command(stmt.get("Cmd"), state, feed) if stmt.get("Cmd") else ""
        finally:
            self._feed = outer
        for target, append in outputs:
            self.write_effect(target, state, append)
            self.write_file(target, out, state, append)
        return "" if outputs or discard else out

    def _redirect(
        self, node: Node, state: ShellState, feed: Feed, outputs: list[tuple[str, bool]], discard: bool
    ) -> tuple[Feed, bool]:
        op, expander = node["Op"], self.expander(state)
        number = (node.get("N") or {}).get("Value", "")
        if op in ("<<", "<<-"):
            return Feed(expander.heredoc(node)), discard
        fields = expander.fields(node["Word"]) if op != "<<<" else []
        target = fields[0] if len(fields) == 1 else expander.text(node["Word"])
        if op == "<<<":
            return Feed(target + "\n"), discard
        if op == "<&" and f"&{solid(target)}" in state.env:
            return Feed(flat(state.env[f"&{solid(target)}"])), discard
        if op == ">&" and f"&{solid(target)}>" in state.env and number in ("", "1"):
            outputs.append((flat(state.env[f"&{solid(target)}>"]), True))
            return feed, discard
        if op in ("<&", ">&") and re.fullmatch(r"\d+-?|-", solid(target)):
            return feed, discard or (op == ">&" and number in ("", "1") and target != "1")
        if op in ("<", "<>", "<&"):
            text = self.read_effect(target, state)
            if number not in ("", "0"):
                state.env[f"&{number}"] = text
            return (Feed(text) if number in ("", "0") else feed), discard
        if number in ("", "1") or op in ("&>", "&>>"):
            outputs.append((target, op in (">>", "&>>")))
        else:
            self.write_effect(target, state, op == ">>")
            if number not in ("", "1", "2"):
                state.env[f"&{number}>"] = target
                self.write_file(target, "", state, op == ">>")
        return feed, discard

    def _sockets(self, stmt: Node, outputs: list[tuple[str, bool]], state: ShellState) -> None:
        """A shell whose ends are sockets is a reverse shell, whatever it is called."""
        words = (stmt.get("Cmd") or {}).get("Args") or []
        if any(solid(path).startswith(("/dev/tcp/", "/dev/udp/")) for path, _ in outputs) and words:
            first = self.expander(state).fields(words[0])[:1]
            if first and re.search(r"(^|/)(ba|da|z|k|c|fi|a)?sh$|python|perl|ruby|exec", solid(first[0])):
                self.emit("net.shell", outputs[0][0])

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
        return Expander(state, lambda part: self._substitution(part, state), lambda part: self._process(part, state))

    def _substitution(self, part: Node, state: ShellState) -> str:
        stmts = part.get("Stmts") or []
        if len(stmts) == 1 and not stmts[0].get("Cmd"):  # $(< file)
            return "".join(
                self.read_effect(self.expander(state).text(r["Word"]), state) for r in stmts[0].get("Redirs") or []
            )
        return self.block(stmts, state.fork(), Feed(self._feed.text or UNKNOWN))

    def _process(self, part: Node, state: ShellState) -> str:
        path = f"/dev/fd/{60 + len(self.sinks) + len(state.files)}"
        if part["Op"] == "<(":
            state.files[path] = self.block(part.get("Stmts"), state.fork(), Feed())
        else:
            self.sinks[path] = part.get("Stmts") or []
        return path

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
        self._count()
        while words and words[0] != "" and solid(words[0]) == "":
            words = words[1:]
        if not words:
            return ""
        name = solid(words[0])
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
            return self.run_text(f"{text} {quoted}", rest, feed)

    def _function(self, name: str, words: list[str], state: ShellState, feed: Feed) -> str:
        args, state.args = state.args, words[1:]
        state.env["FUNCNAME"] = name
        try:
            with self.under(f"{name}()"):
                return self._guarded(name, lambda: self.statement(state.functions[name], state, feed))
        finally:
            state.args = args

    def _guarded(self, key: str, run: Callable[[], str]) -> str:
        if key in self._calls:
            self._calls[key] += 1
            if self._background or self._calls[key] > 2:
                self.emit("process.forkbomb", key)
            return UNKNOWN
        self._calls[key] = 1
        background, self._background = self._background, 0
        try:
            return run()
        finally:
            self._background = background
            del self._calls[key]

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

        poisoned(self, name, flat(value), state, program)
        if name == "PWD":
            return
        state.env[name] = clip(value) if isinstance(value, str) else value

    def _array(self, node: Node, expander: Expander) -> Value:
        elements = node.get("Elems") or []
        if any(element.get("Index") for element in elements):
            keyed = {
                expander.text(e["Index"]) if e.get("Index") else str(i): expander.text(e.get("Value"))
                for i, e in enumerate(elements)
            }
            return keyed if not all(key.isdigit() for key in keyed) else [keyed[key] for key in sorted(keyed, key=int)]
        return [field for element in elements for field in expander.fields(element.get("Value") or {})]

    @staticmethod
    def _element(old: Value | None, index: str, value: str) -> Value:
        if isinstance(old, list) and index.isdigit() and int(index) < 4096:
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
        return {**base, index: value}

    def _binary_cmd(self, node: Node, state: ShellState, feed: Feed) -> str:
        chain = [(node["Op"], node["Y"])]
        left = node["X"]
        piping = node["Op"] in ("|", "|&")
        while _joins(left, piping):
            chain.append((left["Cmd"]["Op"], left["Cmd"]["Y"]))
            left = left["Cmd"]["X"]
        chain.reverse()
        if piping:
            out = self.statement(left, state.fork(), feed)
            for _, right in chain:
                out = self.statement(right, state.fork(), Feed(out))
            return out
        out = self.statement(left, state, feed)
        for _, right in chain:
            with self._branch(state):
                out += self.statement(right, state, feed)
        return out

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
            with self._branch(state):
                out += self.block(item.get("Stmts"), state, feed)
        return out

    def _while_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        self._endless([] if SELF in feed.text else node.get("Cond") or [], node.get("Do") or [])
        out, rounds = "", 0
        reading = any("read" in str(stmt)[:600] for stmt in node.get("Cond") or [])
        while rounds < 2 or (reading and feed.text and known(feed.text) and rounds < 24):
            out += self.block(node.get("Cond"), state, feed)
            with self._branch(state):
                out += self.block(node.get("Do"), state, feed)
            rounds += 1
            if reading and not feed.text:
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
        items = (
            expander.words(loop["Items"]) if loop.get("Items") is not None or loop.get("InPos") else list(state.args)
        )
        out = ""
        for item in items[:64] or [UNSET]:
            state.env[loop["Name"]["Value"]] = item
            out += self.block(body, state, feed)
        if has_glob("".join(items)):
            state.env[loop["Name"]["Value"]] = items[-1]
        return out

    def _counting(self, loop: Node, body: list[Node], state: ShellState, feed: Feed) -> str:
        from .arithmetic import evaluate

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
        from .arithmetic import evaluate

        evaluate(node.get("X"), self.expander(state))
        return ""

    def _let_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        from .arithmetic import evaluate

        for expression in node.get("Exprs") or []:
            evaluate(expression, self.expander(state))
        return ""

    def _test_clause(self, node: Node, state: ShellState, feed: Feed) -> str:
        for word in _words_below(node.get("X")):
            self.expander(state).text(word)
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
        with self._parallel():
            return self.statement(node["Stmt"], state.fork(), Feed(UNKNOWN))


def _joins(stmt: Node, piping: bool) -> bool:
    """Whether the left side is more of the same chain (of pipes, or of && and ||)."""
    command = stmt.get("Cmd") or {}
    plain = not (stmt.get("Redirs") or stmt.get("Background") or stmt.get("Negated"))
    return plain and command.get("Type") == "BinaryCmd" and (command["Op"] in ("|", "|&")) == piping


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
