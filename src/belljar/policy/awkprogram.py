"""awk: literals and the fields of known input are put in their place; what reaches system, a pipe or a file is seen."""

import re

from .call import Call, program
from .feed import Feed
from .folding import constant
from .marks import ATOM, DISGUISED, FILE, MAX_TEXT, NETWORK, STAR, UNKNOWN, has_glob, known, taints, unglob
from .parser import TooComplex
from .quoting import ansi_c, whole

MAX_CODE, MAX_LINES = 8000, 12
_STRING = r'"((?:[^"\\]|\\.)*)"'
_PRINTS = re.compile(r"[^{}\"]*\{\s*print\s*(?:\$(\d+|NF))?\s*;?\s*\}\s*")
_ONLY = re.compile(rf"\s*(?:BEGIN\s*)?\{{\s*printf?\s*\(?\s*{_STRING}\s*\)?\s*;?\s*\}}\s*")
_BOMB = re.compile(r"(while\s*\(\s*1\s*\)|for\s*\(\s*;\s*;\s*\))[^}]*system\([^)]*&")
_GAP = "\ufddd"  # a blank inside a field that another separator cut out


@program("awk gawk mawk nawk original-awk")
def _awk(call: Call) -> str | None:
    options = call.options("vFfieE", ("assign", "field-separator", "file", "include", "source"), posix=True)
    files, words = options.all("f", "file"), list(options.rest)
    code = unglob("\n".join([*(call.script(path) or "" for path in files), *options.all("e", "source")]))
    code = code if code or files else unglob(words.pop(0)) if words else ""
    for path in words if options.get("i", "include") == "inplace" else []:
        call.write(path)
    held = {f'ENVIRON["{name}"]': value for name, value in call.state.env.items() if isinstance(value, str)}
    for name, value in {**held, **{f"ARGV[{at}]": word for at, word in enumerate(words, 1)}}.items():
        code = code.replace(name, _quote(value))
    for name, _, value in [setting.partition("=") for setting in options.all("v", "assign")]:
        code = re.sub(rf"\b{re.escape(name)}\b(?!\s*=[^=])", constant(_quote(value)), code)
    paths = [path for path in words if "=" not in path]
    text = "".join(call.read(path) for path in paths) if paths else call.stdin
    inside = re.search(r'\bFS\s*=\s*"([^"]+)"', code)
    separator = options.get("F", "field-separator") or (inside[1] if inside else "")
    return _ran(call, code, text, re.sub(r"^\[(.)\]$|^\\+(\W)$", r"\1\2", ansi_c(separator)))


def _ran(call: Call, code: str, text: str, separator: str) -> str:
    clear = "".join(line for line in text.splitlines(True) if known(line))
    if clear and separator:
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
    call.emit("process.forkbomb") if _BOMB.search(code) else None
    lines = text.splitlines()[:MAX_LINES] if known(text) else [text if text.strip(FILE + ATOM + "\n") else UNKNOWN]
    folded = [_folded(code, line) for line in lines or [""]]
    for one, line in zip(folded, lines or [""], strict=True):
        _line(call, one.replace(_GAP, " "), line.replace(_GAP, " "))
    only = [_ONLY.fullmatch(one) for one in folded]
    if all(only) and (known(text) or not text):
        return "".join(ansi_c(found[1]) + "\n" for found in only if found)
    if text and (known(text) or (_PRINTS.fullmatch(code) and known(text.replace(ATOM, "")))):
        return _printed(code, text)
    return DISGUISED if "BEGIN" in code and re.search(r"printf?\b", code) and not text else text or ATOM


def _folded(code: str, line: str) -> str:
    """Fields and variables put in their place, literals side by side made one."""
    fields = line.split()

    def field(found: re.Match[str]) -> str:
        at = len(fields) if found[1] == "NF" else whole(found[1])
        missing = UNKNOWN if not known(line) else line.strip() if has_glob(line) else ""
        return _quote(line if not at else fields[at - 1] if at <= len(fields) else missing)

    code = _joined(re.sub(r"\$(\d+|NF)", field, code) if line else code)
    for name, value in re.findall(rf"\b(\w+)\s*=\s*{_STRING}(?!\s*[\w$(])", code)[:20]:
        if len(code) + code.count(name) * len(value) <= 8 * MAX_CODE:
            code = _joined(re.sub(rf"\b{name}\b(?!\s*=[^=])", constant(f'"{value}"'), code))
        else:
            raise TooComplex("its awk program is too long to judge; put it in a file")
    return code


def _joined(code: str) -> str:
    beside = rf"(?:{_STRING}[ \t]*)+"
    return re.sub(beside, lambda m: '"' + "".join(re.findall(_STRING, m[0])) + '"' + " " * m[0][-1].isspace(), code)


def _quote(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _line(call: Call, code: str, line: str) -> None:
    for text, path in re.findall(rf"printf?\s*\(?\s*(?:{_STRING})?[^;}}]*?>>?\s*{_STRING}", code):
        call.write(path, ansi_c(text) + "\n" if text else UNKNOWN)
    for command in re.findall(rf"system\s*\(\s*{_STRING}", code):
        call.shell(ansi_c(command))
    for command in re.findall(rf"{_STRING}\s*\|&?\s*getline", code):
        call.emit("exec.network") if NETWORK in call.shell(ansi_c(command)) and "system" in code else None
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
