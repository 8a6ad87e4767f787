"""Word expansion as in bash: braces, tilde, parameters, substitutions, arithmetic, field splitting, globs.

The result is text with marks (marks.py). An unquoted glob character becomes a mark, so `"*"` and `*` differ.
"""

import re
from collections.abc import Callable

from . import expressions
from .braces import brace_expand
from .marks import ANY, ATOM, BRACKET, DISGUISED, FILE, SENSITIVE, STAR, UNKNOWN, UNSET

from .marks import clip, drop_unset, has, has_glob, known, taints, unglob  # isort: skip
from .parser import Node, TooComplex
from .quoting import ansi_c, is_affordable, pattern_regex, to_int
from .shellstate import LIKELY_ENV, ShellState, Value

MAX_FIELDS = 20_000  # an array that is put into itself doubles each time
Substitute = Callable[[Node], str]
_GLOB_MARK = {"*": STAR, "?": ANY, "[": BRACKET}


class Fields:
    """The fields of a word while it is expanded."""

    def __init__(self, ifs: str) -> None:
        self.done: list[str] = []
        self.current: str | None = None
        self.ifs = ifs

    def add(self, text: str) -> None:
        self.current = (self.current or "") + text

    def close(self) -> None:
        if self.current is not None:
            self.done.append(self.current)
        self.current = None

    def add_split(self, text: str) -> None:
        """Add an unquoted expansion: split at IFS, with active globs. An empty text makes no field."""
        pieces = re.split(f"[{re.escape(self.ifs)}]+", text) if self.ifs else [text]
        for index, piece in enumerate(pieces):
            if index:
                self.close()
            marks = {"*": STAR, "?": ANY} if "]" not in piece else _GLOB_MARK
            if piece:
                self.add("".join(marks.get(char, char) for char in piece))


