"""awk: literals and the fields of known input are put in their place; what reaches system, a pipe or a file is seen."""

import re

from .builtins import printf
from .call import Call, program
from .feed import Feed
from .folding import constant
from .marks import ATOM, DISGUISED, FILE, MAX_TEXT, NETWORK, STAR, UNKNOWN, has_glob, known, taints, unglob
from .parser import TooComplex
from .quoting import ansi_c, char, whole

MAX_CODE = 8000
_STRING = r'"((?:[^"\\]|\\.)*)"'
_PRINTS = re.compile(r"[^{}\"]*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*")
_GAP = "\ufddd"  # a blank inside a field that another separator cut out


@program("awk gawk mawk nawk original-awk")
def _awk(call: Call) -> str | None:
    options = call.options("vFfieE", ("assign", "field-separator", "file", "include", "source"), posix=True)
    written = [call.script(path) for path in options.all("f", "file")]
    if None in written:
        for path in options.all("f", "file"):
            call.run_code("awk", [path])
        return UNKNOWN
    words = [unglob("\n".join(text or "" for text in written)), *options.rest] if written else options.rest
    code = unglob("\n".join(options.all("e", "source"))) or (unglob(words[0]) if words else "")
    for path in words[1:] if options.get("i", "include") == "inplace" else []:
        call.write(path)
    given = [setting.partition("=") for setting in options.all("v", "assign")]
    held = {f'ENVIRON["{name}"]': value for name, value in call.state.env.items() if isinstance(value, str)}
    held |= {f"ARGV[{number}]": word for number, word in enumerate(words)}
    for name, value in held.items():
        code = code.replace(name, _quote(value))
    for name, _, value in given:
        code = re.sub(rf"\b{re.escape(name)}\b(?!\s*=[^=])", constant(_quote(value)), code)
    paths = [path for path in words[1:] if "=" not in path]
    text = "".join(call.read(path) for path in paths) if paths else call.stdin
    inside = re.search(r'\bFS\s*=\s*"([^"]+)"', code)
    separator = (
        options.get("F", "field-separator")
        or next((v for n, _, v in given if n == "FS"), "")
        or (inside[1] if inside else "")
    )
    return _ran(call, code, text, re.sub(r"^\[(.)\]$|^\\+(\W)$", r"\1\2", ansi_c(separator)))


def _ran(call: Call, code: str, text: str, separator: str) -> str:
    clear = "".join(line for line in text.splitlines(True) if known(line))
    if clear and (len(separator) == 1 or re.fullmatch(r"[\w\s:;,#@%&=<>/-]+", separator)):
        cut = [[field.replace(" ", _GAP) for field in line.split(separator)] for line in clear.split("\n")]
        clear = "\n".join(" ".join(fields) for fields in cut)
    out = _code(call, code, clear or text).replace(_GAP, " ")
    return out + (taints(text) if clear and not known(text) else "")


def _code(call: Call, code: str, text: str) -> str:
    if len(code) > MAX_CODE or code.count("$") * max(map(len, text.splitlines() or [""])) > MAX_TEXT:
        raise TooComplex("its awk program is too long to judge; put it in a file")
    if NETWORK in code or (NETWORK in text and re.search(r"system|\|\s*\"|getline", code)):
        call.emit("exec.network", code)
    if has_glob(text) and re.search(r"/[^/{}]+/\s*[{&|]|==|!=|~|>|<", re.sub(_STRING, "", code)):
        text = text.replace(STAR, ATOM)  # a condition picks some
    if re.search(r"(while\s*\(\s*1\s*\)|for\s*\(\s*;\s*;\s*\))[^}]*system\([^)]*&", code):
        call.emit("process.forkbomb")
    lines = text.splitlines()[:12] if known(text) else [UNKNOWN] if not text.strip(FILE + ATOM + "\n") else [text]
    folded = [_folded(code, line) for line in lines or [""]]
    for one, line in zip(folded, lines or [""], strict=True):
        _line(call, one.replace(_GAP, " "), line.replace(_GAP, " "))
    only = [
        re.fullmatch(rf"\s*(?:BEGIN\s*)?\{{\s*printf?\s*\(?\s*{_STRING}\s*\)?\s*;?\s*\}}\s*", one) for one in folded
    ]
    if all(only) and (known(text) or not text):
        return "".join(ansi_c(found[1]) + "\n" for found in only if found)
    if text and (known(text) or (_PRINTS.fullmatch(code) and known(text.replace(ATOM, "")))):
        return _printed(code, text)
    return DISGUISED if "BEGIN" in code and re.search(r"printf?\b", code) and not text else text or ATOM


