"""What programs print that transform text. Known text is really transformed; what is not known keeps its taint."""

import json
import re

from . import expressions
from .call import STDOUT, Call, Options
from .marks import ATOM, DISGUISED, FILE, NETWORK, SELF, STAR, UNKNOWN, has_glob, known, listed_part

from .marks import solid, taints, unglob  # isort: skip
from .paths import HOME
from .quoting import CLASSES, ansi_c, bounded, classes, whole
from .reading import FILTERS


def picked(text: str) -> str:
    """A listing of everything of which some is taken."""
    return text.replace(STAR, ATOM)


def _head(call: Call, options: Options, text: str) -> str:
    text = text.replace(SELF, "") or UNKNOWN if SELF in text else text
    count = options.get("n", "lines") or next((flag for flag in sorted(options.flags) if flag.isdigit()), "")
    size = count or options.get("c", "bytes")
    text = text if count[:1] == "+" else picked(text)
    if not known(text) or not re.fullmatch(r"\+?\d+", size):
        return text
    number, parts = whole(size), text.splitlines(True) if count else list(text)
    if call.name.endswith("head"):
        return "".join(parts[:number])
    return "".join(parts[number - 1 :] if size[0] == "+" else parts[-number or len(parts) :])


def _sorted(call: Call, options: Options, text: str) -> str:
    lines = sorted(text.splitlines(), reverse=options.has("r", "reverse"))
    return "".join(line + "\n" for line in lines) if known(text) else text


def _tr(call: Call, options: Options, text: str) -> str:
    text, sets = call.stdin, [unglob(word) for word in options.rest]
    if not known(text):
        return taints(text) if text.strip(ATOM + FILE + " \n") != "" else text
    if not sets or not all(known(word) for word in sets) or options.has("c", "C", "complement"):
        return DISGUISED
    first, second = (_tr_set(word) for word in ([*sets, ""])[:2])
    if options.has("d", "delete"):
        return "".join(one for one in text if one not in first)
    if not second:
        return re.sub(r"(.)\1+", lambda m: m[1] if m[1] in first else m[0], text, flags=re.S)
    second += second[-1:] * (len(first) - len(second))
    return text.translate({ord(a): b for a, b in reversed(list(zip(first, second, strict=False)))})


def _tr_set(text: str) -> str:
    def span(found: re.Match[str]) -> str:
        first, last = ord(found[1]), ord(found[2])
        return "".join(map(chr, range(first, min(last, first + 300) + 1))) if first <= last else found[0]

    text = re.sub(r"\[:(\w+):\]", lambda m: CLASSES.get(m[1], ""), text)
    return re.sub(r"(.)-(.)", span, ansi_c(text), flags=re.S)


def _cut(call: Call, options: Options, text: str) -> str:
    spec = unglob(options.get("c", "b", "f", "characters", "bytes", "fields"))
    delimiter, by_field = options.get("d", "delimiter") or "\t", bool(options.get("f", "fields"))
    joint, out = options.get("output-delimiter") or (delimiter if by_field else ""), ""
    for line in text.splitlines(True):
        if known(line):
            bare = line.rstrip("\n")
            out += joint.join(_chosen(bare.split(delimiter) if by_field else list(bare), spec)) + "\n"
        else:
            out += line if not taints(line).strip(ATOM + FILE) else taints(line)
    return out


def _chosen(items: list[str], spec: str) -> list[str]:
    chosen: list[str] = []
    for found in filter(None, (re.fullmatch(r"(\d*)(-?)(\d*)", part.strip()) for part in spec.split(",")[:200])):
        first = whole(found[1] or "1")
        chosen += items[first - 1 : whole(found[3]) if found[3] else len(items) if found[2] else first]
    return chosen


def _name(call: Call, options: Options, text: str) -> str:
    """basename, dirname, realpath, readlink."""
    path = unglob(solid(options.rest[0])) if options.rest else ""
    bare = path.rstrip("/")
    if call.name == "basename":
        return (bare.rsplit("/", 1)[-1] or "/").removesuffix("".join(options.rest[1:2])) + "\n"
    if call.name == "dirname":
        return ((bare.rsplit("/", 1)[0] or "/") if "/" in bare else "." if bare else "/") + "\n"
    return call.locate(path)[0] + "\n"


