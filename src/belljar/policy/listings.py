"""Programs that print facts: names, numbers, processes, fields of a document."""

import re

from .builtins import clock
from .call import Call, program
from .encodings import _decoded, _inputs, _loose_base64
from .marks import ATOM, DISGUISED, FILE, SECRET, SENSITIVE, STAR, UNKNOWN, has_glob, known, taints, unglob
from .paths import WORKSPACE
from .quoting import Pattern, ansi_c, basic_regex, bounded, listed, whole
from .shellstate import BASE_ENV


@program(
    "date id whoami hostname uname nproc wc stat md5sum sha256sum sha1sum sha512sum cksum du "
    "df findmnt uuidgen expr bc tty getconf pgrep pidof lsof ls dir vdir exa eza lsd jq yq factor numfmt "
    "b2sum file tput locale who w uptime free vmstat lscpu lsblk nm ldd objdump readelf diff "
    "cmp colordiff ps groups logname users fd fdfind tree sha224sum shasum md5 cloc tokei scc"
)
def _atoms(call: Call) -> str | None:
    options = call.options(
        "dIDtTfxXE" if call.name in ("fd", "fdfind") else "",
        ("args", "arg", "argjson", "slurpfile", "rawfile", "exec", "exec-batch"),
    )
    if call.name == "date" and any(arg.startswith(("-s", "--set")) for arg in call.args):
        call.emit("kernel.clock")
    if call.name == "date":
        return clock(next((unglob(arg[1:]) for arg in call.args if arg.startswith("+")), "")) + "\n"
    if call.name in ("whoami", "logname") or (
        call.name == "id" and options.has("n", "name") and options.has("u", "user")
    ):
        return BASE_ENV["USER"] + "\n"
    if call.name in ("df", "lsblk", "findmnt"):
        column = re.search(r"(?i)\b(?:(target|mountpoints?)|source|k?name|path)\b", " ".join(call.args))
        rows = [("/dev/sda", *[ATOM] * 4, place) for place in ("/", WORKSPACE)]
        return "".join(f"{' '.join(row) if not column else row[-1 if column[1] else 0]}\n" for row in rows)
    if call.name == "bc" and known(call.stdin):
        return ansi_c("".join(re.findall(r'"([^"]*)"', call.stdin))) or ATOM + "\n"
    if call.name == "hostname" and options.rest and not options.flags:
        call.emit("kernel.clock")
    if call.name in ("fd", "fdfind"):
        return _fd(call)
    if call.name in ("ls", "dir", "vdir", "exa", "eza", "lsd", "tree"):
        return _ls(call, options.rest, options.has("d", "directory"))
    if call.name == "ps":
        return _ps(call)
    if call.name == "pgrep":
        return (
            STAR
            if options.has("v", "inverse") or (options.rest and not unglob(options.rest[-1]).strip(".*^$"))
            else ATOM + "\n"
        )
    if call.name == "lsof" and any(
        call.locate(path)[1] in ("root", "system") for path in options.rest if path[:1] == "/"
    ):
        return STAR + "\n"
    if call.name == "pidof" and {"init", "systemd"} & set(options.rest):
        return "1\n"
    if call.name in ("expr",):
        return _expr([unglob(arg) for arg in call.args])
    if call.name in ("jq", "yq"):
        named = {
            at + 2 for at, arg in enumerate(call.args) if arg in ("--arg", "--argjson", "--slurpfile", "--rawfile")
        }
        values = [call.args[at] for at in named if at < len(call.args)]
        return _jq(call, [word for word in options.rest if word not in values], options.has("n", "null-input"))
    if call.name in listed(
        "wc md5sum sha256sum sha1sum sha512sum diff cmp file stat cksum b2sum colordiff strings shasum"
    ):
        for path in options.rest:
            kind = call.locate(path)[1]
            if kind == "secret" and call.name in ("diff", "cmp", "colordiff"):
                call.read(path)
    return ATOM + "\n"


def _ps(call: Call) -> str:
    """All processes; the BSD option `e` shows their environments too."""
    values = {
        index + 1
        for index, arg in enumerate(call.args)
        if arg in listed("-o -p -C -u -U --sort -t -g o -O --format --pid --ppid -eo -Ao -axo axo -ao")
    }
    if any(
        re.fullmatch(r"[a-zA-Z]*e[a-zA-Z]*", arg)
        for index, arg in enumerate(call.args)
        if index not in values and not arg.endswith("o")
    ):
        call.machine.emit("read", "the environment of other processes", "secret", program="ps")
    one = any(arg.startswith(("-p", "--pid", "-C")) or not known(arg) or arg.isdigit() for arg in call.args)
    return ATOM + "\n" if one else STAR + "\n"