def _folded(code: str, line: str) -> str:
    """Fields, variables and concatenation worked out as far as they are literal."""
    fields = line.split()
    for number, value in re.findall(rf"\$([1-9])\s*=\s*{_STRING}", code)[:20]:
        fields[whole(number) - 1 : whole(number)] = [value]
        line, code = " ".join(fields), re.sub(r"\bprint\s*(?=[|>;}])", "print $0 ", code)

    def field(found: re.Match[str]) -> str:
        if found[1] == "0":
            return _quote(line)
        at = len(fields) if found[1] == "NF" else whole(found[1])
        missing = UNKNOWN if not known(line) else line.strip() if has_glob(line) else ""
        return _quote(fields[at - 1] if 0 < at <= len(fields) else missing)

    code, at = _joined(re.sub(r"\$(\d+|NF)", field, code) if line else code), 0
    for _ in range(20):  # each value goes to where its name is given another
        held = re.compile(rf"\b(\w+)\s*=\s*{_STRING}(?!\s*[\w$(])").search(code, at)
        if not held:
            break
        name, value, at = held[1], held[2], held.end()
        for old, new in re.findall(rf"g?sub\(\s*[/\"]([^/\"]*)[/\"]\s*,\s*{_STRING}\s*,\s*{name}\s*\)", code):
            value = value.replace(old, new)
        again = re.compile(rf"\b{name}\s*=(?!=)[^;\n}}]*").search(code, at)
        upto = again.end() if again else len(code)
        rest = re.sub(rf"\b{name}\b(?!\s*=[^=])", constant(f'"{value}"'), code[at:upto])
        if at + len(rest) > MAX_TEXT:
            raise TooComplex("its awk program is too long to judge; put it in a file")
        code = code[:at] + _joined(rest + code[upto:])
    return code


def _joined(code: str) -> str:
    """Literals that stand side by side as one; formats, cuts and changes of case worked out."""
    code = re.sub(rf"\bprintf\s*\(?\s*{_STRING}\s*((?:,\s*[^),;}}|>]+)+)\)?", lambda m: f"printf {_sprintf(m)}", code)
    code = re.sub(rf"sprintf\(\s*{_STRING}\s*((?:,\s*[^),]+)*)\)", _sprintf, code)
    code = re.sub(
        rf"to(low|upp)er\(\s*({_STRING})\s*\)", lambda m: m[2].lower() if m[1] == "low" else m[2].upper(), code
    )
    cut = rf"substr\(\s*{_STRING}\s*,\s*(\d{{1,4}})\s*(?:,\s*(\d{{1,4}})\s*)?\)"
    code = re.sub(cut, lambda m: f'"{m[1][max(1, int(m[2])) - 1 :][: int(m[3]) if m[3] else None]}"', code)
    beside = rf"(?:{_STRING}[ \t]*)+"
    return re.sub(beside, lambda m: '"' + "".join(re.findall(_STRING, m[0])) + '"' + " " * m[0][-1].isspace(), code)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _sprintf(found: re.Match[str]) -> str:
    args = [arg.strip().strip('"') for arg in found[2].split(",")[1:]]
    template = re.sub(r"%c", lambda _: char(whole(args.pop(0))) if args and args[0].isdecimal() else "%s", found[1])
    return _quote(printf(template, args))


def _line(call: Call, code: str, line: str) -> None:
    for text, path in re.findall(rf"printf?\s*\(?\s*(?:{_STRING})?[^;}}]*?>>?\s*{_STRING}", code):
        call.write(path, ansi_c(text) + "\n" if text else UNKNOWN)
    for command in re.findall(rf"system\s*\(\s*{_STRING}", code):
        call.shell(ansi_c(command))
    for command, name in re.findall(rf"{_STRING}\s*\|&?\s*getline\s*(\w*)", code):
        out = call.shell(ansi_c(command))
        if name and re.search(rf"system\s*\(\s*{name}\b|\b{name}\s*\|", code):
            call.shell(out)
    bare = re.sub(_STRING, '""', code)
    if re.search(r"system\s*\(\s*[^\s\"]", bare) and '"' in bare and not re.search(r"\$|getline|ARGV|ENVIRON", bare):
        call.emit("exec.disguised", code)
    for given, command in re.findall(rf"(?:printf?\s*\(?\s*{_STRING}\)?)?[^|;}}\"]*\|&?\s*{_STRING}", code):
        call.shell(ansi_c(command), feed=Feed(ansi_c(given) or line))
    if re.search(r"/inet\d?/(tcp|udp)/", code):
        call.emit("net.socket", code)
    for path in re.findall(rf"getline[^;}}]*<\s*{_STRING}", code):
        call.read(path)


def _printed(code: str, text: str) -> str:
    """The output of `{print $N}` on known text, as if every line met its condition; of more, text in disguise."""
    field = _PRINTS.fullmatch(code)
    if not field:
        return text if has_glob(text) or "print" not in code else DISGUISED
    which, out = field[1] or "0", ""
    for line in filter(None, (line.split() for line in text.splitlines())):
        last = "" if not (has_glob(text) or ATOM in line) else line[-1]
        at = len(line) if which == "NF" else whole(which)
        out += (" ".join(line) if which == "0" else line[at - 1] if 0 < at <= len(line) else last) + "\n"
    return out
