"""sed: a script is cut into its commands; those that run, write and read are seen, known text is edited."""

import re
from dataclasses import dataclass
from functools import partial
from typing import Any

from .call import Call, program
from .machine import SUSPECT
from .marks import DISGUISED, FILE, UNKNOWN, clip, known, listed_part, taints, unglob
from .parser import TooComplex
from .quoting import Pattern, basic_regex, bounded, classes

MAX_SCRIPT = 16_000
_ADDRESS = r"(?:\d+(?:~\d+)?|\$|/(?:\\.|[^/\n])*/[IM]*|\\(?P<x>.)(?:\\.|(?!(?P=x)).)*(?P=x))"
_HEAD = re.compile(
    rf"[\s;{{}}]*(?P<first>{_ADDRESS})?(?:\s*,\s*(?P<last>[+~]?\d+|\$|/(?:\\.|[^/\n])*/[IM]*))?\s*(?P<not>!?)\s*"
)
_SUBSTITUTE = re.compile(
    r"(?P<verb>[sy])(?P<d>[^\n\\])(?P<old>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<new>(?:\\.|(?!(?P=d)).)*)(?P=d)(?P<flags>[a-vx-zA-Z0-9]*)"
    r"(?:w[ \t]*(?P<file>[^\n;}]+))?",
    re.S,
)
_TEXT = re.compile(r"(?P<verb>[aic])(?:\\\n|\\[ \t]*|[ \t]*)(?P<new>(?:\\\n|[^\n])*)")
_NAMED = re.compile(r"(?P<verb>[erRwW])(?![\w])[ \t]*(?P<new>[^\n;}]*)")
_OTHER = re.compile(r"(?P<verb>[dDgGhHlnNpPqQxz=bBtT:v#])(?P<new>[^\n;}]*)")


@dataclass(slots=True)
class Step:
    verb: str
    first: str = ""
    last: str = ""
    negated: bool = False
    old: str = ""
    new: str = ""
    flags: str = ""
    file: str = ""


@program("sed gsed")
def _sed(call: Call) -> str | None:
    options = call.options("efl", ("expression", "file", "line-length"))
    scripts, rest = options.all("e", "expression"), list(options.rest)
    if not scripts and not options.all("f", "file"):
        scripts, rest = rest[:1], rest[1:]
    for path in options.all("f", "file"):
        call.load(path)
        scripts += [call.machine.read_file(path, call.state) or ""]
    steps = parsed(unglob("\n".join(scripts)))
    text = "".join(call.read(path) for path in rest) if rest else call.stdin
    _effects(call, steps, text)
    if options.has("i", "in-place") or any(re.fullmatch(r"-[nrEsuz]*i.*", arg) for arg in call.args):
        for path in rest:
            old = call.machine.read_file(path, call.state)
            call.write(path, _inserted(steps) + (FILE if old is None else _edited(steps, old, True, False)))
        return ""
    quiet = options.has("n", "quiet", "silent")
    return _edited(steps, listed_part(text) if quiet else text, options.has("E", "r", "regexp-extended"), quiet)


def parsed(script: str) -> list[Step]:
    """The commands of a script; where it cannot be followed, one that stands for anything."""
    if len(script) > MAX_SCRIPT:
        raise TooComplex("its sed script is too long to judge; put it in a file")
    steps: list[Step] = []
    at = 0
    while script[at:].strip("; \n}"):
        head = _HEAD.match(script, at)
        at = head.end() if head else at
        found = next((one for shape in (_SUBSTITUTE, _TEXT, _NAMED, _OTHER) if (one := shape.match(script, at))), None)
        if head is None or found is None:
            return [*steps, Step("?")]
        given = {"file": "", "old": "", "flags": "", **{key: value or "" for key, value in found.groupdict().items()}}
        given.pop("d", None)
        steps.append(Step(first=head["first"] or "", last=head["last"] or "", negated=bool(head["not"]), **given))
        at = found.end()
    return steps


def _effects(call: Call, steps: list[Step], text: str) -> None:
    for step in steps:
        if step.verb == "s" and "e" in step.flags:
            plain = Step("s", old=step.old, new=step.new)
            call.shell(_edited([plain], text, False, False) if text and known(text) else step.new.replace("&", UNKNOWN))
        if step.file or (step.verb in "wW" and step.new.strip()):
            call.write((step.file or step.new).strip(), DISGUISED if len(steps) > 1 and known(text) else text)
        elif step.verb in "rR" and step.new.strip():
            call.read(step.new.strip())
        elif step.verb == "e":
            made = [one.new.replace("\\/", "/") for one in steps if one.verb == "s"]
            for command in [step.new] if step.new.strip() else [*made, text]:
                call.shell(command)


def _inserted(steps: list[Step]) -> str:
    """Lines that a script adds to a file: they run where the file is a script."""
    lines = [step.new.replace("\\/", "/") for step in steps if step.verb in ("a", "i", "c", "s")]
    return "".join(f"{line}\n" for line in lines if SUSPECT.match(line) or "import " in line)


def _edited(steps: list[Step], text: str, extended: bool, quiet: bool) -> str:
    """What sed makes of known text: substitutions, deletions and prints by line; anything else is a disguise."""
    if taints(text) or not text:
        return text
    lines, out = text.splitlines(), []
    simple = all(step.verb in ("s", "d", "p") and bounded(step.old + step.first, text) for step in steps)
    try:
        for number, line in enumerate(lines if simple else [], 1):
            out += _line([step for step in steps if _addressed(step, number, len(lines))], line, extended, quiet)
    except (ValueError, IndexError, TimeoutError):
        simple = False
    return clip("\n".join(out)) + ("\n" if text.endswith("\n") and out else "") if simple else DISGUISED


def _line(steps: list[Step], line: str, extended: bool, quiet: bool) -> list[str]:
    out: list[str] = []
    for step in steps:
        if step.verb == "d":
            return out
        before = line
        if step.verb == "s":
            pattern = Pattern(classes(step.old) if extended else basic_regex(step.old))
            line = pattern.replaced(partial(_replacement, step.new), line, 0 if "g" in step.flags else 1)
        if step.verb == "p" or ("p" in step.flags and line != before):
            out.append(line)
    return out if quiet else [*out, line]


def _addressed(step: Step, number: int, total: int) -> bool:
    begin, end = (total if place == "$" else int(place or 0) for place in (step.first, step.last or step.first))
    return (not step.first or begin <= number <= end) != step.negated


def _replacement(new: str, found: Any) -> str:
    if re.search(r"\\[ULEul]", new):
        raise ValueError("letters change their case")
    groups: list[str] = [found[0], *found.groups()]
    special = {"&": groups[0], "\\n": "\n", "\\t": "\t"}
    pieces = re.findall(r"\\.|.", new, re.S)
    return "".join(special.get(p) or (groups[int(p[1])] or "" if p[1:].isdigit() else p[-1]) for p in pieces)
