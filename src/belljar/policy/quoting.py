"""Small pieces of bash's lexical rules: escapes, numbers, patterns."""

import re

from belljar.patterns import lazy_pattern

from . import expressions
from .marks import ANY, BRACKET, STAR, known, unglob

_ESCAPE = lazy_pattern(
    r"\\(x[0-9A-Fa-f]{1,2}|x\{[0-9A-Fa-f]+\}|u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|[0-7]{1,3}|c.|.)",
    re.S,
)
_BRACKETS = rf"{BRACKET}[!^]?+]?+(?:{BRACKET}:\w+:]|(?!{BRACKET}:\w+:])[^]%s])*]"
PATH_BRACKETS = _BRACKETS % "/"  # with a slash in it, `[` is an ordinary character
_SIMPLE = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
}


def _escape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "xuU" and len(code) > 1:
        return char(int(code[1:].strip("{}"), 16))
    if code[0] in "01234567":
        return char(int(code, 8) & 0xFF)
    if code[0] == "c" and len(code) > 1:
        return chr(ord(code[1]) & 0x1F)
    return _SIMPLE.get(code, code if code in "\\'\"?" else "\\" + code)


def char(number: int) -> str:
    """The character with this code, or the replacement character."""
    return chr(number) if number < 0xD800 or 0xE000 <= number < 0x110000 else "\ufffd"


def to_int(text: str) -> int:
    """The value of decimal digits. Python reads at most 4300 of them; a longer number is only large."""
    return int(text) if len(text) < 4000 else 1 << 64


def ansi_c(text: str) -> str:
    """The text of $'…'. A NUL ends it, as in bash."""
    return _ESCAPE.sub(_escape, text).split("\0")[0]


def backslashes(text: str) -> str:
    """Escapes in `echo -e` and `printf`: an octal code may begin with 0 and have three more digits."""
    text = re.sub(r"\\0([0-7]{1,3})", lambda m: "\\" + m[1].zfill(3), text)
    return _ESCAPE.sub(_escape, text.split("\\c")[0] if "\\c" in text else text)


def pattern_regex(pattern: str) -> str | None:
    """A shell pattern, its active globs as marks, as a regular expression; None if it is not known or too costly."""
    if not known(pattern):
        return None
    pattern = re.sub(f"{STAR}+", STAR, pattern)
    if pattern.count(STAR) > _MAX_REPEATS or pattern.count(BRACKET) > MAX_BRACKETS:
        return None
    regex = "".join(
        piece_regex(piece) for piece in re.findall(f"{_BRACKETS % ''}|.", pattern, re.S)
    )
    try:
        re.compile(regex)
    except re.error:  # [z-a]
        return None
    return regex


def piece_regex(piece: str, star: str = ".*", any_char: str = ".") -> str:
    """One character of a pattern, or one bracket expression, as a regular expression."""
    if piece == STAR:
        return star
    if piece == ANY:
        return any_char
    if piece[0] == BRACKET and len(piece) > 2:
        inner = unglob(piece[1:-1])
        inner = "^" + inner[1:] if inner[0] in "!^" else inner
        inner = re.sub(r"\[:(\w+):\]", lambda m: CLASSES.get(m[1], ""), inner)
        return "[" + re.sub(r"[\\\[&~|]|-(?=-)", r"\\\g<0>", inner) + "]"
    return re.escape(unglob(piece))


CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "space": " \t\n\r\f\v",
    "upper": "A-Z",
    "lower": "a-z",
    "punct": "!-/:-@",
    "xdigit": "0-9a-fA-F",
}


_MAX_REPEATS, MAX_BRACKETS, _MAX_WORK = 3, 50, 30_000_000


def is_affordable(pattern: str, text: str, times: int = 1) -> bool:
    """Whether trying a pattern of the command on a text takes a limited number of steps, in spite of backtracking."""
    if len(pattern) > 400 or re.search(r"\)[*+{]|\\[1-9]", pattern):
        return False
    repeats = len(re.findall(r"(?<!\\)(?:[*+]|\{\d*,)", pattern))
    return (
        repeats <= _MAX_REPEATS
        and (len(text) + 1) ** max(1, repeats) * times <= _MAX_WORK
    )


def is_plain_editor(text: str) -> bool:
    """Whether the value of EDITOR, PAGER and the like is an ordinary editor or pager, not some other command."""
    first = text.split()[0].rsplit("/", 1)[-1].strip("'\"") if text.split() else ""
    if re.search(
        r"[;|&`<>\n]|\$\(|ProxyCommand|LocalCommand|KnownHostsCommand|:!", text
    ):
        return False
    bare = re.fullmatch(r"[\w-]+", text) is not None and not re.search(
        r"sh$|python|perl|ruby|node|php", text
    )
    return bare or expressions.is_a("quiet_program", first) is not None
