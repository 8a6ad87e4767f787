"""String literals of any language, folded: concatenation, decoding, quoting, well-known places."""

import base64
import binascii
import re
from collections.abc import Callable
from urllib.parse import unquote_to_bytes

from .marks import UNKNOWN
from .quoting import ansi_c, whole

_STRING = r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`)"""


def _places(code: str) -> str:
    """The home and the working directory as literals; perl's and ruby's other quotes as quotes."""
    code = re.sub(r'"(?:[^"\\]|\\.)*"', lambda m: re.sub(r"\$ENV\{['\"]?HOME['\"]?\}", "/home/sandbox", m[0]), code)
    code = _CWD.sub('"."', _HOME.sub('"/home/sandbox"', code))
    code = "".join(
        piece if index % 2 else _requoted(piece) for index, piece in enumerate(re.split(f"({_STRING})", code))
    )
    code = re.sub(rf"File\.expand_path\(?\s*({_STRING})\s*\)?", lambda m: m[1].replace("~", "/home/sandbox", 1), code)
    joined = (
        rf"(?:File|require\(['\"]path['\"]\)|\b\w+)\.(?:[jJ]oin|resolve)\(\s*({_STRING}(?:\s*,"
        rf"\s*{_STRING})*)\s*\)"
    )
    return re.sub(joined, lambda m: _quote("/".join(unquote(s, False) for s in re.findall(_STRING, m[1]))), code)


def _requoted(code: str) -> str:
    code = _QUOTES.sub(lambda m: _quote(next((g for g in m.groups() if g is not None), "")), code)
    code = re.sub(r"\[\[((?:(?!\[\[).)*?)\]\]", lambda m: _quote(m[1]), code, flags=re.S)
    return _WORDS.sub(
        lambda m: ", ".join(_quote(word) for word in next((g for g in m.groups() if g is not None), "").split()), code
    )


def fold(code: str) -> str:
    """Join concatenated literals and decode encoded ones, until nothing changes."""
    for _ in range(6):
        before = code
        for pattern, change in _FOLDS:
            code = pattern.sub(change, code)
        if code == before:
            break
    return code


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def unquote(literal: str, expand: bool = True) -> str:
    body = literal[1:-1]
    if literal[0] == "'" and not re.search(r"\\[xu][0-9a-fA-F]{2}|\\[0-7]{3}", body):
        return re.sub(r"\\(['\\])", r"\1", body)
    text = ansi_c(body)
    return (
        re.sub(r"\$\{[^}]*\}|#\{[^}]*\}|(?<![\\\w])[$@]\w+", UNKNOWN, text) if expand and literal[0] in '"`' else text
    )


def _decoder(decode: Callable[[bytes], bytes]) -> Callable[[re.Match[str]], str]:
    def change(found: re.Match[str]) -> str:
        literal = next(group for group in found.groups() if group)
        try:
            return _quote(decode(unquote(literal, False).encode()).decode("utf-8", "replace"))
        except (ValueError, binascii.Error):
            return found[0]

    return change


def _codes(found: re.Match[str]) -> str:
    numbers = re.findall(r"0x[0-9a-fA-F]+|\d+", "".join(group or "" for group in found.groups()))
    codes = [int(number, 16) if number.startswith("0x") else whole(number) for number in numbers]
    return _quote("".join(chr(code) for code in codes if code < 0xD800)) if numbers else found[0]


def _formatted(found: re.Match[str]) -> str:
    template, given = unquote(found[1], False), re.findall(rf"{_STRING}|\d+", found[2])
    if re.findall(r"%[^csd]|%$", template) or template.count("%") != len(given):
        return found[0]
    values = [int(one) if one.isdecimal() else unquote(one, False) for one in given]
    pieces = [
        chr(one) if kind == "c" and isinstance(one, int) and one < 0xD800 else str(one)
        for kind, one in zip(re.findall("%(.)", template), values, strict=True)
    ]
    return _quote(re.sub("%.", "%s", template) % tuple(pieces))