def _ls(call: Call, paths: list[str], itself: bool) -> str:
    """Names: all of a directory's (an active *), or those of a pattern."""
    if itself or any(has_glob(path) for path in paths):
        return "".join((path if path.strip(STAR + "/.") == "" else path.replace(STAR, ATOM)) + "\n" for path in paths)
    return STAR + "\n"


def _fd(call: Call) -> str:
    from .compound import Feed

    options = call.options(
        "ecEdtSxXoj", ("exclude", "type", "extension", "max-depth", "exec", "exec-batch", "color"), posix=False
    )
    pattern = unglob(options.rest[0]) if options.rest else "."
    root = options.rest[1] if len(options.rest) > 1 and "-x" not in call.args[:1] else "."
    found = (
        root
        if not pattern.strip(".*^$") and not set(options.values) - {"x", "X", "exec", "exec-batch"}
        else f"{root.rstrip('/')}/{ATOM}/{ATOM}"
    )
    words = call.args
    for flag in ("-x", "--exec", "-X", "--exec-batch"):
        if flag in words:
            call.run(
                [word.replace("{}", found) for word in words[words.index(flag) + 1 :]]
                + ([found] if "{}" not in words else []),
                Feed(),
            )
    return found + "\n"


def _expr(args: list[str]) -> str:
    if len(args) == 4 and args[0] == "substr" and args[2].isdecimal() and args[3].isdecimal() and known(args[1]):
        return args[1][whole(args[2]) - 1 : whole(args[2]) - 1 + whole(args[3])] + "\n"
    if len(args) == 3 and args[1] == ":" and known("".join(args)) and bounded(args[2], args[0]):
        return _expr_match(args[0], args[2]) + "\n"
    return ATOM + "\n"


def _expr_match(text: str, pattern: str) -> str:
    try:
        found = Pattern(rf"\A(?:{basic_regex(pattern)})").search(text)
    except (ValueError, TimeoutError):
        return DISGUISED
    return str(found[1]) if found and found.groups() else ATOM


def _jq(call: Call, rest: list[str], alone: bool) -> str:
    """jq can print what its program holds as text; apart from that it picks from its input (`alone`: it has none)."""
    if not rest:
        return call.stdin
    program_text = unglob(rest[0])
    text = _inputs(call, rest[1:]) if rest[1:] else call.stdin
    literal = re.fullmatch(r'\s*"((?:[^"\\]|\\.)*)"\s*(\|\s*@base64d)?\s*', program_text)
    if literal:
        body = ansi_c(literal[1].replace("\\/", "/")) if known(literal[1]) else literal[1]
        return (_decoded(body, _loose_base64) if literal[2] else body) + "\n"
    quoted = re.search(r'(@sh\s*)?"((?:[^"\\]|\\.)*)"\s*$', program_text)
    if quoted and (quoted[1] or "@sh" in quoted[2]) and "\\(" in quoted[2]:
        hole = r"\\\([^()]*(?:\([^()]*\)[^()]*)*\)"
        words = re.sub(hole, DISGUISED if alone else UNKNOWN, re.sub(rf"{hole}(?==)", "name", quoted[2]))
        return ansi_c(words.replace("\\/", "/")) + "\n"
    if "@base64d" in program_text:
        return _decoded(text.strip().strip('"'), _loose_base64)
    if known(text) and text:
        plain = re.fullmatch(r"\.(\w*)", program_text.strip())
        return _json_field(text, plain[1]) if plain else DISGUISED
    made = "".join(f'"x": "{literal}"\n' for literal in re.findall(r'=\s*"((?:[^"\\]|\\.)*)"', program_text))
    made += "".join(mark for mark in (SECRET, SENSITIVE) if mark in "".join(call.args))
    return made + (DISGUISED if alone else taints(text).replace(FILE, UNKNOWN) or UNKNOWN)


def _json_field(text: str, name: str) -> str:
    import json

    try:
        value = json.loads(text)
        value = value[name] if name else value
    except (ValueError, KeyError, TypeError, RecursionError):
        return DISGUISED
    return value + "\n" if isinstance(value, str) else json.dumps(value) + "\n"
