"""Compound commands: conditions, loops, functions, declarations."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

from .expand import evaluate, flat
from .interpreter import Interpreter
from .marks import ATOM, ENDLESS, UNKNOWN, UNSET, known
from .parser import Node
from .shellstate import Feed, ShellState

MAX_LINES, MAX_COUNT = (
    200,
    2,
)  # rounds of a loop that reads lines, or that counts: all rounds do the same


@contextmanager
def branch(machine: Interpreter, state: ShellState) -> Iterator[None]:
    """Commands that may not run. The first pass keeps what they set, the second undoes it (see machine.py)."""
    before = dict(state.env)
    functions = dict(state.functions)
    yield
    if any(state.functions.get(name) is not body for name, body in functions.items()):
        machine.branched = True
        state.functions.update(functions if machine.undo_branches else {})
    for name, value in before.items():
        if (
            state.env.get(name) != value
            and name not in ("OLDPWD", "REPLY")
            and known(flat(value))
        ):
            machine.branched = True
            if machine.undo_branches:
                state.env[name] = value


def _if(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    out = machine.block(node.get("Cond"), state, feed)
    with branch(machine, state):
        out += machine.block(node.get("Then"), state, feed)
    if node.get("Else"):
        with branch(machine, state):
            out += _if(machine, node["Else"], state, feed)
    return out


def _case(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    out = ""
    items = node.get("Items") or []
    for word in [
        node["Word"],
        *(pattern for item in items for pattern in item.get("Patterns") or []),
    ]:
        machine.expander(state).text(word)
    for item in items:
        with branch(machine, state):
            out += machine.block(item.get("Stmts"), state, feed)
    return out


def _while(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    cond = node.get("Cond") or []
    body = node.get("Do") or []
    out = ""
    rounds = 0
    source = feed
    _check_endless(machine, [] if ENDLESS in feed.text else cond, body)
    reading = any("read" in str(stmt)[:600] for stmt in cond)
    while rounds < 2 or (
        reading and source.text and known(source.text) and rounds < MAX_LINES
    ):
        machine.source, before = feed, dict(state.env)
        out += machine.block(cond, state, feed)
        source = machine.source
        with branch(machine, state):
            out += machine.block(body, state, feed)
        rounds += 1
        if reading and not source.text:
            break
    for name in (
        name
        for name in state.env
        if rounds > 1 and not reading and state.env[name] != before.get(name)
    ):
        state.env[name] = (
            ATOM if flat(state.env[name]).isdigit() else UNKNOWN
        )  # and so on in later rounds
    return out


def _check_endless(machine: Interpreter, cond: list[Node], body: list[Node]) -> None:
    """Emit `while true; do something & done`: it starts processes without end."""
    forever = (
        not cond or re.search(r"'Value': '(true|:|1|false)'", str(cond)) is not None
    )
    if forever and "'Background': True" in str(body) and not _waits(body):
        machine.emit("process.forkbomb", "endless loop of background processes")


def _waits(node: object) -> bool:
    """Whether a command in the foreground of a loop waits or leaves the loop."""
    if isinstance(node, list):
        return any(_waits(item) for item in node)
    if not isinstance(node, dict) or node.get("Background"):
        return False
    waits = (
        node.get("Value") in ("sleep", "wait", "read", "inotifywait", "break", "exit")
        and node.get("Type") == "Lit"
    )
    return waits or any(
        _waits(child) for child in node.values() if isinstance(child, dict | list)
    )


def _for(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    loop = node["Loop"]
    body = node.get("Do") or []
    if loop["Type"] != "WordIter":
        return _counting(machine, loop, body, state, feed)
    given = loop.get("Items") or loop.get("InPos")
    items = (
        machine.expander(state).words(loop.get("Items") or [])
        if given
        else list(state.args)
    )
    if len(items) > 16 and all(item.isdigit() for item in items):
        items = [*items[:8], items[-1]]  # the loop does the same for all numbers
    out = ""
    name = loop["Name"]["Value"]
    for item in items or [UNSET]:
        with nullcontext() if any(map(known, items)) else branch(machine, state):
            machine.set(name, item, state)
            out += machine.block(body, state, feed)
    return out


def _counting(
    machine: Interpreter, loop: Node, body: list[Node], state: ShellState, feed: Feed
) -> str:
    expander = machine.expander(state)
    out = ""
    evaluate(loop.get("Init"), expander)
    if not loop.get("Cond"):
        _check_endless(machine, [], body)
    for _ in range(MAX_COUNT):
        evaluate(loop.get("Cond"), expander)
        out += machine.block(body, state, feed)
        evaluate(loop.get("Post"), expander)
    return out


def _function(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    chain = node["Body"].get("Cmd") or {}
    if (
        chain.get("Type") == "BinaryCmd"
    ):  # shfmt takes all of `f() { …; } && …` as the body, bash only the braces
        chain = {**chain, "X": {"Cmd": {**node, "Body": chain["X"]}}}
        return machine.statement({**node["Body"], "Cmd": chain}, state, feed)
    with (
        branch(machine, state) if machine.trail else nullcontext()
    ):  # inside a function it may not run
        for name in node.get("Names") or filter(
            None, [node.get("Name")]
        ):  # zsh's `() …` has no name
            state.functions[name["Value"]] = node["Body"]
    return ""


def _arithmetic(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    for expression in node.get("Exprs") or [node.get("X")]:
        evaluate(expression, machine.expander(state))
    return _test(machine, {"X": node.get("Exprs") or node.get("X")}, state, feed)


def _test(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    for word in _words_below(node.get("X")):
        machine.subscripts(machine.expander(state).text(word), state)
    return ""


def _words_below(node: object) -> Iterator[Node]:
    if isinstance(node, dict) and node.get("Type") == "Word":
        yield node
    elif isinstance(node, dict | list):
        for child in node.values() if isinstance(node, dict) else node:
            yield from _words_below(child)


def _declaration(
    machine: Interpreter, node: Node, state: ShellState, feed: Feed
) -> str:
    variant = node["Variant"]["Value"]
    args = node.get("Args") or []
    bare = [
        item.get("Value") or {}
        for item in args
        if item.get("Naked") and not item.get("Name")
    ]
    options = [field for word in bare for field in machine.expander(state).fields(word)]
    for item in (item for item in args if item.get("Name")):
        before = state.env.get(name := item["Name"]["Value"], UNSET)
        machine.assign(item, state)
        state.after_declaration(variant, options, name, before, bool(item.get("Naked")))
    return (
        machine.simple_command([variant, *options], state, feed)
        if options or not args
        else ""
    )


def _coprocess(machine: Interpreter, node: Node, state: ShellState, feed: Feed) -> str:
    """A name before a simple command, as shfmt reads it, is the command's first word for bash."""
    stmt = {**node["Stmt"], "Background": True}
    name = node.get("Name")
    if name and (stmt.get("Cmd") or {"Type": "CallExpr"})["Type"] == "CallExpr":
        stmt["Cmd"] = {
            "Type": "CallExpr",
            "Args": [name, *((stmt.get("Cmd") or {}).get("Args") or [])],
        }
    return machine.statement(stmt, state, feed if feed.text else Feed(UNKNOWN))


COMMANDS: dict[str, Callable[[Interpreter, Node, ShellState, Feed], str]] = {
    "Subshell": lambda machine, node, state, feed: machine.block(
        node.get("Stmts"), state.fork(), feed
    ),
    "Block": lambda machine, node, state, feed: machine.block(
        node.get("Stmts"), state, feed
    ),
    "TimeClause": lambda machine, node, state, feed: (
        machine.statement(node["Stmt"], state, feed) if node.get("Stmt") else ""
    ),
    "IfClause": _if,
    "CaseClause": _case,
    "WhileClause": _while,
    "ForClause": _for,
    "FuncDecl": _function,
    "ArithmCmd": _arithmetic,
    "LetClause": _arithmetic,
    "TestClause": _test,
    "DeclClause": _declaration,
    "CoprocClause": _coprocess,
}
