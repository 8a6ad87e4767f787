"""Calls of Python's functions and methods: their effects, and the values that they return.

[language.python.calls] in languages.toml lists the functions (and, with a dot in front, the methods) of each kind. A
kind is in KINDS below, or an effect, or the shell command that does the same (`rm -r {0}`).
"""

import posixpath
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from . import expressions
from .call import Call
from .files import host_of, is_loopback
from .marks import (
    ATOM,
    DISGUISED,
    ENCODED,
    FILE,
    HIDDEN,
    NETWORK,
    PRIVATE,
    SENSITIVE,
    STAR,
    UNKNOWN,
)

from .marks import clip, has, known, taints  # isort: skip
from .roles_net import metadata
from .shellstate import Feed

LOOP_LIMIT, MAX_LEAVES = 256, 10_000
_FIRST_ARGUMENT = ("path", "file", "args", "cmd")  # its names as a keyword


class Ref:
    """A name: of a module, of a function, or of a method that is bound to a value."""

    __slots__ = ("bound", "name")

    def __init__(self, name: str, bound: Any = None) -> None:
        self.name = name
        self.bound = bound


class PythonState(ABC):
    """What calls see of the code that makes them."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.out = ""
        self.looping = self.picking = (
            0  # depth in endless loops; in conditions that choose files
        )

    @abstractmethod
    def run(self, code: str) -> bool:
        """Evaluate code. Returns whether it could be parsed."""


class PythonCall:
    """One call: the function's name and its arguments. The first argument of a method is its object."""

    def __init__(
        self, scan: PythonState, function: Ref, args: list[Any], words: dict[str, Any]
    ) -> None:
        self.scan, self.call, self.state = scan, scan.call, scan.call.state
        self.words: dict[str, Any] = words
        self.method = function.bound is not None
        name = re.sub(r"^(__)?builtins(__)?\.", "", function.name)
        self.name = name.removeprefix("value") if self.method else name
        self.args: list[Any] = args or [
            words[key] for key in _FIRST_ARGUMENT if key in words
        ]
        self.args = [function.bound, *args] if self.method else self.args
        self.texts = [text_of(arg) for arg in self.args]
        self.first, self.second = [*self.texts, "", ""][:2]

    def kind(self) -> str:
        kinds = self.call.machine.knowledge.languages["python"]["calls"].items()
        return next(
            (
                kind
                for kind, pattern in kinds
                if expressions.fullmatch(pattern, self.name)
            ),
            "",
        )

    def filled(self, word: str) -> str:
        """A word of the shell command that does the same. Under a condition, * means only some files."""
        if not (found := re.fullmatch(r"\{(\d)(:o)?\}", word)):
            return word
        value = self.args[int(found[1])] if int(found[1]) < len(self.args) else ATOM
        text = f"{value:o}" if found[2] and isinstance(value, int) else text_of(value)
        return text.replace(STAR, ATOM) if self.scan.picking else text


def evaluate_call(
    scan: PythonState, function: Ref, args: list[Any], words: dict[str, Any]
) -> Any:
    if isinstance(function.bound, Ref) and function.bound.name.startswith(
        "file:"
    ):  # a file that is open for writing
        if function.name.startswith("value.write") and args:
            scan.call.machine.write_file(
                function.bound.name[5:], text_of(args[0]), scan.call.state, append=True
            )
        return function.bound
    one = PythonCall(scan, function, args, words)
    kind = one.kind()
    if kind in KINDS:
        found = KINDS[kind](one)
        return UNKNOWN if found is None else found
    if " " in kind:
        return scan.call.run([one.filled(word) for word in kind.split()])
    if kind:
        scan.call.emit(kind, one.name)
    return unknown_part(taints("".join(one.texts)).replace(ATOM, "").replace(FILE, ""))


def text_of(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float):
        return str(value) if abs(value) < 1 << 64 else ATOM
    if isinstance(value, list | dict):
        return clip(" ".join(islice(_leaves(value), MAX_LEAVES)))
    if isinstance(value, Ref):
        if value.name == "os.environ":
            return SENSITIVE
        return UNKNOWN if value.bound is None else text_of(value.bound)
    return "" if value is None else UNKNOWN


def _leaves(value: Any) -> Iterator[str]:
    """The texts in a list, one by one: lists may share lists, so together they may not fit in memory."""
    for item in value.values() if isinstance(value, dict) else value:
        yield from (
            _leaves(item)
            if item and isinstance(item, list | dict)
            else (text_of(item or ""),)
        )


def items_of(value: Any) -> list[Any]:
    """The items of a loop over a value."""
    if isinstance(value, list):
        return value
    return (
        list(value)
        if isinstance(value, str) and known(value)
        else [unknown_part(text_of(value))]
    )


def unknown_part(text: str) -> str:
    return text if not known(text) else UNKNOWN


def join_path(parts: list[str]) -> str:
    return posixpath.join("", *parts)


def formatted(template: str, args: list[Any]) -> str:
    """`%` and `.format` without widths and the like."""
    given = iter(args)
    return re.sub(
        r"%[srd]|\{\w*\}", lambda found: text_of(next(given, found[0])), template
    )


def _code(one: PythonCall) -> Any:
    if has(one.first, NETWORK):
        one.call.emit("exec.network", "python exec")
    elif known(one.first):
        one.scan.run(one.first)
    elif one.name == "exec" or has(one.first, HIDDEN):
        one.call.emit(
            "exec.disguised" if has(one.first, HIDDEN) else "exec.unseen", "python exec"
        )