def _grep(call: Call, options: Options, text: str) -> str:
    if options.has("l", "files-with-matches", "files", "c", "count"):
        return ATOM + "\n"
    pattern, invert = unglob((options.all("e", "regexp") or options.rest or [""])[0]), options.has("v", "invert-match")
    if STAR in text:  # nearly all of it where the pattern says what to leave out, or only what a number looks like
        return text if invert or not pattern.strip("^.*[0-9]+$\\d") else picked(text)
    clear = listed_part(text)
    if not (known(clear) and clear and pattern) or not bounded(pattern, clear):
        return text or ATOM + "\n"
    pattern = classes(pattern)
    if expressions.fault(pattern):
        return text
    if options.has("o", "only-matching"):
        return "".join(one[0] + "\n" for one in expressions.found(pattern, clear) if one[0])
    return "".join(line for line in clear.splitlines(True) if bool(expressions.search(pattern, line)) != invert)


def clock(template: str) -> str:
    """What a time looks like in a format: the format's own text, and numbers nobody knows."""
    return re.sub(r"%[-_0^#+:]*[A-Za-z]", ATOM, template) or ATOM


def _listing(call: Call, options: Options, text: str) -> str:
    """Names: all of a directory's (an active *), or those of a pattern."""
    paths = options.rest
    if options.has("d", "directory") or any(has_glob(path) for path in paths):
        return "".join((path if path.strip(STAR + "/.") == "" else picked(path)) + "\n" for path in paths)
    return STAR + "\n"


def _mktemp(call: Call, options: Options, text: str) -> str:
    template = re.sub(r"X{3,}", ATOM, options.rest[0]) if options.rest else f"tmp.{ATOM}"
    return (template if template.startswith("/") else f"{options.get('p', 'tmpdir') or '/tmp'}/{template}") + "\n"


def _jq(call: Call, options: Options, text: str) -> str:
    """A literal, a field: the rest of the language is text in another shape."""
    program, given = unglob(options.rest[0]) if options.rest else ".", taints("".join(call.args)).replace(ATOM, "")
    literal = re.fullmatch(r'\s*"([^"\\]*)"\s*', program)
    if literal:
        return literal[1] + "\n"
    if options.has("n", "null-input"):
        return DISGUISED if re.search(r'" *\+|\+ *"|@base64d|implode', program) else given or FILE
    if not known(text):
        return (taints(text) if "@sh" in program else taints(text).replace(FILE, UNKNOWN)) + given + "\n"
    try:
        held = json.loads(text)[program.strip().lstrip(".")]
        return f"{held}\n" if isinstance(held, str | int) else DISGUISED
    except (ValueError, LookupError, TypeError, RecursionError):
        return text if program.strip() in (".", "") else DISGUISED if text.strip() else ATOM + "\n"


def _fetched(call: Call, options: Options, text: str) -> str:
    """curl prints what it fetched, unless it goes to files."""
    named = options.has("O", "remote-name", "remote-name-all", "J") or {*options.all("o", "output")} - {*STDOUT}
    return ATOM if named else text or NETWORK


def _getent(call: Call, options: Options, text: str) -> str:
    text, key = call.read(f"/etc/{solid(''.join(call.args[:1]))}"), solid("".join(call.args[1:2]))
    lines = [line for line in text.split("\n") if key in line or (not known(key) and HOME in line)]
    return "".join(line + "\n" for line in lines) or FILE


FILTERS.update({
    "head": _head, "sorted": _sorted, "tr": _tr, "cut": _cut, "name": _name, "grep": _grep, "listing": _listing,
    "mktemp": _mktemp, "jq": _jq, "fetched": _fetched, "getent": _getent,
    "disguised": lambda call, options, text: DISGUISED if text and known(text) else text,
    "tac": lambda call, options, text: "".join(reversed(text.splitlines(True))) if known(text) else text,
    "rev": lambda call, options, text:
        "".join(line[::-1] + "\n" for line in text.splitlines()) if known(text) else taints(text),
    "yes": lambda call, options, text: (unglob(" ".join(call.args)) or "y") + "\n" + SELF,
    "envsubst": lambda call, options, text: re.sub(r"\$\{?(\w+)\}?", lambda m: str(call.state.get(m[1])), call.stdin),
    "date": lambda call, options, text:
        clock(next((unglob(arg[1:]) for arg in call.args if arg.startswith("+")), "")) + "\n",
    "wget": lambda call, options, text:
        text or NETWORK if options.get("O", "output-document") in STDOUT else ATOM,
})  # fmt: skip
