"""String literals in any language: concatenations are computed, variables replaced by their values.

[language.folding] in languages.toml lists the forms that are computed.
"""

import re
from collections.abc import Callable
from functools import cache, partial

from .marks import UNKNOWN
from .parser import TooComplex
from .paths import HOME
from .quoting import ansi_c
from .toml_files import tables

MAX_CODE = 16_000
STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)"""
_DECLARED = rf"(?:^|[;\s{{(])(?:my\s+|var\s+|let\s+|const\s+|local\s+)?([$@]?\w+)\s*:?=\s*({STRING})"
Change = Callable[[re.Match[str]], str]


def quoted(text: str) -> str:
    return (
        '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'
    )


def unquote(literal: str, holes: bool = True) -> str:
    body = literal[1:-1]
    if literal[0] == "'" and not re.search(r"\\[xu][0-9a-fA-F]{2}|\\[0-7]{3}", body):
        return re.sub(r"\\(['\\])", r"\1", body)
    text = ansi_c(body)
    if holes and literal[0] in '"`':
        return re.sub(r"\$\{[^}]*\}|#\{[^}]*\}|(?<![\\\w])[$@]\w+", UNKNOWN, text)
    return text


def constant(text: str) -> Change:
    return lambda _: text


def _held(found: re.Match[str]) -> str:
    """The text of the group that matched."""
    return next((group for group in found.groups() if group), "")


def _joined(by: str, found: re.Match[str]) -> str:
    return quoted(
        by.join(
            unquote(one, False) for one in re.findall(STRING, _held(found) or found[0])
        )
    )


_KINDS: dict[str, Change] = {
    "home": constant(quoted(HOME)),
    "here": constant('"."'),
    "inner": _held,
    "text": lambda found: quoted(_held(found)),
    "words": lambda found: ", ".join(map(quoted, _held(found).split())),
    "path": partial(_joined, "/"),
    "joined": partial(_joined, ""),
}


@cache
def _forms() -> tuple[tuple[re.Pattern[str], Change], ...]:
    kinds = tables()["language"]["folding"]["words"].items()
    forms = (
        (pattern.replace("{s}", STRING), kind)
        for kind, patterns in kinds
        for pattern in patterns
    )
    return tuple((re.compile(pattern), _KINDS[kind]) for pattern, kind in forms)


def fold(code: str) -> str:
    """Rewrite quotes, known places, concatenations and variables as plain literals; twice, as one enables another."""
    for _ in range(2):
        for pattern, change in _forms():
            code = check_length(pattern.sub(change, code))
        for name, literal in re.findall(_DECLARED, code)[:20]:
            used = rf"(?<![\w$'\"`]){re.escape(name)}(?!\w)(?!\s*:?=[^=>])"
            code = check_length(re.sub(used, constant(literal), code))
    return code


def check_length(code: str) -> str:
    if len(code) > MAX_CODE:
        raise TooComplex(
            "its inline code is too long to judge; put it in a file and run that"
        )
    return code


def balanced(args: str) -> str:
    """The arguments up to the parenthesis that closes them."""
    depth = 0
    for found in re.finditer(rf"{STRING}|[(\[{{]|[)\]}}]", args):
        depth += (found[0] in "([{") - (found[0] in ")]}")
        if depth < 0:
            return args[: found.start()]
    return args