def _open(one: PythonCall) -> Any:
    mode = one.second or text_of(one.words.get("mode", "r"))
    if not re.search(r"[wax+]", mode) and mode != UNKNOWN:
        return one.call.read(one.first)
    _written(one, "" if "w" in mode else FILE, "w" in mode)
    return Ref("file:" + one.first, FILE)


def _written(one: PythonCall, text: str, over: bool = True) -> None:
    """Write a file. Writing something new to every file there is empties them all."""
    read = any(
        effect.kind == "read" and STAR in effect.target
        for effect in one.call.machine.effects
    )
    wipes = over and STAR in one.first and not one.scan.picking and not read
    one.call.write(one.first, text, *(["truncate"] if wipes else []))


def _argv(one: PythonCall) -> Any:
    """Run a program: its words are a list, or arguments with its name twice (os.exec…)."""
    for table in (
        value for value in (*one.args, one.words.get("env")) if isinstance(value, dict)
    ):
        for key, value in table.items():
            one.call.machine.set(key, text_of(value), one.state.fork())
    listed = any(isinstance(arg, list) for arg in one.args)
    if one.words.get("shell") and not listed:
        return _shell(one)
    given = [arg for arg in one.args if not isinstance(arg, int | dict | Ref)]
    texts = [
        text_of(item)
        for arg in given
        for item in (arg if isinstance(arg, list) else [arg])
    ]
    texts = texts if listed or texts[1:] else texts[0].split() if texts else []
    twice = (
        one.name.startswith("os.")
        and texts[1:]
        and texts[0].rsplit("/")[-1] == texts[1].rsplit("/")[-1]
    )
    return one.call.run(
        texts[1:] if twice else texts,
        Feed(text_of(one.words.get("input", one.words.get("stdin")))),
    )


def _shell(one: PythonCall) -> Any:
    """Run a command in a shell. If nothing of it is known, it is the project's code."""
    text = one.texts[-1] if one.method else one.first
    return (
        one.call.shell(text)
        if text.strip(UNKNOWN)
        else one.call.emit("exec.script", "python")
    )


def _fetch(one: PythonCall) -> Any:
    sent = taints("".join([*one.texts, *map(text_of, one.words.values())]))
    if has(sent, PRIVATE + ENCODED):
        one.call.send(sent, one.first)
    one.call.emit("net.fetch", one.first)
    metadata(one.call, one.first)
    if one.args[1:] and isinstance(one.args[1], str):
        one.call.write(one.second, NETWORK)
    return UNKNOWN if is_loopback(host_of(one.first)) else NETWORK


def _send(one: PythonCall) -> Any:
    sent = "".join([*one.texts[1:], *map(text_of, one.words.values())])
    one.call.send(
        SENSITIVE + sent if one.name.startswith(".send") and FILE in sent else sent,
        "remote",
    )
    return NETWORK


KINDS: dict[str, Callable[[PythonCall], Any]] = {
    "code": _code,
    "open": _open,
    "argv": _argv,
    "shell": _shell,
    "fetch": _fetch,
    "send": _send,
    "write": lambda one: _written(
        one, one.second or text_of(one.words.get("data", "")), one.name != ".touch"
    ),
    "print": lambda one: setattr(
        one.scan, "out", clip(one.scan.out + " ".join(one.texts) + "\n")
    ),
    "getattr": lambda one: (
        Ref(f"{one.args[0].name}.{one.second}")
        if one.args and isinstance(one.args[0], Ref)
        else Ref(f"value.{one.second}", one.first)
    ),
    "chdir": lambda one: setattr(one.state, "cwd", one.call.locate(one.first)[0]),
    "import": lambda one: Ref(one.first if known(one.first) else "unknown"),
    "read": lambda one: one.call.read(one.first),
    "load": lambda one: one.call.load(one.texts[-1] if one.texts else ""),
    "unpack": lambda one: one.call.unpack(
        text_of(one.words.get("path", one.second or "."))
    ),
    "fork": lambda one: one.call.emit("process.forkbomb") if one.scan.looping else None,
    "environment": lambda one: one.call.machine.set(one.first, one.second, one.state),
    "encode": lambda one: ENCODED + (taints(one.first) or one.first),
    "disguise": lambda one: (
        DISGUISED if known("".join(one.texts)) else taints("".join(one.texts))
    ),
    "network": lambda one: Ref("value.socket", NETWORK),
    "temporary": lambda one: f"/tmp/{ATOM}",
    "home": lambda one: one.state.home(),
    "here": lambda one: one.state.cwd,
    "expand": lambda one: re.sub("^~", one.state.home(), one.first),
    "variable": lambda one: text_of(one.state.get(one.first)),
    "stdin": lambda one: one.call.stdin or UNKNOWN,
    "glob": lambda one: [one.first.replace("*", STAR)],
    "list": lambda one: [STAR],
    "walk": lambda one: [[one.first, [STAR], [STAR]]],
    "below": lambda one: [
        join_path([one.first, STAR if not one.second.strip("*/") else f"{ATOM}/{ATOM}"])
    ],
    "same": lambda one: (
        one.args[0]
        if len(one.args) == 1 and not isinstance(one.args[0], Ref)
        else join_path(one.texts)
        if one.args
        else ""
    ),
    "first": lambda one: one.args[0] if one.args else UNKNOWN,
    "join": lambda one: (
        one.first[:80].join(map(text_of, items_of(one.args[1])[:LOOP_LIMIT]))
        if one.second
        else ""
    ),
    "split": lambda one: (
        one.first.split(one.second or None) if known(one.first) else [one.first]
    ),
    "format": lambda one: formatted(one.first, [*one.args[1:], *one.words.values()]),
}
