"""sed and awk. languages.toml finds what their scripts run, write and read; here is what they print.

`{print $N}` is computed; after any other change known text is DISGUISED.
"""

import re

from belljar.patterns import lazy_pattern

from .call import Call, program
from .marks import (
    ATOM,
    DISGUISED,
    FILE,
    NETWORK,
    STAR,
    UNKNOWN,
    has_glob,
    known,
    unglob,
)
from .parser import TooComplex
from .quoting import ansi_c, to_int
from .shellstate import Feed

MAX_SCRIPT = 16_000
_RUNS = lazy_pattern(
    r"(?P<s>s(?P<d>[/|#,])(?:\\.|(?!(?P=d)).)*(?P=d)(?:\\.|(?!(?P=d)).)*(?P=d))[gpI\d]*e|(?:^|[;\n])e(?=\s*(?:[;\n]|$))"
)
_LITERAL = lazy_pattern(r'[^{}"]*\{\s*printf?\s*\(?\s*"([^"]*)"\s*\)?\s*;?\s*\}\s*')
_BESIDE = lazy_pattern(r'"[ \t]*"')
_PRINTS = lazy_pattern(r"[^{}\"]*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*")


@program("sed gsed")
def _sed(call: Call) -> str | None:
    options = call.options("e f l expression file line-length")
    scripts = options.all("e", "expression")
    rest = list(options.rest)
    if not scripts and not options.all("f", "file"):
        scripts = rest[:1]
        rest = rest[1:]
    for path in options.all("f", "file"):
        call.load(path)
        scripts += [call.machine.read_file(path, call.state) or ""]
    script = _judged(call, "sed", "\n".join(scripts))
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    if _RUNS.search(script):  # s/x/y/e, or e alone, runs what the script makes
        call.emit("exec.disguised", script)
    if options.has("i", "in-place") or any(
        re.fullmatch(r"-[nrEsuz]*i.*", arg) for arg in call.args
    ):
        for path in rest:
            call.write(
                path,
                (call.machine.read_file(path, call.state) or FILE) + _inserted(script),
            )
        return ""
    return DISGUISED if text and known(text) else text


def _judged(call: Call, language: str, script: str) -> str:
    """Search a script for effects. Returns it."""
    script = unglob(script)
    if len(script) > MAX_SCRIPT:
        raise TooComplex(
            f"its {call.name} script is too long to judge; put it in a file"
        )
    call.scan(language, script, [])
    return script


def _inserted(script: str) -> str:
    """The lines that a script adds to a file, which may be a script."""
    added = re.findall(
        r"(?m)^[ \t]*(?:(?:\d+|\$)[ \t]*)?[aic][ \t]*\\?\s*(.+)$", script
    )
    made = re.findall(r"s([/|#,])(?:\\.|(?!\1).)*\1((?:\\.|(?!\1).)*)\1", script)
    return "".join(
        f"{line}\n" for line in [*added, *(new.replace("\\/", "/") for _, new in made)]
    )


@program("awk gawk mawk nawk original-awk")
def _awk(call: Call) -> str | None:
    options = call.options(
        "v F f i e E assign field-separator file include source", True
    )
    files = options.all("f", "file")
    words = list(options.rest)
    code = "\n".join(
        [*(call.script(path) or "" for path in files), *options.all("e", "source")]
    )
    code = code if code or files else words.pop(0) if words else ""
    for name, _, value in [
        setting.partition("=") for setting in options.all("v", "assign")
    ]:
        quoted = f'"{value}"'.replace("\\", r"\\")
        code = re.sub(rf"\b{re.escape(name)}\b", quoted, code)
    paths = [path for path in words if "=" not in path]
    for path in paths if options.get("i", "include") == "inplace" else []:
        call.write(path)
    text = "".join(call.read(path) for path in paths) if paths else call.stdin
    if NETWORK in code or (
        NETWORK in text and re.search(r"system|\|\s*\"|getline", code)
    ):
        call.emit("exec.network", code)
    if has_glob(text) and re.search(
        r"/[^/{}]+/\s*[{&|]|==|!=|~|>|<", re.sub(r'"[^"]*"', "", code)
    ):
        text = text.replace(STAR, ATOM)  # a condition selects some
    separator = re.sub(
        r"^\[(.)\]$|^\\+(\W)$", r"\1\2", ansi_c(options.get("F", "field-separator"))
    )
    lines = [line.split(separator or None) for line in text.splitlines()[:12]] or [[]]
    folded = [_folded(code, fields) for fields in lines]
    for one, fields in zip(folded, lines, strict=True):
        _run_awk(call, one, " ".join(fields))
    literals = [_LITERAL.fullmatch(one) for one in folded]
    if (
        all(literals)
        and not _PRINTS.fullmatch(code)
        and (known(text) or has_glob(text))
    ):
        return "".join(ansi_c(found[1]) + "\n" for found in literals if found)
    return _printed(code, text, lines)


def _folded(code: str, fields: list[str]) -> str:
    """Replace fields and variables by their values, and join adjacent literals."""
    if sum(map(len, fields)) * code.count("$") > 4 * MAX_SCRIPT:
        raise TooComplex("its awk program is too long to judge; put it in a file")
    if fields:
        code = re.sub(r"\$(\d+|NF)", lambda m: f'"{_field(fields, m[1])}"', code)
    code = _BESIDE.sub("", code)
    for name, value in re.findall(r'\b(\w+)\s*=\s*"([^"]*)"', code)[:8]:
        if code.count(name) * len(value) < MAX_SCRIPT:
            quoted = f'"{value}"'.replace("\\", r"\\")
            code = re.sub(rf"\b{name}\b(?!\s*=[^=])", quoted, code)
    return _BESIDE.sub("", code)


def _run_awk(call: Call, code: str, line: str) -> None:
    _judged(call, "awk", code)
    for given, command in re.findall(
        r'printf?\s*\(?\s*(?:"([^"]*)"\)?)?[^|;}"]*\|&?\s*"([^"]*)"', code
    ):
        call.shell(ansi_c(command), feed=Feed(ansi_c(given) or line))
    for given, path in re.findall(
        r'printf?\s*\(?\s*"([^"]*)"\)?\s*>>?\s*"([^"]*)"', code
    ):
        call.write(path, ansi_c(given) + "\n")


def _field(fields: list[str], number: str, beyond: str = UNKNOWN) -> str:
    at = len(fields) if number == "NF" else to_int(number or "0")
    if not at:
        return " ".join(fields)
    return fields[at - 1] if at <= len(fields) else beyond


def _printed(code: str, text: str, lines: list[list[str]]) -> str:
    """The output of `{print $N}` for every line, whatever its condition; of other programs, DISGUISED."""
    field = _PRINTS.fullmatch(code)
    if field and text:
        partly = has_glob(text) or not known(text)
        return "".join(
            _field(line, field[1], line[-1] if partly else "") + "\n"
            for line in lines
            if line
        )
    if not text:
        return DISGUISED if "BEGIN" in code and "print" in code else ATOM
    return (
        text if has_glob(text) or not known(text) or "print" not in code else DISGUISED
    )
