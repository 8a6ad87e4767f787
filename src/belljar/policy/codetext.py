"""Code as text: its loops over literals unrolled, its edits of literals made, its arguments cut out."""

import re
from collections.abc import Callable

from .filters import translate
from .folding import _STRING, unquote

MAX_CODE = 16_000
_LIST = rf"{_STRING}(?:\s*,\s*{_STRING}){{0,15}}"
_LOOP = re.compile(  # [a, b].each { |x|   for x of [a, b]   foreach ([a, b] as x)
    rf"(?P<a>{_LIST})\s*\]?\.(?:each|map|forEach)\w*\s*[({{]?\s*(?:do\s*)?[|(]?\s*(?P<x>\w+)\s*\)?\s*(?:\||=>)|"
    rf"\bfor(?:each)?\b\s*\(?\s*(?:const|let|var|my)?\s*(?P<y>\$?\w+)\s*(?:of|in|=)?\s*[\[(]+\s*(?P<b>{_LIST})|"
    rf"\bforeach\s*\(\s*\[?\s*(?P<c>{_LIST})\s*\]?\s+as\s+(?P<z>\$\w+)"
)
_TOPIC = re.compile(rf"\bfor(?:each)?\s*\(*\s*({_LIST})")  # perl's, over $_: before or behind what it repeats


def edited(name: str, literal: str, code: str) -> str:
    """The literal after perl's `=~ tr/…/…/` and `=~ s/…/…/` on the variable that holds it."""
    subject = rf"(?:{re.escape(name)}(?:\s*=\s*{_STRING}\s*\))?\s*=~\s*)" + ("?" if name == "$_" else "")
    for verb, _, old, new in re.findall(rf"(?<![\w$]){subject}\b(tr|y|s)([/|#!,])(.*?)\2(.*?)\2", code)[:8]:
        text = unquote(literal, False)
        if verb != "s":
            literal = quoted(translate(text, old, new))
        elif re.escape(old) == old:
            literal = quoted(text.replace(old, new))
    return literal


def unrolled(code: str) -> str:
    """Loops over a list of literals: the code once more for each, with the literal in the variable's place."""
    for name, items in re.findall(rf"(?:^|[;\s(])([$@]?\w+)\s*=\s*[\[(]?\s*({_STRING}(?:\s*,\s*{_STRING})+)", code)[:4]:
        code = re.sub(rf"(?<![\w$@]){re.escape(name)}(?!\w)(?!\s*=)", constant(f"[{items}]"), code)
    whole = code
    for found in list(_LOOP.finditer(whole))[:3]:
        items, name = found["a"] or found["b"] or found["c"], found["x"] or found["y"] or found["z"]
        for literal in re.findall(_STRING, items)[:8]:
            copy = re.sub(rf"[#$]\{{\s*{re.escape(name)}\s*\}}", constant(literal[1:-1]), whole[found.end() :])
            code += "\n" + re.sub(rf"(?<![\w$]){re.escape(name)}(?!\w)", constant(literal), copy)
    for found in list(_TOPIC.finditer(whole))[:3] if "$_" in whole else []:
        for literal in re.findall(_STRING, found[1])[:8]:
            copy = re.sub(r"(?<=[\s(,])\$_(?=\s*[),;}]|\s+for)", constant(literal), whole)
            code += "\n" + re.sub(r"\$_\b", constant(literal[1:-1]), copy)
    return code if len(code) <= MAX_CODE else whole


def quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def constant(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text


def after(text: str) -> Callable[[re.Match[str]], str]:
    return lambda found: found[1] + text


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
