"""String literals of any language: concatenation and decoding worked out, variables replaced by what they hold.

What is worked out is data: [language.folding] in languages.toml lists the forms of each kind.
"""

import binascii
import re
from collections.abc import Callable
from functools import cache, partial

from .decoders import as_text, loose_base64
from .knowledge import tables
from .marks import UNKNOWN
from .parser import TooComplex
from .paths import HOME
from .quoting import ansi_c, whole

MAX_CODE = 16_000
STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)"""
_DECLARED = rf"(?:^|[;\s{{(])(?:my\s+|var\s+|let\s+|const\s+|local\s+)?([$@]?\w+)\s*:?=\s*({STRING})"


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def unquote(literal: str, holes: bool = True) -> str:
    body = literal[1:-1]
    if literal[0] == "'" and not re.search(r"\\[xu][0-9a-fA-F]{2}|\\[0-7]{3}", body):
        return re.sub(r"\\(['\\])", r"\1", body)
    text = ansi_c(body)
    return re.sub(r"\$\{[^}]*\}|#\{[^}]*\}|(?<![\\\w])[$@]\w+", UNKNOWN, text) if holes and literal[0] in '"`' else text


def constant(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text


def _literals(found: re.Match[str]) -> list[str]:
    return [unquote(one, False) for one in re.findall(STRING, _held(found) or found[0])]


def _held(found: re.Match[str]) -> str:
    """What the group that matched holds."""
    return next((group for group in found.groups() if group), "")


def _decoded(decode: Callable[[bytes], bytes], found: re.Match[str]) -> str:
    try:
        return quoted(as_text(decode(unquote(_held(found), False).encode())))
    except (ValueError, binascii.Error):
        return found[0]


def _codes(found: re.Match[str]) -> str:
    numbers = re.findall(r"0x[0-9a-fA-F]+|\d+", _held(found))
    codes = [int(number, 16) if number.startswith("0x") else whole(number) for number in numbers]
    return quoted("".join(chr(code) for code in codes if code < 0xD800)) if numbers else found[0]


def _list(found: re.Match[str]) -> str:
    """A list of literals joined by one of them: the group `by`."""
    texts = [unquote(one, False) for one in re.findall(STRING, found["list"])]
    return quoted((unquote(found["by"]) if found["by"] else ",").join(texts))


_KINDS: dict[str, Callable[[re.Match[str]], str]] = {
    "home": constant(quoted(HOME)), "here": constant('"."'), "text": lambda found: quoted(_held(found)),
    "words": lambda found: ", ".join(map(quoted, _held(found).split())), "inner": _held,
    "path": lambda found: quoted("/".join(_literals(found))),
    "side by side": lambda found: quoted("".join(_literals(found))),
    "base64": partial(_decoded, loose_base64), "hex": partial(_decoded, binascii.unhexlify), "codes": _codes,
    "reversed": partial(_decoded, lambda raw: raw[::-1]), "list": _list,
}  # fmt: skip


@cache
def _forms(outside: bool) -> tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...]:
    """The expressions and what they become: those for code outside of literals, or the others."""
    kinds = tables()["language"]["folding"]["words"].items()
    return tuple(
        (re.compile(pattern.replace("{s}", STRING), re.S if outside else 0), _KINDS[kind])
        for kind, patterns in kinds
        for pattern in patterns
        if (kind in ("text", "words")) == outside
    )


def fold(code: str) -> str:
    """Other quotes as quotes, well-known places as literals, concatenation and decoding until nothing changes."""
    pieces = re.split(f"({STRING})", code)
    for index in range(0, len(pieces), 2):
        for pattern, change in _forms(True):
            pieces[index] = pattern.sub(change, pieces[index])
    code = "".join(pieces)
    for _ in range(4):
        before = code
        for pattern, change in _forms(False):
            code = bounded(pattern.sub(change, code))
        if code == before:
            break
    return code


def bounded(code: str) -> str:
    if len(code) > MAX_CODE:
        raise TooComplex("its inline code is too long to judge; put it in a file and run that")
    return code


def with_names(code: str) -> str:
    """Literals in the place of the variables that hold them."""
    for name, literal in re.findall(_DECLARED, code)[:20]:
        code = re.sub(rf"(?<![\w$'\"`]){re.escape(name)}(?!\w)(?!\s*:?=[^=>])", constant(literal), code)
        inserts = [re.escape(name)] if name.startswith("$") else []
        for insert in [*inserts, rf"[#$]\{{\s*(?:{re.escape(name)}|{re.escape(literal)})\s*\}}"]:
            inside = partial(_after, literal[1:-1].replace('"', '\\"'))
            code = bounded(re.sub(rf'(["`](?:[^"`\\]|\\.)*?){insert}(?!\w)', inside, code))
    return fold(bounded(code))


def _after(text: str, found: re.Match[str]) -> str:
    return found[1] + text


def balanced(args: str) -> str:
    """The arguments up to the parenthesis that closes them."""
    depth, quote, escaped = 0, "", False
    for at, char in enumerate(args):
        if escaped or char == "\\":
            escaped = not escaped
        elif quote:
            quote = "" if char == quote else quote
        elif char in "'\"`":
            quote = char
        else:
            depth += (char in "([{") - (char in ")]}")
            if depth < 0:
                return args[:at]
    return args
