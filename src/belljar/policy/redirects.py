"""Redirections: where a statement reads from and writes to."""

import re

from belljar.patterns import lazy_pattern

from .expand import flat
from .files import read_path, write_path
from .interpreter import Interpreter
from .marks import UNKNOWN, drop_unset
from .parser import Node
from .shellstate import Feed, ShellState

Outputs = list[tuple[str, bool]]
_SHELLISH = lazy_pattern(r"(^|/)(ba|da|z|k|c|fi|a)?sh$|python|perl|ruby|exec")


def run_redirected(
    machine: Interpreter, stmt: Node, state: ShellState, feed: Feed
) -> str:
    outputs: Outputs = []
    discard = False
    held = state.fork() if stmt.get("Redirs") else state
    for redirect in stmt.get("Redirs") or []:
        feed, silent = _redirect(machine, redirect, state, feed, outputs)
        discard = discard or silent
    words = (stmt.get("Cmd") or {}).get("Args") or []
    if (
        any(
            drop_unset(path).startswith(("/dev/tcp/", "/dev/udp/"))
            for path, _ in outputs
        )
        and words
    ):
        first = machine.expander(held).fields(words[0])[
            :1
        ]  # a shell on a socket is a reverse shell
        if first and _SHELLISH.search(drop_unset(first[0])):
            machine.emit("net.shell", outputs[0][0])
    outer = machine.feed
    machine.feed = feed
    try:
        out = machine.command(stmt.get("Cmd"), state, feed) if stmt.get("Cmd") else ""
    finally:
        machine.feed = outer
    for target, append in outputs:
        write_path(
            machine, target, state, frozenset({"append" if append else "truncate"})
        )
        machine.write_file(target, out, state, append)
    if (
        outputs
        and len(words) == 1
        and (words[0].get("Parts") or [{}])[0].get("Value") == "exec"
    ):
        state.env["&1>"] = outputs[-1][0]
    elif words and out and not outputs and not discard and "&1>" in state.env:
        machine.write_file(flat(state.env["&1>"]), out, state, append=True)
        return ""
    return "" if outputs or discard else out


def _redirect(
    machine: Interpreter, node: Node, state: ShellState, feed: Feed, outputs: Outputs
) -> tuple[Feed, bool]:
    """Standard input after this redirection, and whether standard output goes to another descriptor."""
    op = node["Op"]
    expander = machine.expander(state)
    number = (node.get("N") or {}).get("Value", "")
    if number[:1] == "{":  # bash chooses a number and sets the variable
        state.env[number[1:-1]] = number = str(10 + len(state.files))
    if op in ("<<", "<<-"):
        return _fed(number, expander.heredoc(node), state, feed), False
    fields = expander.fields(node["Word"]) if op != "<<<" else []
    target = fields[0] if len(fields) == 1 else expander.text(node["Word"])
    if op == "<<<":
        return _fed(number, target + "\n", state, feed), False
    if op == "<&" and drop_unset(target) in state.feeds:
        return state.feeds[drop_unset(target)], False
    if op == ">&" and f"&{drop_unset(target)}>" in state.env and number in ("", "1"):
        outputs.append((flat(state.env[f"&{drop_unset(target)}>"]), True))
    elif op in ("<&", ">&") and re.fullmatch(r"\d+-?|-", drop_unset(target)):
        return feed, op == ">&" and number in ("", "1") and target != "1"
    elif op in ("<", "<>", "<&"):
        if op == "<>" and number not in ("", "0"):
            state.env[f"&{number}>"] = target
        fed = _fed(number, read_path(machine, target, state), state, feed)
        fed.source = fed.source if fed is feed else drop_unset(target)
        return fed, False
    elif number in ("", "1") or op in ("&>", "&>>"):
        outputs.append((target, op in (">>", "&>>")))
    else:
        _descriptor(machine, number, target, op == ">>", state)
    return feed, False


def _descriptor(
    machine: Interpreter, number: str, target: str, append: bool, state: ShellState
) -> None:
    write_path(machine, target, state, frozenset({"append" if append else "truncate"}))
    if drop_unset(target) in machine.sinks:
        machine.write_file(target, UNKNOWN, state)
    if number != "2":
        state.env[f"&{number}>"] = target
        machine.write_file(target, "", state, append)


def _fed(number: str, text: str, state: ShellState, feed: Feed) -> Feed:
    """Give text to a descriptor. Returns standard input after that."""
    if number in ("", "0"):
        return Feed(text)
    state.files[f"/dev/fd/{number}"] = state.files[f"/proc/self/fd/{number}"] = text
    state.feeds[number] = Feed(text)
    return feed
