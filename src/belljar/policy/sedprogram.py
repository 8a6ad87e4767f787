"""sed: its commands that run, write and read; its substitution on known text."""

import re

from .call import Call, program
from .machine import SUSPECT
from .marks import DISGUISED, FILE, UNKNOWN, known, taints, unglob
from .parser import TooComplex
from .quoting import bounded


@program("sed gsed")
def _sed(call: Call) -> str | None:
    options = call.options("efl", ("expression", "file", "line-length"))
    in_place = (
        options.has("i", "in-place")
        or any(flag.startswith("i") for flag in options.flags)
        or "i" in options.values
        or "in-place" in options.values
    )
    clustered = next((arg for arg in call.args if re.fullmatch(r"-[nrEsuz]*i.*", arg)), "")
    scripts = options.all("e", "expression")
    rest = list(options.rest)
    if not scripts and not options.all("f", "file"):
        scripts, rest = [unglob(word) for word in rest[:1]], rest[1:]
    for path in options.all("f", "file"):
        scripts += (call.machine.read_file(path, call.state) or "").splitlines()
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    for script in scripts:
        _sed_script(call, unglob(script), text)
    if in_place or clustered:
        for path in rest:
            old = call.machine.read_file(path, call.state)
            call.write(path, _inserted(scripts) + (FILE if old is None else _substitute(scripts, old)))
        return ""
    return _substitute(scripts, text)


MAX_SCRIPT = 16_000
_SED_SUB = (
    r"s(?P<d>[^\w\s\\])(?P<old>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<flags>[a-zA"
    r"-Z0-9]*)(?:\s+(?P<file>\S+))?"
)


def _inserted(scripts: list[str]) -> str:
    """Lines that a script adds to a file: they run where the file is a script."""
    lines = [line for script in scripts for line in re.findall(r"(?:^|[;\n}/\d$])\s*[aic]\\?\s*(.+)", script)]
    lines += [found["new"].replace("\\/", "/") for script in scripts for found in re.finditer(_SED_SUB, script)]
    return "".join(f"{line}\n" for line in lines if SUSPECT.match(line) or "import " in line)


def _sed_script(call: Call, script: str, given: str) -> None:
    """The commands of sed that run (`e`, `s///e`) or write (`w`)."""
    if len(script) > MAX_SCRIPT:
        raise TooComplex("its sed script is too long to judge; put it in a file")
    bare = script
    for found in re.finditer(_SED_SUB, script):
        if "e" in found["flags"]:
            plain = found[0][: -len(found["flags"])] if found["flags"] else found[0]
            call.shell(_substitute([plain], given) if given and known(given) else found["new"].replace("&", UNKNOWN))
        if "w" in found["flags"] and found["file"]:
            call.write(found["file"])
        bare = bare.replace(found[0], "")
    for letter, rest in re.findall(_SED_COMMAND, bare):
        if letter == "e":
            space = [found["new"].replace("\\/", "/") for found in re.finditer(_SED_SUB, script)]
            for text in [rest] if rest.strip() else [*space, given]:
                call.shell(text)
        elif rest.strip():
            changed = bare != script and given and known(given)
            call.write(rest.strip(), DISGUISED if changed else given) if letter in "wW" else call.read(rest.strip())


_SED_ADDRESS = r"(?:\d+|\$|/(?:\\.|[^/\n])*/I?)"


_SED_COMMAND = re.compile(
    rf"(?:^|[;{{}}\n])\s*(?:{_SED_ADDRESS}\s*(?:,\s*[+~]?{_SED_ADDRESS})?\s*)?!?\s*([ewrRW])(?![\w])\s*([^\n;}}]*)|"
    rf"(?!)",
    re.M,
)


def _substitute(scripts: list[str], text: str) -> str:
    if taints(text):
        return text
    for script in scripts:
        found = re.fullmatch(_SED_SUB, script.strip())
        if not found:
            return DISGUISED if text else ""
        try:
            new = re.sub(r"\\(\d)", r"\\g<\1>", found["new"]).replace("&", r"\g<0>")
            old = (
                found["old"]
                if "E" in script
                else re.sub(r"\\([(){}|+?])", r"\1", re.sub(r"(?<!\\)([(){}|+?])", r"\\\1", found["old"]))
            )
            if not bounded(old, text):
                return DISGUISED
            text = "".join(
                re.sub(old, new, line, count=0 if "g" in found["flags"] else 1) for line in text.splitlines(True)
            )
        except (re.error, IndexError):
            return DISGUISED
    return text
