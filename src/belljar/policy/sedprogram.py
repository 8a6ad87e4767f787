"""sed: its commands that run, write and read; its substitution on known text."""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from .call import Call, program
from .machine import SUSPECT
from .marks import DISGUISED, FILE, UNKNOWN, clip, known, listed_part, taints, unglob
from .parser import TooComplex
from .quoting import Pattern, basic_regex, bounded, classes


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
        call.load(path)
        scripts += (call.machine.read_file(path, call.state) or "").splitlines()
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    for script in scripts:
        _sed_script(call, unglob(script), text)
    if in_place or clustered:
        for path in rest:
            old = call.machine.read_file(path, call.state)
            call.write(path, _inserted(scripts) + (FILE if old is None else _substitute(scripts, old)))
        return ""
    extended = options.has("E", "r", "regexp-extended")
    quiet = options.has("n", "quiet", "silent")
    return _substitute(scripts, listed_part(text) if quiet else text, extended, quiet)


MAX_SCRIPT = 16_000
_SUBSTITUTE = (
    r"s(?P<d>[^\w\s\\])(?P<old>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<flags>[a-zA-Z0-9]*)"
)
_SED_SUB = rf"{_SUBSTITUTE}(?:\s+(?P<file>\S+))?"


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
    bare = re.sub(r"\s{9,}", lambda blanks: "\n" if "\n" in blanks[0] else " ", bare)  # each would be tried as a start
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


_SED_STEP = re.compile(
    rf"[\s;]*(?:(?P<first>{_SED_ADDRESS})(?:,(?P<last>\d+|\$))?)?\s*(?P<negated>!?)\s*"
    rf"(?:{_SUBSTITUTE}|y(?P<e>[^\w\s\\])(?P<old_set>.*?)(?P=e)(?P<new_set>.*?)(?P=e)|(?P<verb>[dpq]))\s*(?=[;\n]|$)"
)
Step = dict[str, str]


def _substitute(scripts: list[str], text: str, extended: bool = False, quiet: bool = False) -> str:
    """What sed makes of known text: substitutions, deletions and prints are followed, anything else is a disguise."""
    if taints(text) or not text:
        return text
    script, steps, at = "\n".join(scripts).strip("; \n"), [], 0
    while at < len(script):
        found = _SED_STEP.match(script, at)
        if not found or not bounded((found["old"] or "") + (found["first"] or ""), text):
            return DISGUISED
        steps.append({name: value or "" for name, value in found.groupdict().items()})
        at = found.end()
    try:
        lines = list(_edited(steps, text.splitlines(), extended, quiet))
    except (ValueError, IndexError, TimeoutError):
        return DISGUISED
    return clip("\n".join(lines)) + ("\n" if text.endswith("\n") and lines else "")


def _edited(steps: list[Step], lines: list[str], extended: bool, quiet: bool) -> Iterator[str]:
    patterns = functools.cache(lambda old: Pattern(classes(old) if extended else basic_regex(old)))
    for number, line in enumerate(lines, 1):
        ended = ""
        for step in steps:
            if not _addressed(step, number, len(lines), line, patterns):
                continue
            before = line
            if step["verb"] in ("d", "q"):
                ended = step["verb"]
                break
            if step["e"]:
                line = line.translate(str.maketrans(step["old_set"], step["new_set"]))
            elif not step["verb"]:
                count = 0 if "g" in step["flags"] else 1
                line = patterns(step["old"]).replaced(_replacement(step["new"]), line, count)
            if step["verb"] == "p" or ("p" in step["flags"] and line != before):
                yield line
        if ended != "d" and not quiet:
            yield line
        if ended == "q":
            return


def _addressed(step: Step, number: int, total: int, line: str, patterns: Callable[[str], Pattern]) -> bool:
    first, last = step["first"], step["last"]
    if first.startswith("/"):
        if last:
            raise ValueError("a range that begins with a pattern")
        hit = patterns(first.rstrip("I")[1:-1]).search(line) is not None
    else:
        begin, end = (total if place == "$" else int(place or 0) for place in (first, last or first))
        hit = not first or begin <= number <= end
    return hit != bool(step["negated"])


def _replacement(new: str) -> Callable[[Any], str]:
    if re.search(r"\\[ULEul]", new):
        raise ValueError("letters change their case")
    pieces = re.findall(r"\\.|.", new, re.S)

    def change(found: Any) -> str:
        special = {"&": found[0], "\\n": "\n", "\\t": "\t"}
        return "".join(
            special[p] if p in special else found[int(p[1])] or "" if p[1:].isdigit() else p[-1] for p in pieces
        )

    return change
