"""Code of languages other than bash and Python: searched for calls that run, delete, write, read or send.

There is no parser for each language. String literals are put together first (folding.py); then the expressions of
[language.code] in languages.toml find the calls, and the literals near them are commands or paths.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from belljar.patterns import lazy_pattern

from . import expressions
from .call import Call
from .folding import STRING, balanced, check_length, fold, unquote
from .marks import (
    DISGUISED,
    NETWORK,
    PRIVATE,
    STAR,
    UNKNOWN,
    drop_unset,
    has,
    show,
    unglob,
)
from .pyscan import scan_python
from .roles_net import metadata
from .shellstate import BASE_ENV, LIKELY_ENV
from .toml_files import tables

MAX_LITERALS = 200
_PLACE = lazy_pattern(r"[~/]|\.{1,2}/?$|(?:\./)?[*/]*\*$")
_LOADED = lazy_pattern(
    r"(?:require\w*|import|from|include\w*|load\w*|do(?:file)?)\s*\(?\s*['\"]([\w./-]+)['\"]"
)
_ENGINE = lazy_pattern(r"(docker|containerd|podman|crio)\.sock|/proc/1/(root|ns)")
_NO_COMMAND = frozenset(
    [
        "[",
        "test",
        ".",
        "file",
        "link",
        "split",
        "format",
        "type",
        "read",
        "install",
        "set",
    ]
)
_OPTIONS = frozenset(["utf8", "utf-8", "inherit", "pipe", "ignore", "r", "w"])
_OWN = ("root", "system", "home", "secret", "workspace_root", "device", "kernel")
_PLAIN = {
    "new",
    "String",
    "List",
    "of",
    "true",
    "false",
    "null",
    "nil",
    "undefined",
    "process",
    "env",
    "cwd",
}


def scan(call: Call, language: str, code: str, argv: list[str]) -> str:
    """Search code for effects. Returns what it prints."""
    words = call.machine.knowledge.languages.get(language, {})
    if "words" in words and "calls" not in words:
        return _by_words(call, words, code)
    if NETWORK in code:
        call.emit("exec.network", show(code[:200]))
    if (
        language.startswith("python")
        and (out := scan_python(call, code, argv)) is not None
    ):
        return out
    if language.endswith(" hooks") and not expressions.search(
        _call_pattern("does"), code
    ):
        return UNKNOWN  # a test may hold harmful text and do nothing with it
    with call.machine.under(f"{call.name} ({language})"):
        reader = CodeScan(call, language.removesuffix(" hooks"), code, argv)
        reader.run()
    return reader.printed()


def _by_words(call: Call, words: Mapping[str, Any], code: str) -> str:
    """A language that languages.toml describes: what its statements run, write, read and destroy."""
    with call.machine.under(f"{call.name} code"):
        for kind, patterns in words["words"].items():
            for match in (
                one
                for pattern in patterns
                for one in expressions.find_all(pattern, code)
            ):
                group = ["", *filter(None, match.groups())][-1]
                if kind == "run":
                    call.shell(group)
                elif kind in ("write", "read", "delete"):
                    getattr(call, kind)(group)
                elif kind.startswith("code:"):
                    call.scan(kind[5:], group, [])
                else:
                    call.emit(kind, match[0])
    return scan(call, words["also"], code, []) if "also" in words else UNKNOWN


@cache
def _call_pattern(name: str) -> str:
    text: str = tables()["language"]["code"]["calls"][name]
    return text.replace("{s}", STRING)


class CodeScan:
    def __init__(self, call: Call, language: str, code: str, argv: list[str]) -> None:
        self.call, self.language, self.argv = (
            call,
            language,
            [unglob(word) for word in argv if word != "--"],
        )
        self.stdin = call.stdin if call.stdin != code else ""
        call.machine.tick()
        if language != "perl":
            code = re.sub(
                r"(?ms)^[ \t]*(?://[^\n]*|/\*.{0,3000}?\*/)", "", check_length(code)
            )
        self.code = fold(self._with_modules(code))
        self.bare = re.sub(STRING, '""', self.code)
        self.literals = [
            self.unquoted(one) for one in re.findall(STRING, self.code)[:MAX_LITERALS]
        ] + self._inputs()

    def _has(self, word: str, text: str | None = None) -> bool:
        return (
            expressions.search(_call_pattern(word), self.code if text is None else text)
            is not None
        )

    def _calls(self, word: str) -> Iterator[Any]:
        return expressions.find_all(_call_pattern(word), self.code)

    def _with_modules(self, code: str) -> str:
        """The code, and the modules that it imports and this command wrote."""
        for path in _LOADED.findall(code) if self.call.state.files else []:
            self.call.load(path)
            names = [path + end for end in ("", ".js", ".mjs", ".rb", ".lua", ".pm")]
            code += "".join(
                f"\n{self.call.machine.read_file(name, self.call.state) or ''}"
                for name in names
            )
        return check_length(code)

    def unquoted(self, literal: str, holes: bool = True) -> str:
        """The text of a literal. In JavaScript and its like only a template contains variables."""
        return unquote(
            literal,
            holes
            and (self.language in ("perl", "ruby", "php", "tcl") or literal[0] == "`"),
        )

    def texts(self, code: str) -> list[str]:
        return [self.unquoted(one) for one in re.findall(STRING, code)]

    def _inputs(self) -> list[str]:
        """Arguments, lines of standard input and variables, if the code uses them."""
        looping = any(re.fullmatch(r"-[\w.]*[np]\w*", arg) for arg in self.call.args)
        lines = (
            re.split(r"[\n\0]", self.stdin)[:8] if looping or self._has("stdin") else []
        )
        own = {
            name: text
            for name, text in self.call.state.env.items()
            if name not in BASE_ENV | LIKELY_ENV
        }
        texts = [
            str(text)
            for name, text in own.items()
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", self.code)
        ]
        return (self.argv if self._has("arguments") else []) + [
            line for line in [*lines, *texts] if line
        ]

    def run(self) -> None:
        self._effects()
        self._evals()
        named = any(
            expressions.fullmatch(_call_pattern("run_name"), word)
            for word in self.literals
        )
        if named or self._has("runs", self.bare) or "|-" in self.code:
            self._commands()
        ticks = (
            re.findall(r"`((?:[^`\\]|\\.)*)`", self.code)
            if self.language != "node" or "$`" in self.code
            else []
        )
        quotes = [next(filter(None, one.groups()), "") for one in self._calls("ticks")]
        for body in [*ticks, *quotes]:
            self.call.shell(
                self.unquoted(f'"{body}"').replace("$_", self.stdin.strip())
            )
        self._paths()
        self._files()

    def _effects(self) -> None:
        """Effects whose expressions are all found."""
        for kind, signs in tables()["language"]["code"]["words"].items():
            if all(
                expressions.search(
                    sign, self.code if "'" in sign or "/" in sign else self.bare
                )
                for sign in signs
            ):
                name, *flags = kind.split()
                self.call.emit(name, "", *flags)
        for match in self._calls("sets_variable"):
            self.call.machine.set(
                match[1], self.unquoted(match[2]), self.call.state.fork()
            )

    def _evals(self) -> None:
        for found in self._calls("evals"):
            rest = self.code[found.end() :]
            texts = re.findall(STRING, balanced(rest.lstrip(" (")))[:20]
            if re.match(rf"[\s(]*(?:[\w.]+\s*[(=]\s*){{0,3}}{STRING}", rest):
                for text in (one for one in texts if len(one) < len(self.code)):
                    CodeScan(
                        self.call, self.language, self.unquoted(text, False), []
                    ).run()

    def _commands(self) -> None:
        """The code can run programs: run each literal, or list of literals, that is a command."""
        printed = {self.unquoted(match[1]) for match in self._calls("prints")}
        any_text = self.language in ("awk", "tcl", "lisp", "groovy") or self._has(
            "feeds_shell"
        )
        named = (
            None
            if any_text or re.search(r"\]\s*\(", self.bare)
            else self._literals_in("runs")
        )
        texts = self.literals if named is None else named + self._inputs()
        piped = any(re.fullmatch(r"(?:/\S*/)?(?:ba|da|z|k)?sh", text) for text in texts)
        out = "".join(
            self._command(texts, at)
            for at, text in enumerate(texts)
            if piped or text not in printed
        )
        if NETWORK in out and self._has("feeds_shell"):
            self.call.emit("exec.network", self.code)
        if self.argv and self.call.is_program(
            drop_unset(self.argv[0]).rsplit("/", 1)[-1]
        ):
            self.call.run(self.argv)

    def _command(self, texts: list[str], at: int) -> str:
        text = re.sub(r"%s$", UNKNOWN, texts[at])
        words = text.split() or [""]
        name = re.sub(
            r"^(?:(?:/usr(?:/local)?)?/s?bin/|\.{0,2}/\S*/|\./)(?=[^/]+$)", "", words[0]
        ).lstrip("\\")
        program = self.call.is_program(name)
        if not program and UNKNOWN not in name and not re.search(r"[|;&$=]", text):
            return ""
        if len(words) > 1:
            out = self.call.shell(text) if program else self.call.shell_if_bash(text)
            paths = (
                [word for word in texts if re.match(r"[~/]\S*$", word)][:4]
                if text[-1] in UNKNOWN + " "
                else []
            )
            for path in paths:
                self.call.shell(
                    text.rstrip(UNKNOWN) + path
                )  # `"rm -rf " + d`: d may be any path in the code
            return out
        if not program or name in _NO_COMMAND:
            return ""
        rest = [word for word in texts[at + 1 :] if word not in _OPTIONS]
        return self.call.run([name, *rest] if name not in rest[:1] else rest)

    def _literals_in(self, word: str) -> list[str] | None:
        """The literals in all calls of a kind; None if a call has other arguments, so that it may use any literal."""
        masked = re.sub(
            STRING, lambda m: m[0][0] + "\0" * (len(m[0]) - 2) + m[0][0], self.code
        )
        masked = re.sub(_call_pattern("imports"), lambda m: " " * len(m[0]), masked)
        found: list[str] = []
        for match in expressions.find_all(_call_pattern(word), masked, 100):
            rest = self.code[match.end() - (match[0][-1] == "(") :].lstrip()
            segment = (
                balanced(rest[1:])
                if rest[:1] == "("
                else re.split(r"[;\n]", rest, maxsplit=1)[0]
            )
            texts = self.texts(segment if word == "runs" else segment.split("{")[0])
            loose = set(
                re.findall(
                    r"[$@]?[A-Za-z_]\w*(?!\w*['\"]?\s*:)", re.sub(STRING, "", segment)
                )
            )
            temporary = word == "deletes" and not texts and self._has("temporary")
            if temporary and re.match(r"\s*&?[$]?\w+\s*(,|$)", segment):
                continue
            if (
                not texts
                or any(text[:1] in ("", UNKNOWN) for text in texts)
                or (word == "runs" and loose - _PLAIN)
            ):
                return None
            found += [
                text + (STAR if re.search(rf"{STRING}\s*[+.]", segment) else "")
                for text in texts
            ]
        return found or None

    def _paths(self) -> None:
        """Delete, change or read the paths among the literals, if the code does such things."""
        named = any(
            expressions.fullmatch(_call_pattern("deletes"), word)
            for word in self.literals
        )
        deletes = named or self._has("deletes", self.bare)
        changes = self._has("changes", self.bare)
        lists = deletes and self._has("lists", self.bare)
        paths = self._literals_in("deletes") if deletes else None
        for path in paths or []:
            self.call.delete(
                path.replace("*", STAR).replace("~", "/home/sandbox", 1), "recursive"
            )
        for text in self._path_literals():
            metadata(self.call, text)
            if _ENGINE.search(text):
                self.call.emit("kernel.engine", text)
            path = text.lstrip("<> ").replace("*", STAR)
            if not _PLACE.match(path) or re.search(r"\n|://", path):
                continue
            if lists and not path.endswith(STAR):
                path = f"{path.rstrip('/')}/{'x' if self._has('narrows', self.bare) else STAR}"
            kind = self.call.locate(path)[1]
            if deletes and paths is None:
                self.call.delete(path.replace("~", "/home/sandbox", 1), "recursive")
            if changes and kind in _OWN:
                self.call.change(path, "recursive", "open")
            if kind in ("secret", "device") and "(" in self.bare:
                self.call.read(path)

    def _path_literals(self) -> list[str]:
        """Literals that may be paths: not separators, comparisons, routes or keys."""
        found = list(re.finditer(STRING, self.code))[:MAX_LITERALS]
        before = (
            (one, self.code[max(0, one.start() - 40) : one.start()]) for one in found
        )
        kept = [
            one
            for one, text in before
            if not expressions.search(_call_pattern("no_path_before"), text)
        ]
        kept = [
            one
            for one in kept
            if not re.match(
                r"\s*(?:=>|[=!]==?|:(?!:))", self.code[one.end() : one.end() + 20]
            )
        ]
        return (
            [self.unquoted(one[0]) for one in kept]
            + re.findall(r"<([~/][^<>\s]*)>", self.code)
            + self._inputs()
        )

    def _files(self) -> None:
        for match in self._calls("writes"):
            path = next((group for group in match.groups() if group), "")
            content = re.match(rf"\s*,\s*({STRING})", self.code[match.end() :])
            if path:
                self.call.write(
                    self.unquoted(path),
                    self.unquoted(content[1]) if content else UNKNOWN,
                )
        for match in self._calls("opens_pipe"):
            self.call.shell(self.unquoted(match[1]).strip().strip("|-"))
        for match in self._calls("reads"):
            path = self.unquoted(match[1])
            text = self.call.read(path) if path.startswith(("/", "~", ".")) else ""
            if NETWORK in text and self._has("evals"):
                self.call.emit("exec.network", path)
            if has(text, PRIVATE) and self._has("fetches"):
                self.call.emit("net.send", path, "sensitive")

    def printed(self) -> str:
        """What it prints: its literals, or text that cannot be followed."""
        return (
            "".join(self.unquoted(match[1]) + "\n" for match in self._calls("prints"))
            or DISGUISED
        )
