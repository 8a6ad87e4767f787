"""sed and awk, in short: what their scripts run, write and read is data (languages.toml); what they print is here.

Substitutions on known text and `{print $N}` are followed; anything else is text in disguise.
"""

import re
from functools import partial
from typing import Any

from belljar.patterns import lazy_pattern

from . import expressions
from .call import Call, program
from .feed import Feed
from .marks import ATOM, DISGUISED, FILE, NETWORK, STAR, UNKNOWN, clip, has_glob, known, listed_part, taints, unglob
from .parser import TooComplex
from .quoting import ansi_c, basic_regex, bounded, classes, whole

MAX_SCRIPT = 16_000
_ADDRESS = r"\s*(?:(?P<first>\d+|\$)(?:,(?P<last>\d+|\$))?)?\s*"
_STEP = lazy_pattern(
    _ADDRESS
    + r"(?:s(?P<d>[^\n\\\w])(?P<old>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<flags>[gpIi0-9]*)"
    r"|(?P<verb>[dp]))\s*(?:[;\n}]|$)",
    re.S,
)
_RUNS = lazy_pattern(
    r"(?P<s>s(?P<d>[/|#,])(?:\\.|(?!(?P=d)).)*(?P=d)(?:\\.|(?!(?P=d)).)*(?P=d))[gpI\d]*e|(?:^|[;\n])e(?=\s*(?:[;\n]|$))"
)
_LITERAL = lazy_pattern(r'[^{}"]*\{\s*printf?\s*\(?\s*"([^"]*)"\s*\)?\s*;?\s*\}\s*')
_BESIDE = lazy_pattern(r'"[ \t]*"')
_PRINTS = lazy_pattern(r"[^{}\"]*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*")


@program("sed gsed")
def _sed(call: Call) -> str | None:
    options = call.options("efl", ("expression", "file", "line-length"))
    scripts, rest = options.all("e", "expression"), list(options.rest)
    if not scripts and not options.all("f", "file"):
        scripts, rest = rest[:1], rest[1:]
    for path in options.all("f", "file"):
        call.load(path)
        scripts += [call.machine.read_file(path, call.state) or ""]
    script = _judged(call, "sed", "\n".join(scripts))
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    for found in _RUNS.finditer(script):  # s/x/y/e, or e alone: what the script made of the text
        plain = script[: found.end("s")] if found["s"] else script[: found.start()]
        call.shell(_edited(plain, text, False, False) if text and known(text) else plain.rsplit(plain[-1:], 2)[-2])
    if options.has("i", "in-place") or any(re.fullmatch(r"-[nrEsuz]*i.*", arg) for arg in call.args):
        for path in rest:
            call.write(path, (call.machine.read_file(path, call.state) or FILE) + _inserted(script))
        return ""
    quiet = options.has("n", "quiet", "silent")
    return _edited(script, listed_part(text) if quiet else text, options.has("E", "r", "regexp-extended"), quiet)


def _judged(call: Call, language: str, script: str) -> str:
    """The script, looked through."""
    script = unglob(script)
    if len(script) > MAX_SCRIPT:
        raise TooComplex(f"its {call.name} script is too long to judge; put it in a file")
    call.scan(language, script, [])
    return script


def _inserted(script: str) -> str:
    """The lines that a script adds to a file: they run where the file is a script."""
    added = re.findall(r"(?m)^\s*(?:\d+|\$)?\s*[aic]\s*\\?\s*(.+)$", script)
    made = re.findall(r"s([/|#,])(?:\\.|(?!\1).)*\1((?:\\.|(?!\1).)*)\1", script)
    return "".join(f"{line}\n" for line in [*added, *(new.replace("\\/", "/") for _, new in made)])


def _edited(script: str, text: str, extended: bool, quiet: bool) -> str:
    if taints(text) or not text:
        return text
    steps, at = [], 0
    while (found := _STEP.match(script, at)) and found.end() > at:
        steps.append(found)
        at = found.end()
    simple = not script[at:].strip() and all(bounded(step["old"] or "", text) for step in steps)
    lines, out = text.splitlines(), []
    try:
        for number, line in enumerate(lines if simple else [], 1):
            out += _line([step for step in steps if _addressed(step, number, len(lines))], line, extended, quiet)
    except (ValueError, IndexError):
        simple = False
    return clip("\n".join(out)) + ("\n" if text.endswith("\n") and out else "") if simple else DISGUISED


def _addressed(step: re.Match[str], number: int, total: int) -> bool:
    first = step["first"]
    begin, end = (total if place == "$" else whole(place or "0") for place in (first, step["last"] or first))
    return not first or begin <= number <= end