class Expander:
    """Expands words in one shell state; `substitute` runs the statements of $(…) and `procsub` those of <(…)."""

    def __init__(
        self, state: ShellState, substitute: Substitute, procsub: Substitute
    ) -> None:
        self.state = state
        self._substitute = substitute
        self._procsub = procsub

    def words(self, nodes: list[Node]) -> list[str]:
        found: list[str] = []
        for node in nodes:
            found += self.fields(node)
            if len(found) > MAX_FIELDS:
                raise TooComplex("it has too many words to judge")
        return found

    def fields(self, word: Node) -> list[str]:
        return [
            field
            for parts in brace_expand(word.get("Parts") or [])
            for field in self._fields(parts, self._ifs())
        ]

    def _fields(self, parts: list[Node], ifs: str, joined: bool = False) -> list[str]:
        fields = Fields(ifs)
        for index, part in enumerate(parts):
            self._part(part, fields, index == 0, joined)
        fields.close()
        return fields.done

    def text(self, word: Node | None) -> str:
        """A word as one string: in an assignment, a redirection, a here-string."""
        if not word:
            return ""
        if "Parts" not in word:
            return evaluate(word, self)
        return unglob(" ".join(self._fields(word["Parts"] or [], "", joined=True)))

    def heredoc(self, redirect: Node) -> str:
        if not (body := redirect.get("Hdoc")):
            return ""
        quoted = any(
            part["Type"] != "Lit" or "\\" in part["Value"]
            for part in redirect["Word"]["Parts"]
        )
        literal = "".join(str(part.get("Value", "")) for part in body["Parts"])
        text = literal if quoted else self._quoted(body["Parts"], escapes="$`\\")
        return re.sub(r"(?m)^\t+", "", text) if redirect["Op"] == "<<-" else text

    def _ifs(self) -> str:
        ifs = self.state.env.get("IFS", " \t\n")
        return ifs if isinstance(ifs, str) and known(ifs) else " \t\n"

    def _part(self, part: Node, fields: Fields, first: bool, joined: bool) -> None:
        kind = part["Type"]
        if kind == "Lit":
            fields.add(self._literal(part.get("Value", ""), first))
        elif kind == "SglQuoted":
            fields.add(
                ansi_c(part.get("Value", ""))
                if part.get("Dollar")
                else part.get("Value", "")
            )
        elif kind == "DblQuoted":
            self._double_quoted(part.get("Parts") or [], fields)
        elif kind == "ParamExp":
            value = self.parameter(part)
            self._add_list(
                flat_list(value) if not joined else [flat(value)],
                fields,
                split=not joined,
            )
        elif kind == "CmdSubst":
            if joined:
                fields.add(self._command(part))
            else:
                fields.add_split(self._command(part))
        elif kind == "ArithmExp":
            fields.add(evaluate(part["X"], self))
        else:
            fields.add(
                self._procsub(part) if kind == "ProcSubst" else STAR
            )  # or an extended glob

    def _literal(self, raw: str, first: bool) -> str:
        raw = self._tilde(raw) if first and raw.startswith("~") else raw
        if not re.search(r"[\\*?\[]", raw):
            return raw
        if "[" in raw and "]" not in raw:
            raw = raw.replace("[", "\\[")
        pieces = re.findall(r"\\\n|\\.|.", raw, re.S)
        escaped = (
            ""
            if p == "\\\n"
            else p[1]
            if p[0] == "\\" and len(p) > 1
            else _GLOB_MARK.get(p, p)
            for p in pieces
        )
        return "".join(escaped)

    def _tilde(self, raw: str) -> str:
        user, slash, rest = raw[1:].partition("/")
        if user in ("", "+", "-"):
            return (self.state.cwd if user else self.state.home()) + slash + rest
        if not user.isalnum():
            return raw
        return ("/root" if user == "root" else f"/home/{user}") + slash + rest

    def _double_quoted(self, parts: list[Node], fields: Fields) -> None:
        fields.add("")
        for part in parts:
            value = self.parameter(part) if part["Type"] == "ParamExp" else None
            if isinstance(value, list) and _is_at(part):
                self._add_list(value, fields)
                if not value and len(parts) == 1 and fields.current == "":
                    fields.current = None
            elif value is not None:
                fields.add(
                    value
                    if isinstance(value, str)
                    else self._ifs()[:1].join(flat_list(value))
                )
            else:
                fields.add(self._quoted([part], escapes='$`"\\'))

    def _quoted(self, parts: list[Node], escapes: str) -> str:
        found = []
        for part in parts:
            if part["Type"] == "Lit":
                found.append(
                    re.sub(
                        rf"\\([{re.escape(escapes)}])|\\\n",
                        lambda m: m[1] or "",
                        part.get("Value", ""),
                    )
                )
            elif part["Type"] == "ParamExp":
                found.append(flat(self.parameter(part)))
            elif part["Type"] == "CmdSubst":
                found.append(self._command(part))
            elif part["Type"] == "ArithmExp":
                found.append(evaluate(part["X"], self))
        return "".join(found)

    def _command(self, part: Node) -> str:
        return clip(self._substitute(part)).rstrip("\n").replace("\0", "")

    @staticmethod
    def _add_list(values: list[str], fields: Fields, split: bool = False) -> None:
        for index, value in enumerate(values):
            if index:
                fields.close()
            if split:
                fields.add_split(value)
            else:
                fields.add(value)

    def parameter(self, node: Node) -> Value:
        name = (node.get("Param") or {}).get("Value", "")
        if node.get("Names"):
            return [
                key for key in self.state.env if key.startswith(name)
            ] or name + ATOM
        at = node.get("Index")
        index = (
            None
            if at is None
            else self.text(at)
            if at.get("Type") == "Word"
            else evaluate(at, self)
        )
        if node.get("Length"):
            value = self.lookup(name, index)
            value = drop_unset(value) if isinstance(value, str) else value
            return str(len(value)) if known(drop_unset(flat(value))) else ATOM
        if node.get("Excl"):
            return self._indirect(node, name, index)
        return self._modified(node, name, self.lookup(name, index))

    def lookup(self, name: str, index: str | None = None) -> Value:
        args = self.state.args
        if name in ("@", "*"):
            return list(args)
        if name == "#":
            return str(len(args))
        if name.isdecimal():
            number = to_int(name)
            if not number:
                return self.state.name
            return args[number - 1] if number <= len(args) else UNSET
        value = self.state.get(name)
        if isinstance(value, list) and index and index.isidentifier():
            index = flat(self.state.get(index))
        return _indexed(value, index)

    def _indirect(self, node: Node, name: str, index: str | None) -> Value:
        value = self.state.get(name) if name != "#" else self.lookup(name)
        if index in ("@", "*"):
            return [
                str(key)
                for key in (
                    value if isinstance(value, dict) else range(len(flat_list(value)))
                )
            ]
        target = flat(value)
        if not known(target) or not target:
            return (
                UNKNOWN + SENSITIVE if target != UNSET else UNSET
            )  # any variable of the environment
        base, _, rest = target.partition("[")
        return self._modified(node, base, self.lookup(base, rest.rstrip("]") or None))

    def _modified(self, node: Node, name: str, value: Value) -> Value:
        if node.get("Slice"):
            return self._sliced(node["Slice"], value, name)
        if node.get("Repl"):
            self._pattern(node["Repl"].get("Orig"))
            new = self.text(node["Repl"].get("With"))
            return self._mapped(value, lambda text: _changed(text, new))
        return self._operated(node["Exp"], name, value) if node.get("Exp") else value

    def _operated(self, exp: Node, name: str, value: Value) -> Value:
        op = exp["Op"]
        word = exp.get("Word")
        bare = op.lstrip(":")
        empty = flat(value) in ("", UNSET) if op.startswith(":") else value == UNSET
        empty = empty or (name in LIKELY_ENV and value == LIKELY_ENV[name])
        if bare in ("-", "="):
            if value == UNKNOWN or has(flat(value), SENSITIVE):
                return value
            if empty and bare == "=":
                self.state.env[name] = self.text(word)
            return self.text(word) if empty else value
        if bare == "+":
            if not empty or (
                UNSET in flat(value) and not known(drop_unset(flat(value)))
            ):
                return self.text(word)
            return ""
        if bare == "?":
            self.text(word)
            return UNKNOWN if empty else value  # if it is empty the shell stops here
        if op in ("#", "##", "%", "%%"):
            return self._mapped(
                value, lambda text: _trimmed(text, self._pattern(word), op)
            )
        self._pattern(word)
        return self._mapped(value, _changed)

    def _mapped(self, value: Value, change: Callable[[str], str]) -> Value:
        if isinstance(value, str):
            return value if value == UNSET else change(value)
        return [change(item) for item in flat_list(value)]

    def _pattern(self, word: Node | None) -> str:
        """A pattern: active globs are marks, quoted characters are themselves."""
        return "".join(self._fields(word.get("Parts") or [], "")) if word else ""

    def _sliced(self, node: Node, value: Value, name: str) -> Value:
        start = self._number(node.get("Offset"))
        length = self._number(node.get("Length"))
        if isinstance(value, str):
            return _changed(value)
        if start is None or (node.get("Length") and length is None):
            return taints(flat(value)) or UNKNOWN
        items = [self.state.name, *value] if name in ("@", "*") else flat_list(value)
        return items[start:][:length]

    def _number(self, node: Node | None) -> int | None:
        text = evaluate(node, self).strip() if node else ""
        return int(text) if re.fullmatch(r"[-+]?\d+", text) else None


