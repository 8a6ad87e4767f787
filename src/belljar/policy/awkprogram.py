"""awk: the commands, files and text in its programs."""

import re
from collections.abc import Callable

from .call import Call, program
from .compound import Feed
from .marks import ATOM, DISGUISED, FILE, MAX_TEXT, NETWORK, STAR, UNKNOWN, has_glob, known, taints, unglob
from .parser import TooComplex
from .quoting import ansi_c, char, whole


@program("awk gawk mawk nawk original-awk")
def _awk(call: Call) -> str | None:
    options = call.options("vFfieE", ("assign", "field-separator", "file", "include", "source"), posix=True)
    scripts = options.all("f", "file")
    written = [call.script(path) for path in scripts]
    if None in written:
        for path in scripts:
            call.run_code("awk", [path])
        return UNKNOWN
    options.rest = [unglob("\n".join(text or "" for text in written)), *options.rest] if scripts else options.rest
    if options.get("i", "include") == "inplace":
        for path in options.rest[1:]:
            call.write(path)
    code = unglob("\n".join(options.all("e", "source"))) or (unglob(options.rest[0]) if options.rest else "")
    for setting in options.all("v", "assign"):
        name, _, value = setting.partition("=")
        code = re.sub(rf"\b{re.escape(name)}\b(?!\s*=[^=])", _constant(_awk_quote(value)), code)
    text = (
        "".join(call.read(path) for path in options.rest[1:] if "=" not in path)
        if options.rest[1:] and not options.all("e")
        else call.stdin
    )
    words = options.rest
    code = re.sub(
        r"ARGV\[(\d+)\]", lambda m: _awk_quote(words[whole(m[1])]) if whole(m[1]) < len(words) else m[0], code
    )
    for variable, held in call.state.env.items():
        if isinstance(held, str) and f'ENVIRON["{variable}"]' in code:
            code = code.replace(f'ENVIRON["{variable}"]', _awk_quote(held))
    inside = re.search(r'(?m)^FS=(.+)|\bFS\s*=\s*"([^"]+)"', "\n".join([*options.all("v", "assign"), code]))
    separator = options.get("F", "field-separator") or (inside[1] or inside[2] if inside else "")
    separator = re.sub(r"^\[(.)\]$|^\\+(\W)$", r"\1\2", ansi_c(separator))
    clear = "".join(line for line in text.splitlines(True) if known(line))
    if clear and clear != text:  # a file whose beginning is known
        return _awk_text(call, code, clear, separator) + taints(text)
    return _awk_text(call, code, text, separator)


def _awk_text(call: Call, code: str, text: str, separator: str) -> str:
    if known(text) and (len(separator) == 1 or re.fullmatch(r"[\w\s:;,#@%&=<>/-]+", separator)):
        text = "\n".join(
            " ".join(field.replace(" ", FIELD_GAP) for field in line.split(separator)) for line in text.split("\n")
        )
        return _awk_code(call, code, text).replace(FIELD_GAP, " ")
    return _awk_code(call, code, text)


MAX_CODE = 8000
FIELD_GAP = "\ufddd"  # a blank inside a field that another separator cut out
_PRINTS = re.compile(r"[^{}\"]*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*")
_AWK_STRING = r'"((?:[^"\\]|\\.)*)"'


def _awk_code(call: Call, code: str, text: str) -> str:
    """awk runs, writes and reads through strings; fields of known input are put in their place."""
    if len(code) > MAX_CODE:
        raise TooComplex("its awk program is too long to judge; put it in a file")
    if NETWORK in code or (NETWORK in text and re.search(r"system|\|\s*\"|getline", code)):
        call.emit("exec.network", code)
    if has_glob(text) and re.search(r"/[^/{}]+/\s*[{&|]|==|!=|~|>|<", re.sub(_AWK_STRING, "", code)):
        text = text.replace(STAR, ATOM)  # a condition picks some
    if re.search(r"(while\s*\(\s*1\s*\)|for\s*\(\s*;\s*;\s*\))[^}]*system\([^)]*&", code):
        call.emit("process.forkbomb")
    folded = [_awk_folded(code, line) for line in (text.splitlines()[:40] if known(text) and text else [""])]
    printing = [
        re.fullmatch(rf"\s*(?:BEGIN\s*)?\{{\s*printf?\s*\(?\s*{_AWK_STRING}\s*\)?\s*;?\s*\}}\s*", one) for one in folded
    ]
    lines = text.splitlines()[:12] if known(text) else [UNKNOWN] if not text.strip(FILE + ATOM + "\n") else [text]
    for line in lines or [""]:
        _awk_line(call, _awk_folded(code, line), line)
    if all(printing):
        return "".join(ansi_c(found[1]) + "\n" for found in printing if found)
    if text and (known(text) or (_PRINTS.fullmatch(code) and known(text.replace(ATOM, "")))):
        return _awk_field(code, text)
    return DISGUISED if "BEGIN" in code and re.search(r"printf?\b", code) and not text else text or ATOM


