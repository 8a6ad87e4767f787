"""Programs that print and transform text. Known text is really transformed; what is not known keeps its taint."""

import re
from itertools import zip_longest

from .call import Call, program
from .encodings import _inputs
from .marks import ATOM, DISGUISED, FILE, SECRET, SELF, STAR, UNKNOWN, known, listed_part, solid, taints, unglob
from .quoting import Pattern, ansi_c, bounded, listed, whole


@program(
    "cat tac bat batcat gcat less more view most pg nl head tail strings fold fmt expand unexpand column pr ghead gtail"
)
def _cat(call: Call) -> str:
    options = call.options(
        "ncw" if call.name in ("head", "tail", "fold") else "", ("lines", "bytes", "language", "style")
    )
    rest = [path for path in options.rest if not (call.name in ("head", "tail") and re.fullmatch(r"\+?\d+", path))]
    for command in [arg[2:] for arg in call.args if arg.startswith("+!")]:
        call.shell(command)
    text = _inputs(call, [path for path in rest if not path.startswith("+")])
    if call.name in ("nl", "pr", "column", "fmt", "fold") and text and known(text):
        return _laid_out(call.name, text, options.get("w"))
    if call.name == "head" and text.rstrip(SELF) != text and known(text.rstrip(SELF)):
        text = text.rstrip(SELF)
    if call.name in ("head", "tail") and not re.search(r"(^|\s)(-n\s*)?\+\d", " ".join(call.args)):
        text = text.replace(STAR, ATOM)
    if call.name == "tac" and known(text):
        return "".join(reversed(text.splitlines(True)))
    count = options.get("n", "lines") or next((flag for flag in sorted(options.flags) if flag.isdigit()), "")
    if call.name in ("head", "tail") and known(text) and re.fullmatch(r"\+?\d+", count):
        lines, number = text.splitlines(True), whole(count)
        return "".join(
            lines[:number]
            if call.name == "head"
            else lines[number - 1 :]
            if count[0] == "+"
            else lines[-number or len(lines) :]
        )
    size = options.get("c", "bytes")
    if call.name in ("head", "tail") and known(text) and re.fullmatch(r"\+?\d+", size):
        return (
            text[: whole(size)]
            if call.name == "head"
            else text[whole(size) - 1 :]
            if size[0] == "+"
            else text[-whole(size) :]
        )
    if call.name in ("head", "tail") and SELF in text:
        return text.replace(SELF, "") or UNKNOWN
    return UNKNOWN if call.name == "strings" and FILE in text else text


def _laid_out(name: str, text: str, width: str) -> str:
    lines = text.splitlines()
    if name == "nl":
        lines = [f"{number:6}\t{line}" for number, line in enumerate(lines, 1)]
    elif name == "fold" and width.isdecimal() and whole(width):
        lines = [line[at : at + whole(width)] for line in lines for at in range(0, len(line), whole(width))]
    elif name == "column":
        lines = ["  ".join(line.split()) for line in lines]
    else:
        return DISGUISED
    return "\n".join(lines) + "\n"


@program("rev")
def _rev(call: Call) -> str:
    text = _inputs(call, call.options().rest)
    return "".join(line.rstrip("\n")[::-1] + "\n" for line in text.splitlines(True)) if known(text) else taints(text)