def _base64(raw: bytes) -> bytes:
    return base64.b64decode(raw + b"==")


_S = f"({_STRING})"


_FOLDS: list[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = [
    (re.compile(r'[$#]\{\s*"([^"]*)"\s*\}'), lambda m: m[1]),
    (re.compile(rf"(?:escapeshellarg|shellescape|Shellwords\.escape)\(\s*{_S}\s*\)"), lambda m: m[1]),
    (
        re.compile(r"(?<=['\"]data:)[\w/;=+-]*;base64,([\w+/=]+)"),
        lambda m: "," + _base64(m[1].encode()).decode("utf-8", "replace").replace("\\", "\\\\").replace('"', '\\"'),
    ),
    (
        re.compile(rf"{_STRING}(?:\s*(?:\+|\.\.|\.(?!\w)|<<)\s*{_S})*"),  # one alone too, so as not to begin within it
        lambda m: _quote("".join(unquote(s, False) for s in re.findall(_STRING, m[0]))) if m[1] else m[0],
    ),
    (
        re.compile(
            rf"(?:atob|base64_decode|decode_base64|MIME::Base64::decode(?:_base64)?|Base64\.(?:strict_|"
            rf"urlsafe_)?decode(?:64)?|b64decode)\s*\(?\s*{_S}\s*\)?"
        ),
        _decoder(_base64),
    ),
    (
        re.compile(rf"Buffer\.from\(\s*{_S}\s*,\s*['\"]base64(?:url)?['\"]\s*\)(?:\.toString\([^)]*\))?"),
        _decoder(_base64),
    ),
    (
        re.compile(
            rf"(?:Buffer\.from\(\s*{_S}\s*,\s*['\"]hex['\"]\s*\)(?:\.toString\([^)]*\))?|hex2bin\(\s*{_S}\s*\)|"
            rf"pack\s*\(?\s*['\"]H\*['\"]\s*,\s*{_S}\s*\)?|\[\s*{_S}\s*\]\.pack\(?\s*['\"]H\*['\"]\s*\)?)"
        ),
        _decoder(lambda raw: binascii.unhexlify(raw)),
    ),
    (
        re.compile(
            rf"(?:{_S}\.unpack1?\(?\s*['\"]m0?['\"]\s*\)?(?:\[0\]|\.first)?|unpack\s*\(?\s*['\"]u['\"]\s*,"
            rf"\s*{_S}\)?)"
        ),
        _decoder(_base64),
    ),
    (
        re.compile(
            r"\b(?:String\.from(?:CharCode|CodePoint)|(?:string|utf8)\.char|intToUtf8|rawToChar)\("
            r"\s*(?:\.{3}\s*\[|(?:as\.raw\()?c\()?([\d,\sxa-fA-F]+)[\])]{0,2}?\)"
        ),
        _codes,
    ),
    (
        re.compile(r"\[([\d,\sx]+)\]\.(?:pack\(?\s*['\"][cCU]\*['\"]\s*\)?|map\(?[^)]*chr\)?\.join(?:\([^)]*\))?)"),
        _codes,
    ),
    (
        re.compile(r"\bchr\s*\(\s*(\d+)\s*\)|\b(\d+)\.chr\b"),
        lambda m: _quote(chr(whole(m[1] or m[2]))) if whole(m[1] or m[2]) < 0xD800 else m[0],
    ),
    (re.compile(r"pack\s*\(?\s*['\"][cCU]\*['\"]\s*,\s*([\d,\s]+)\)?"), _codes),
    (
        re.compile(
            rf"(?:strrev\(\s*{_S}\s*\)|(?:scalar\s+)?reverse\s*\(?\s*{_S}\s*\)?|{_S}\.reverse\b(?:\(\))?|"
            rf"{_S}\.split\(['\"]{{2}}\)\.reverse\(\)\.join\(['\"]{{2}}\))"
        ),
        _decoder(lambda raw: raw[::-1]),
    ),
    (
        re.compile(
            rf"(?:unescape|decodeURI(?:Component)?|urldecode|rawurldecode|CGI\.unescape|URI\.decode\w*)\(\s*{_S}\s*\)"
        ),
        _decoder(lambda raw: unquote_to_bytes(raw)),
    ),
    (
        re.compile(rf"(?:sprintf|\bformat)\s*\(?\s*{_S}((?:\s*,\s*(?:{_STRING}|\d{{1,6}}))+)\s*\)?"),
        lambda m: _formatted(m),
    ),
    (
        re.compile(rf"str_rot13\(\s*{_S}\s*\)"),
        _decoder(lambda raw: __import__("codecs").decode(raw.decode(), "rot13").encode()),
    ),
    (
        re.compile(rf"\[\s*{_S}((?:\s*,\s*{_STRING})*)\s*\]\.join\(\s*{_S}?\s*\)"),
        lambda m: _quote(
            (unquote(m[3]) if m[3] else ",").join(unquote(s, False) for s in re.findall(_STRING, m[1] + m[2]))
        ),
    ),
    (
        re.compile(rf"\(concat\s+({_STRING}(?:\s+{_STRING})*)\s*\)"),
        lambda m: _quote("".join(unquote(s, False) for s in re.findall(_STRING, m[1]))),
    ),
    (
        re.compile(rf"\bpaste(0?)\(\s*({_STRING}(?:\s*,\s*{_STRING})*)\s*\)"),
        lambda m: _quote(("" if m[1] else " ").join(unquote(s, False) for s in re.findall(_STRING, m[2]))),
    ),
    (
        re.compile(rf"join\s*\(?\s*{_S}\s*,\s*({_STRING}(?:\s*,\s*{_STRING})*)\s*\)?"),
        lambda m: _quote(unquote(m[1]).join(unquote(s, False) for s in re.findall(_STRING, m[2]))),
    ),
]


_HOME = re.compile(
    r"""Deno\.env\.get\(['"]HOME['"]\)|process\.env(?:\.HOME|\[['"]HOME['"]\])|(?:require\(['"]os['"]\)\.|os\.)?homedir\(\)|Dir\.home(?:\(\))?|ENV\[['"]HOME['"]\]|(?:os\.)?getenv\(['"]HOME['"]\)|ENVIRON\[['"]HOME['"]\]|\$_(?:ENV|SERVER)\[['"]HOME['"]\]|\$ENV\{['"]?HOME['"]?\}|System\.getProperty\(['"]user\.home['"]\)"""
    r"""|\(?\(?\bgetpw(?:uid|nam)\s*\(?[^()\[\]\n]{0,40}(?:\(\))?\)*(?:\[7\]|->pw_dir)|\bEtc\.getpw(?:uid|nam)(?:\([^()\n]*(?:\(\))?\))?\.dir\b"""
    r"""|(?:require\(['"](?:node:)?os['"]\)\.|os\.)?userInfo\(\)\.homedir|posix_getpwuid\([^()\n]*(?:\(\))?\)\[['"]dir['"]\]"""
    r"""|\(getenv\s+['"]HOME['"]\)|os\.UserHomeDir\(\)|\b\w+\.HomeDir\b"""
    r"""|ENV\.fetch\(['"]HOME['"][^)]*\)|env::var(?:_os)?\(['"]HOME['"]\)(?:\.unwrap\(\))?|System\.user_home!?\(?\)?"""
)


_CWD = re.compile(
    r"process\.cwd\(\)|Dir\.(?:pwd|getwd)|\bgetcwd\(\)|\bgetcwd\b|__dirname(?:\s*,\s*['\"]\.\./?['\"])?|\bcwd\(\)"
)


_QUOTES = re.compile(
    r"(?<![\w$%@])(?:q|qq|%q|%Q)(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\]|/([^/]*)/|\|([^|]*)\||"
    r"!([^!]*)!)"
)


_WORDS = re.compile(r"(?<![\w$%@])(?:qw|%w)\s*(?:\(([^()]*)\)|\{([^{}]*)\}|\[([^\[\]]*)\]|/([^/]*)/)")
