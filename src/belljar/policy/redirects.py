"""Redirections: where a statement's text comes from and goes to."""

import re
from abc import abstractmethod

from .compound import Compound, Feed
from .expand import flat
from .marks import UNKNOWN, solid
from .parser import Node
from .shellstate import ShellState


class Redirects(Compound):
    """A part of the machine: it turns redirections into reads, writes and standard input."""

    sinks: dict[str, list[Node]]
    _feed: Feed

    @abstractmethod
    def command(self, node: Node | None, state: ShellState, feed: Feed) -> str: ...

    @abstractmethod
    def read_effect(self, path: str, state: ShellState) -> str: ...

    @abstractmethod
    def write_effect(self, path: str, state: ShellState, append: bool) -> None: ...

    @abstractmethod
    def write_file(self, path: str, text: str, state: ShellState, append: bool = False) -> None: ...

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
        words = (stmt.get("Cmd") or {}).get("Args") or []
        if outputs and len(words) == 1 and (words[0].get("Parts") or [{}])[0].get("Value") == "exec":
            state.env["&1>"] = outputs[-1][0]
        elif words and out and not outputs and not discard and "&1>" in state.env:
            self.write_file(flat(state.env["&1>"]), out, state, append=True)
            return ""
        return "" if outputs or discard else out

    def _redirect(
        self, node: Node, state: ShellState, feed: Feed, outputs: list[tuple[str, bool]], discard: bool
    ) -> tuple[Feed, bool]:
        op, expander = node["Op"], self.expander(state)
        number = (node.get("N") or {}).get("Value", "")
        if number[:1] == "{":  # bash picks a number and puts it into the variable
            state.env[number[1:-1]] = number = str(10 + len(state.files))
        if op in ("<<", "<<-"):
            text = expander.heredoc(node)
            return self._fed(number, text, state, feed), discard
        fields = expander.fields(node["Word"]) if op != "<<<" else []
        target = fields[0] if len(fields) == 1 else expander.text(node["Word"])
        if op == "<<<":
            return self._fed(number, target + "\n", state, feed), discard
        if op == "<&" and solid(target) in state.feeds:
            return state.feeds[solid(target)], discard
        if op == ">&" and f"&{solid(target)}>" in state.env and number in ("", "1"):
            outputs.append((flat(state.env[f"&{solid(target)}>"]), True))
            return feed, discard
        if op in ("<&", ">&") and re.fullmatch(r"\d+-?|-", solid(target)):
            return feed, discard or (op == ">&" and number in ("", "1") and target != "1")
        if op in ("<", "<>", "<&"):
            text = self.read_effect(target, state)
            if op == "<>" and number not in ("", "0"):
                state.env[f"&{number}>"] = target
            return self._fed(number, text, state, feed), discard
        if number in ("", "1") or op in ("&>", "&>>"):
            outputs.append((target, op in (">>", "&>>")))
        else:
            self.write_effect(target, state, op == ">>")
            if solid(target) in self.sinks:
                self.write_file(target, UNKNOWN, state)
            if number not in ("", "1", "2"):
                state.env[f"&{number}>"] = target
                self.write_file(target, "", state, op == ">>")
        return feed, discard

    @staticmethod
    def _fed(number: str, text: str, state: ShellState, feed: Feed) -> Feed:
        """Text given to a descriptor: the standard input, or a file that /dev/fd names."""
        if number in ("", "0"):
            return Feed(text)
        state.files[f"/dev/fd/{number}"] = state.files[f"/proc/self/fd/{number}"] = text
        state.feeds[number] = Feed(text)
        return feed

    def _sockets(self, stmt: Node, outputs: list[tuple[str, bool]], state: ShellState) -> None:
        """A shell whose ends are sockets is a reverse shell, whatever it is called."""
        words = (stmt.get("Cmd") or {}).get("Args") or []
        if any(solid(path).startswith(("/dev/tcp/", "/dev/udp/")) for path, _ in outputs) and words:
            first = self.expander(state).fields(words[0])[:1]
            if first and re.search(r"(^|/)(ba|da|z|k|c|fi|a)?sh$|python|perl|ruby|exec", solid(first[0])):
                self.emit("net.shell", outputs[0][0])