@program("sort uniq shuf comm join paste gsort")
def _lines(call: Call) -> str:
    options = call.options(
        {"sort": "koStT", "uniq": "fsw", "shuf": "nioe", "paste": "d", "join": "12taeoj"}.get(call.name, ""),
        ("output", "key", "field-separator", "compress-program", "delimiters"),
    )
    if options.get("compress-program"):
        call.emit("exec.hidden", options.get("compress-program")) if options.get("compress-program") not in listed(
            "gzip zstd xz bzip2 lz4 pigz"
        ) else None
        call.shell(options.get("compress-program"))
    text = _inputs(call, options.rest)
    joint = ansi_c((options.all("d", "delimiters") or ["\t"])[-1])
    if call.name == "paste" and len(options.rest) > 1 and known(text) and not options.has("s", "serial"):
        columns = [call.read(path).splitlines() for path in options.rest]
        return "".join(joint.join(row) + "\n" for row in zip_longest(*columns, fillvalue=""))
    if options.get("o", "output"):
        call.write(options.get("o", "output"), text)
    if known(text) and call.name == "sort":
        lines = sorted(
            set(text.splitlines()) if options.has("u", "unique") else text.splitlines(),
            reverse=options.has("r", "reverse"),
        )
        return "".join(line + "\n" for line in lines)
    if known(text) and call.name == "paste" and options.has("s", "serial"):
        return joint.join(text.splitlines()) + "\n" if len(joint) < 2 else DISGUISED
    return DISGUISED if call.name == "join" and known(text) and text else text


@program("tr gtr")
def _tr(call: Call) -> str:
    options = call.options()
    text, sets = call.stdin, [unglob(word) for word in options.rest]
    if not known(text):
        return taints(text) if text.strip(ATOM + FILE + " \n") != "" else text
    if not sets or not all(known(word) for word in sets):
        return DISGUISED
    first, second = (_tr_set(word) for word in ([*sets, ""])[:2])
    if options.has("c", "C", "complement"):
        keep = "".join(char for char in text if char in first)
        return keep if options.has("d", "delete") else "".join(char if char in first else second[-1:] for char in text)
    if options.has("d", "delete"):
        return "".join(char for char in text if char not in first)
    if not second:
        return re.sub(r"(.)\1+", lambda m: m[1] if m[1] in first else m[0], text, flags=re.S)
    return translate(text, *sets[:2])


def translate(text: str, old: str, new: str) -> str:
    first, second = _tr_set(old), _tr_set(new)
    second += second[-1:] * (len(first) - len(second))
    return text.translate({ord(a): b for a, b in reversed(list(zip(first, second, strict=False)))})


_TR_CLASSES = {
    "lower": "abcdefghijklmnopqrstuvwxyz",
    "upper": "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "digit": "0123456789",
    "space": " \t\n\r\f\v",
    "blank": " \t",
    "punct": "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
}
_TR_CLASSES["alpha"] = _TR_CLASSES["upper"] + _TR_CLASSES["lower"]
_TR_CLASSES["alnum"] = _TR_CLASSES["digit"] + _TR_CLASSES["alpha"]


def _tr_set(text: str) -> str:
    text = re.sub(r"\[:(\w+):\]", lambda m: _TR_CLASSES.get(m[1], ""), text)
    text = ansi_c(text)
    return re.sub(
        r"(.)-(.)",
        lambda m: "".join(map(chr, range(ord(m[1]), min(ord(m[2]), ord(m[1]) + 300) + 1))) if m[1] <= m[2] else m[0],
        text,
        flags=re.S,
    )


@program("cut gcut")
def _cut(call: Call) -> str:
    options = call.options("cdfb", ("characters", "delimiter", "fields", "bytes", "output-delimiter"))
    text = _inputs(call, options.rest)
    spec = unglob(options.get("c", "b", "f", "characters", "bytes", "fields"))
    delimiter = options.get("d", "delimiter") or "\t"
    by_field = bool(options.get("f", "fields"))
    joint = options.get("output-delimiter") or (delimiter if by_field else "")
    out = ""
    for line in text.splitlines(True):
        if not known(line):
            out += line if not taints(line).strip(ATOM + FILE) else taints(line)
            continue
        line = line.rstrip("\n")
        out += joint.join(_pick(line.split(delimiter) if by_field else list(line), spec)) + "\n"
    return out


def _pick(items: list[str], spec: str) -> list[str]:
    chosen: list[str] = []
    for part in spec.split(","):
        found = re.fullmatch(r"(\d*)(-?)(\d*)", part.strip())
        if found:
            first = whole(found[1] or "1")
            last = whole(found[3]) if found[3] else len(items) if found[2] else first
            chosen += items[first - 1 : last]
    return chosen


