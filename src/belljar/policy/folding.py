"""String literals of any language: concatenation and decoding worked out, variables replaced by what they hold."""

import binascii
import re
from collections.abc import Callable
from functools import partial

from .decoders import as_text, loose_base64
from .marks import UNKNOWN
from .parser import TooComplex
from .quoting import ansi_c, whole

MAX_CODE = 16_000
STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)"""
_S = f"({STRING})"
_PERL_QUOTES = re.compile(
    r"(?<![\w$%@])(?:qq?|%[qQ])(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\]|/([^/]*)/|\|([^|]*)\|)"
)
_PERL_WORDS = re.compile(r"(?<![\w$%@])(?:qw|%w)\s*(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\]|/([^/]*)/)")
_HOME = re.compile(
    r"""Deno\.env\.get\(['"]HOME['"]\)|process\.env(?:\.HOME|\[['"]HOME['"]\])|(?:require\(['"](?:node:)?os['"]\)\.|os\.)?"""
    r"""(?:homedir\(\)|userInfo\(\)\.homedir)|Dir\.home(?:\(\))?|\$?_?ENV(?:\.fetch)?[\[{(]['"]?HOME['"]?[\]})]"""
    r"""|(?:os\.)?getenv[ (]['"]HOME['"]\)?|System\.getProperty\(['"]user\.home['"]\)|\$_SERVER\[['"]HOME['"]\]"""
    r"""|os\.UserHomeDir\(\)|env::var\(['"]HOME['"]\)(?:\.unwrap\(\))?|System\.user_home!?\(?\)?|expand\(['"]~['"]\)"""
    r"""|\(expand-file-name ['"]~['"]\)|\(?getpwuid\([^)]*\)+\[7\]|posix_getpwuid\([^)]*\)+\[['"]dir['"]\]"""
)
_CWD = re.compile(r"process\.cwd\(\)|Dir\.(?:pwd|getwd)|\bgetcwd(?:\(\))?|__dirname|\bcwd\(\)")


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


def _decoder(decode: Callable[[bytes], bytes]) -> Callable[[re.Match[str]], str]:
    def change(found: re.Match[str]) -> str:
        literal = next(group for group in found.groups() if group)
        try:
            return quoted(as_text(decode(unquote(literal, False).encode())))
        except (ValueError, binascii.Error):
            return found[0]

    return change


def _codes(found: re.Match[str]) -> str:
    numbers = re.findall(r"0x[0-9a-fA-F]+|\d+", "".join(group or "" for group in found.groups()))
    codes = [int(number, 16) if number.startswith("0x") else whole(number) for number in numbers]
    return quoted("".join(chr(code) for code in codes if code < 0xD800)) if numbers else found[0]


def _joined(found: re.Match[str]) -> str:
    return quoted("".join(unquote(one, False) for one in re.findall(STRING, found[0])))


_BASE64 = r"(?:atob|base64_decode|decode_base64|Base64\.(?:\w+_)?decode(?:64)?|b64decode)"
_FOLDS: list[tuple[str, Callable[[re.Match[str]], str]]] = [
    (r'[$#]\{\s*"([^"]*)"\s*\}', lambda m: m[1]),
    (
        rf"(?:File|require\(['\"]path['\"]\)|\b\w+)\.(?:[jJ]oin|resolve)\(\s*({STRING}(?:\s*,\s*{STRING})+)\s*\)",
        lambda m: quoted("/".join(unquote(one, False) for one in re.findall(STRING, m[1]))),
    ),
    (rf"{STRING}(?:\s*(?:\+|\.\.|\.(?!\w)|<<)\s*{STRING})+", _joined),
    (rf"{_BASE64}\s*\(?\s*{_S}\s*\)?", _decoder(loose_base64)),
    (rf"Buffer\.from\(\s*{_S}\s*,\s*['\"]base64['\"]\s*\)(?:\.toString\([^)]*\))?", _decoder(loose_base64)),
    (rf"{_S}\.unpack1?\(?\s*['\"]m0?['\"]\s*\)?(?:\[0\]|\.first)?", _decoder(loose_base64)),
    (
        rf"(?:Buffer\.from\(\s*{_S}\s*,\s*['\"]hex['\"]\s*\)(?:\.toString\([^)]*\))?|hex2bin\(\s*{_S}\s*\)|"
        rf"pack\s*\(?\s*['\"]H\*['\"]\s*,\s*{_S}\s*\)?|\[\s*{_S}\s*\]\.pack\(?\s*['\"]H\*['\"]\s*\)?)",
        _decoder(binascii.unhexlify),
    ),
    (r"\b(?:String\.fromC\w+|(?:string|utf8)\.char)\(\s*(?:\.{3}\s*\[)?([\d,\sxa-fA-F]+)\]?\)", _codes),
    (r"\[([\d,\sx]+)\]\.(?:pack\(?\s*['\"][cCU]\*['\"]\s*\)?|map\(?[^)]*chr\)?\.join(?:\([^)]*\))?)", _codes),
    (r"pack\s*\(?\s*['\"][cCU]\*['\"]\s*,\s*([\d,\s]+)\)?|\bchr\s*\(?\s*(\d+)\s*\)?|\b(\d+)\.chr\b", _codes),
    (
        rf"(?:strrev\(\s*{_S}\s*\)|(?:scalar\s+)?reverse\s*\(?\s*{_S}\s*\)?|{_S}\.reverse\b(?:\(\))?|"
        rf"{_S}\.split\(['\"]{{2}}\)\.reverse\(\)\.join\(['\"]{{2}}\))",
        _decoder(lambda raw: raw[::-1]),
    ),
    (
        rf"\[\s*({STRING}(?:\s*,\s*{STRING})*)\s*\]\.join\(\s*{_S}?\s*\)",
        lambda m: quoted((unquote(m[2]) if m[2] else ",").join(map(unquote, re.findall(STRING, m[1])))),
    ),
    (
        rf"\bjoin\s*\(?\s*{_S}\s*,\s*({STRING}(?:\s*,\s*{STRING})*)\s*\)?",
        lambda m: quoted(unquote(m[1]).join(unquote(one, False) for one in re.findall(STRING, m[2]))),
    ),
    (rf"\(concat\s+{STRING}(?:\s+{STRING})*\s*\)|\bpaste0\(\s*{STRING}(?:\s*,\s*{STRING})*\s*\)", _joined),
]  # fmt: skip


def fold(code: str) -> str:
    """Well-known places as literals, other quotes as quotes, then concatenation and decoding until nothing changes."""
    code = _CWD.sub('"."', _HOME.sub('"/home/sandbox"', code))
    pieces = re.split(f"({STRING})", code)
    code = "".join(piece if index % 2 else _requoted(piece) for index, piece in enumerate(pieces))
    for _ in range(4):
        before = code
        for pattern, change in _FOLDS:
            code = bounded(re.sub(pattern, change, code))
        if code == before:
            break
    return code


def _requoted(code: str) -> str:
    code = _PERL_QUOTES.sub(lambda m: quoted(next((g for g in m.groups() if g is not None), "")), code)
    code = re.sub(r"\[\[((?:(?!\[\[).)*?)\]\]", lambda m: quoted(m[1]), code, flags=re.S)
    return _PERL_WORDS.sub(lambda m: ", ".join(map(quoted, "".join(g or "" for g in m.groups()).split())), code)


def bounded(code: str) -> str:
    if len(code) > MAX_CODE:
        raise TooComplex("its inline code is too long to judge; put it in a file and run that")
    return code


def with_names(code: str) -> str:
    """Literals in the place of the variables that hold them."""
    declared = rf"(?:^|[;\s{{(])(?:my\s+|var\s+|let\s+|const\s+|local\s+)?([$@]?\w+)\s*:?=\s*({STRING})"
    for name, literal in re.findall(declared, code)[:20]:
        code = re.sub(rf"(?<![\w$'\"`]){re.escape(name)}(?!\w)(?!\s*:?=[^=>])", constant(literal), code)
        inside = literal[1:-1].replace('"', '\\"')
        inserts = [re.escape(name)] if name.startswith("$") else []
        for insert in [*inserts, rf"[#$]\{{\s*(?:{re.escape(name)}|{re.escape(literal)})\s*\}}"]:
            code = bounded(re.sub(rf'(["`](?:[^"`\\]|\\.)*?){insert}(?!\w)', partial(_after, inside), code))
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
        elif char in "([{":
            depth += 1
        elif char in ")]}":
            depth -= 1
            if depth < 0:
                return args[:at]
    return args