def _line(steps: list[re.Match[str]], line: str, extended: bool, quiet: bool) -> list[str]:
    out: list[str] = []
    for step in steps:
        if step["verb"] == "d":
            return out
        before, flags = line, step["flags"] or ""
        if step["d"]:
            pattern = classes(step["old"]) if extended else basic_regex(step["old"])
            if expressions.fault(pattern):
                raise ValueError("no expression")
            line = expressions.replaced(pattern, partial(_replacement, step["new"]), line, 0 if "g" in flags else 1)
        if step["verb"] == "p" or ("p" in flags and line != before):
            out.append(line)
    return out if quiet else [*out, line]


def _replacement(new: str, found: Any) -> str:
    if re.search(r"\\[ULEul]", new):
        raise ValueError("letters change their case")
    groups: list[str] = [found[0], *found.groups()]
    special = {"&": groups[0], "\\n": "\n", "\\t": "\t"}
    pieces = re.findall(r"\\.|.", new, re.S)
    return "".join(special.get(p) or (groups[int(p[1])] or "" if p[1:].isdigit() else p[-1]) for p in pieces)


@program("awk gawk mawk nawk original-awk")
def _awk(call: Call) -> str | None:
    options = call.options("vFfieE", ("assign", "field-separator", "file", "include", "source"), posix=True)
    files, words = options.all("f", "file"), list(options.rest)
    code = "\n".join([*(call.script(path) or "" for path in files), *options.all("e", "source")])
    code = code if code or files else words.pop(0) if words else ""
    for name, _, value in [setting.partition("=") for setting in options.all("v", "assign")]:
        code = re.sub(rf"\b{re.escape(name)}\b", lambda _, value=value: f'"{value}"', code)  # type: ignore[misc]
    paths = [path for path in words if "=" not in path]
    for path in paths if options.get("i", "include") == "inplace" else []:
        call.write(path)
    text = "".join(call.read(path) for path in paths) if paths else call.stdin
    if NETWORK in code or (NETWORK in text and re.search(r"system|\|\s*\"|getline", code)):
        call.emit("exec.network", code)
    if has_glob(text) and re.search(r"/[^/{}]+/\s*[{&|]|==|!=|~|>|<", re.sub(r'"[^"]*"', "", code)):
        text = text.replace(STAR, ATOM)  # a condition picks some
    separator = re.sub(r"^\[(.)\]$|^\\+(\W)$", r"\1\2", ansi_c(options.get("F", "field-separator")))
    lines = [line.split(separator or None) for line in text.splitlines()[:12]] or [[]]
    folded = [_folded(code, fields) for fields in lines]
    for one, fields in zip(folded, lines, strict=True):
        _run_awk(call, one, " ".join(fields))
    literals = [_LITERAL.fullmatch(one) for one in folded]
    if all(literals) and not _PRINTS.fullmatch(code) and (known(text) or has_glob(text)):
        return "".join(ansi_c(found[1]) + "\n" for found in literals if found)
    return _printed(code, text, lines)


def _folded(code: str, fields: list[str]) -> str:
    """Fields and variables in their places, literals side by side as one."""
    if sum(map(len, fields)) * code.count("$") > 4 * MAX_SCRIPT:
        raise TooComplex("its awk program is too long to judge; put it in a file")
    if fields:
        code = re.sub(r"\$(\d+|NF)", lambda m: f'"{_field(fields, m[1])}"', code)
    code = _BESIDE.sub("", code)
    for name, value in re.findall(r'\b(\w+)\s*=\s*"([^"]*)"', code)[:8]:
        if code.count(name) * len(value) < MAX_SCRIPT:
            code = re.sub(rf"\b{name}\b(?!\s*=[^=])", lambda _, value=value: f'"{value}"', code)  # type: ignore[misc]
    return _BESIDE.sub("", code)


def _run_awk(call: Call, code: str, line: str) -> None:
    _judged(call, "awk", code)
    for given, command in re.findall(r'printf?\s*\(?\s*(?:"([^"]*)"\)?)?[^|;}"]*\|&?\s*"([^"]*)"', code):
        call.shell(ansi_c(command), feed=Feed(ansi_c(given) or line))
    for given, path in re.findall(r'printf?\s*\(?\s*"([^"]*)"\)?\s*>>?\s*"([^"]*)"', code):
        call.write(path, ansi_c(given) + "\n")


def _field(fields: list[str], number: str) -> str:
    at = len(fields) if number == "NF" else whole(number)
    return " ".join(fields) if not at else fields[at - 1] if at <= len(fields) else UNKNOWN


def _printed(code: str, text: str, lines: list[list[str]]) -> str:
    """The output of `{print $N}` on known text, as if every line met its condition; of more, text in disguise."""
    field = _PRINTS.fullmatch(code)
    if not text:
        return DISGUISED if "BEGIN" in code and "print" in code else ATOM
    if not field:
        return text if has_glob(text) or not known(text) or "print" not in code else DISGUISED
    out = ""
    for line in filter(None, lines):
        last = line[-1] if has_glob(text) or not known(text) else ""
        at = len(line) if field[1] == "NF" else whole(field[1] or "0")
        out += (" ".join(line) if not at else line[at - 1] if at <= len(line) else last) + "\n"
    return out