@program("seq gseq")
def _seq(call: Call) -> str:
    numbers = [whole(arg) for arg in call.args if re.fullmatch(r"-?\d+", arg)]
    if not 1 <= len(numbers) <= 3 or len(numbers) != len(call.args):
        return ATOM
    first, step, last = (
        (1, 1, numbers[0]) if len(numbers) == 1 else (numbers[0], 1, numbers[1]) if len(numbers) == 2 else numbers
    )
    span = range(first, last + (1 if step > 0 else -1), step or 1)
    few = span[:8] if span[200:] else span
    return "".join(f"{number}\n" for number in few) + (ATOM if few is not span else "")


@program("yes")
def _yes(call: Call) -> str:
    return (unglob(" ".join(call.args)) + "\n" if call.args else "y\n") + SELF


@program("basename dirname realpath readlink")
def _names(call: Call) -> str:
    options = call.options("s", ("suffix", "relative-to"))
    if not options.rest:
        return ""
    path = unglob(solid(options.rest[0]))
    if call.name == "basename":
        name = path.rstrip("/").rsplit("/", 1)[-1] or "/"
        return (name.removesuffix(options.rest[1]) if len(options.rest) > 1 else name) + "\n"
    if call.name == "dirname":
        return (
            ((path.rstrip("/").rsplit("/", 1)[0] or "/") if "/" in path.rstrip("/") else ".") + "\n"
            if path.strip("/")
            else "/\n"
        )
    return call.locate(path)[0] + "\n"


@program("grep egrep fgrep rg ag ack zgrep ggrep ugrep")
def _grep(call: Call) -> str:
    options = call.options(
        "efmABCgtTjdDM",
        listed(
            "regexp file include exclude exclude-dir glob type max-count context color after-context "
            "before-context pre type-not colors sort max-depth"
        ),
    )
    if options.get("pre"):
        call.emit("exec.hidden", options.get("pre"))
        call.shell(options.get("pre"))
    rest = options.rest if options.all("e", "regexp", "f", "file") else options.rest[1:]
    text = _inputs(call, rest) if rest else call.stdin
    for path in rest:
        full, kind, flags = call.locate(path)
        if (
            kind in ("home", "root")
            and "inner" not in flags
            and (options.has("r", "R", "recursive") or call.name in ("rg", "ag", "ack", "ugrep"))
            and re.search(r"(?i)key|secret|passw|token|BEGIN", " ".join(call.args))
        ):
            call.machine.emit("read", full, "secret", program=call.name)
            text = SECRET
    if options.has("l", "files-with-matches", "files") or options.has("c", "count"):
        return ATOM + "\n"
    if (
        STAR in text
        and not options.has("v", "invert-match")
        and unglob(options.rest[0] if options.rest else "").strip("^.*[0-9]+$")
    ):
        return text.replace(STAR, ATOM)
    clear = listed_part(text)
    if known(clear) and clear and options.rest and STAR not in text:
        return _matched(
            clear, unglob(options.rest[0]), options.has("v", "invert-match"), options.has("o", "only-matching")
        )
    return text or ATOM + "\n"


def _matched(text: str, pattern: str, invert: bool, only: bool) -> str:
    if not bounded(pattern, text):
        return text
    try:
        regex = Pattern(
            re.sub(
                r"\[\[:(\w+):\]\]",
                lambda m: {"alpha": "[a-zA-Z]", "digit": r"\d", "space": r"\s", "alnum": "[a-zA-Z0-9]"}.get(m[1], "."),
                pattern,
            )
        )
        if only:
            return "".join(found + "\n" for line in text.splitlines() for found in regex.found(line) if found)
        return "".join(line for line in text.splitlines(True) if bool(regex.search(line)) != invert)
    except (ValueError, TimeoutError):
        return text


@program("envsubst")
def _envsubst(call: Call) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda m: str(call.state.get(m[1])), call.stdin)