def _awk_folded(code: str, line: str) -> str:
    """Variables, fields and concatenation worked out as far as they are literal."""
    fields = line.split()
    for number, value in re.findall(rf"\$([1-9])\s*=\s*{_AWK_STRING}", code)[:20]:
        fields[whole(number) - 1 : whole(number)] = [value]
        line = " ".join(fields)
        code = re.sub(r"\bprint\s*(?=[|>;}])", "print $0 ", code)
    if code.count("$") * len(line) > MAX_TEXT:
        raise TooComplex("its awk program is too long to judge; put it in a file")
    code = re.sub(r"ENVIRON\[\"HOME\"\]", '"/home/sandbox"', code)
    code = (
        re.sub(
            r"\$(\d+|NF)",
            lambda m: _awk_quote(
                line
                if m[1] == "0"
                else fields[-1]
                if m[1] == "NF" and fields
                else fields[whole(m[1]) - 1]
                if m[1] != "NF" and 0 < whole(m[1]) <= len(fields)
                else UNKNOWN
                if not known(line)
                else line.strip()
                if has_glob(line)
                else ""
            ),
            code,
        )
        if line
        else code
    )
    code, at = _awk_joined(code), 0
    for _ in range(20):  # each value goes to where its name is given another
        held = re.compile(rf"\b(\w+)\s*=\s*{_AWK_STRING}(?!\s*[\w$(])").search(code, at)
        if not held:
            break
        name, value, at = held[1], held[2], held.end()
        for old, new in re.findall(rf"g?sub\(\s*[/\"]([^/\"]*)[/\"]\s*,\s*{_AWK_STRING}\s*,\s*{name}\s*\)", code):
            value = value.replace(old, new)
        again = re.compile(rf"\b{name}\s*=(?!=)[^;\n}}]*").search(code, at)
        upto = again.end() if again else len(code)
        rest = re.sub(rf"\b{name}\b(?!\s*=[^=])", _constant(f'"{value}"'), code[at:upto])
        before = code[:at] if again else re.sub(rf"\b{name}\b(?!\s*=[^=])", _constant(f'"{value}"'), code[:at])
        if len(before) + len(rest) > MAX_TEXT:
            raise TooComplex("its awk program is too long to judge; put it in a file")
        at, code = len(before), before + _awk_joined(rest + code[upto:])
    return _awk_joined(code)


def _awk_joined(code: str) -> str:
    """Literals that stand side by side as one; formats, cuts and changes of case worked out."""
    code = re.sub(
        rf"\bprintf\s*\(?\s*{_AWK_STRING}\s*((?:,\s*[^),;}}|>]+)+)\)?", lambda m: f"printf {_awk_sprintf(m)}", code
    )
    code = re.sub(rf"sprintf\(\s*{_AWK_STRING}\s*((?:,\s*[^),]+)*)\)", _awk_sprintf, code)
    code = re.sub(
        rf"to(low|upp)er\(\s*({_AWK_STRING})\s*\)", lambda m: m[2].lower() if m[1] == "low" else m[2].upper(), code
    )
    code = re.sub(
        rf"substr\(\s*{_AWK_STRING}\s*,\s*(\d{{1,4}})\s*(?:,\s*(\d{{1,4}})\s*)?\)",
        lambda m: f'"{m[1][max(1, int(m[2])) - 1 :][: int(m[3]) if m[3] else None]}"',
        code,
    )
    return re.sub(
        rf"(?:{_AWK_STRING}[ \t]*)+",
        lambda m: '"' + "".join(re.findall(_AWK_STRING, m[0])) + '"' + " " * m[0][-1].isspace(),
        code,
    )


def _constant(text: str) -> Callable[[re.Match[str]], str]:
    return lambda _: text


def _awk_quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _awk_sprintf(found: re.Match[str]) -> str:
    from .builtins import _format

    args = [arg.strip().strip('"') for arg in found[2].split(",")[1:]]
    template = re.sub(r"%c", lambda _: char(whole(args.pop(0))) if args and args[0].isdecimal() else "%s", found[1])
    return _awk_quote(_format(template, args))


def _awk_line(call: Call, code: str, line: str) -> None:
    code, line = code.replace(FIELD_GAP, " "), line.replace(FIELD_GAP, " ")
    for text, path in re.findall(rf"printf?\s*\(?\s*(?:{_AWK_STRING})?[^;}}]*?>>?\s*{_AWK_STRING}", code):
        call.write(path, ansi_c(text) + "\n" if text else UNKNOWN)
    for command in re.findall(rf"system\s*\(\s*{_AWK_STRING}", code):
        call.shell(ansi_c(command))
    for command, name in re.findall(rf"{_AWK_STRING}\s*\|&?\s*getline\s*(\w*)", code):
        out = call.shell(ansi_c(command))
        if name and re.search(rf"system\s*\(\s*{name}\b|\b{name}\s*\|", code):
            call.shell(out)
    bare = re.sub(_AWK_STRING, '""', code)
    if re.search(r"system\s*\(\s*[^\s\"]", bare) and '"' in bare and not re.search(r"\$|getline|ARGV|ENVIRON", bare):
        call.emit("exec.disguised", code)
    for given, command in re.findall(rf"(?:printf?\s*\(?\s*{_AWK_STRING}\)?)?[^|;}}\"]*\|&?\s*{_AWK_STRING}", code):
        call.shell(ansi_c(command), feed=Feed(ansi_c(given) or line))
    if re.search(r"/inet\d?/(tcp|udp)/", code):
        call.emit("net.socket", code)
    for path in re.findall(rf"getline[^;}}]*<\s*{_AWK_STRING}", code):
        call.read(path)


def _awk_field(code: str, text: str) -> str:
    """The output of `{print $N}` on known text, as if every line met its condition; of more, text in disguise."""
    field = _PRINTS.fullmatch(code)
    if not field:
        return text if has_glob(text) or "print" not in code else DISGUISED
    which, lines = field[1] or "0", [line.split() for line in text.splitlines()]
    return "".join(
        (
            line[-1]
            if which == "NF"
            else " ".join(line)
            if which == "0"
            else line[whole(which) - 1]
            if whole(which) <= len(line)
            else line[-1]
            if has_glob(text) or ATOM in line
            else ""
        )
        + "\n"
        for line in lines
        if line
    )