def _is_at(part: Node) -> bool:
    index = ((part.get("Index") or {}).get("Parts") or [{}])[0].get("Value")
    return bool(
        (part.get("Param") or {}).get("Value") == "@"
        or index == "@"
        or part.get("Names") == "@"
    )


def _indexed(value: Value, index: str | None) -> Value:
    if isinstance(value, str):
        if index in (None, "0"):
            return value
        return [value] if index in ("@", "*") else UNSET
    if index in ("@", "*"):
        return flat_list(value)
    if isinstance(value, dict):
        return value.get(index or "0", UNSET)
    if index is None or re.fullmatch(r"-?\d+", index):
        number = to_int(index or "0")
        return value[number] if -len(value) <= number < len(value) else UNSET
    return UNKNOWN if value else UNSET


def flat_list(value: Value) -> list[str]:
    if isinstance(value, str):
        return [value]
    return list(value.values()) if isinstance(value, dict) else value


def flat(value: Value) -> str:
    return value if isinstance(value, str) else " ".join(flat_list(value))


def _changed(text: str, new: str = "") -> str:
    """Text after a change that is not computed: known text becomes DISGUISED, marks stay."""
    return text if has_glob(text) or not text else taints(text + new) or DISGUISED


def _trimmed(text: str, pattern: str, op: str) -> str:
    regex = pattern_regex(pattern)
    if regex is None or not is_affordable(regex, text, len(text)):
        return taints(text + pattern) or DISGUISED
    if not known(drop_unset(text)):
        return text if FILE not in text else taints(text)
    text = drop_unset(text)
    if op.startswith("%"):
        cuts = [
            text[:i]
            for i in range(len(text), -1, -1)
            if expressions.fullmatch(regex, text[i:])
        ]
    else:
        cuts = [
            text[i:]
            for i in range(len(text) + 1)
            if expressions.fullmatch(regex, text[:i])
        ]
    if cuts:
        return cuts[-1] if len(op) == 2 else cuts[0]
    return text


def evaluate(node: Node | None, expander: Expander) -> str:
    """An arithmetic expression: a plain number, else ATOM. Its words may run commands; what it assigns becomes ATOM."""
    if not node:
        return "0"
    if node.get("Type") == "Word" or "Parts" in node:
        text = drop_unset(expander.text({"Parts": node.get("Parts") or []})).strip()
        return text if re.fullmatch(r"[-+]?[0-9]{1,18}", text) else ATOM
    sides = [evaluate(node[side], expander) for side in ("X", "Y") if node.get(side)]
    op = node.get("Op", "")
    name = "".join(
        str(part.get("Value", "")) for part in node.get("X", {}).get("Parts") or []
    )
    if op in ("++", "--") or (op.endswith("=") and op not in ("==", "!=", "<=", ">=")):
        expander.state.env.update({name: ATOM} if name.isidentifier() else {})
    return (
        "-" + sides[0]
        if op == "-" and len(sides) == 1 and sides[0].isdecimal()
        else ATOM
    )
