"""The shell's own commands: those that change the shell, and those that only print."""

import re
import shlex

from .arithmetic import truth
from .call import Call, program
from .expand import flat
from .files import locate
from .filters import clock
from .marks import ATOM, MAX_TEXT, SENSITIVE, STAR, UNKNOWN, has, known, show, solid, taints, unglob
from .paths import resolve
from .quoting import backslashes, whole


@program("cd pushd")
def _cd(call: Call) -> str:
    rest = [arg for arg in call.args if not re.fullmatch(r"-[LPe@n]+|--", arg)]
    target = rest[0] if rest else call.state.home()
    if target == "-":
        target = flat(call.state.env.get("OLDPWD", call.state.cwd))
    call.state.env["OLDPWD"] = call.state.cwd
    search = call.state.env.get("CDPATH", "")
    if isinstance(search, str) and search and not target.startswith(("/", ".")):
        target = f"{search.split(':')[0]}/{target}"
    call.state.cwd = (
        target if target[:1] == UNKNOWN else resolve(solid(target), call.state.cwd, call.state.links, call.state.home())
    )
    return ""


@program("popd")
def _popd(call: Call) -> str:
    call.state.cwd = flat(call.state.env.get("OLDPWD", call.state.cwd))
    return ""


@program("pwd")
def _pwd(call: Call) -> str:
    return call.state.cwd + "\n"


@program("echo")
def _echo(call: Call) -> str:
    args, flags = list(call.args), ""
    while args and re.fullmatch(r"-[neE]+", args[0]):
        flags += args.pop(0)
    text = " ".join(args)
    return (backslashes(text) if "e" in flags else text) + ("" if "n" in flags else "\n")


@program("printf")
def _printf(call: Call) -> str:
    _subscripts(call)
    args = list(call.args)
    name = args[1] if len(args) > 2 and args[0] == "-v" else ""
    args = args[2:] if name else args
    args = args[1:] if args[:1] == ["--"] else args
    text = printf(args[0], args[1:]) if args else ""
    if name:
        call.machine.set(name, text, call.state)
        return ""
    return text


_SPEC = re.compile(r"%(%|[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlLqjzt]*(?:\([^)]*\)T|[diouxXeEfFgGcsbq]))")


def printf(template: str, args: list[str]) -> str:
    if not known(template):
        return taints(template + "".join(args)) or UNKNOWN
    out, pending = "", list(args)
    specs = [spec for spec in _SPEC.findall(template) if spec != "%"]
    for _ in range(400):
        out += _once(template, pending)
        if not pending or not specs or len(out) > MAX_TEXT:
            break
    return out


def _once(template: str, pending: list[str]) -> str:
    pieces, at = [], 0
    for spec in _SPEC.finditer(template):
        pieces.append(backslashes(template[at : spec.start()]))
        pieces.append("%" if spec[1] == "%" else _one(spec[1], pending))
        at = spec.end()
    return "".join([*pieces, backslashes(template[at:])])


def _one(spec: str, pending: list[str]) -> str:
    if "*" in spec and pending:
        spec = spec.replace("*", pending.pop(0), 1)
    value, kind = (pending.pop(0) if pending else ""), spec[-1]
    if kind == "T":
        return clock(spec[spec.index("(") + 1 : -2])
    if kind in "sbq":
        text = backslashes(value) if kind == "b" else value
        precision = re.search(r"\.(\d+)", spec)
        return text[: whole(precision[1])] if precision else text
    if kind == "c":
        return value[:1]
    try:
        number = ord(value[1]) if value[:1] in "'\"" and len(value) > 1 else int(value or "0", 0)
        width = re.match(r"0(\d{1,2})", spec)
        text = {"x": f"{number:x}", "X": f"{number:X}", "o": f"{number:o}"}.get(kind, str(number))
        return text.zfill(int(width[1])) if width else text
    except (ValueError, IndexError):
        return ATOM


@program("export declare typeset local readonly")
def _declare(call: Call) -> str:
    _subscripts(call)
    reference = any(re.fullmatch(r"-\w*n\w*", arg) for arg in call.args) and call.name != "export"
    for arg in call.args:
        name, equals, value = solid(arg).partition("=")
        if equals and not arg.startswith("-"):
            call.machine.set(name.rstrip("+"), "\0" + value if reference else unglob(value), call.state)
    bare = not [arg for arg in call.args if not arg.startswith("-")]
    return SENSITIVE if bare else ""


@program("unset")
def _unset(call: Call) -> str:
    _subscripts(call)
    for arg in call.args:
        call.state.env.pop(solid(arg), None)
        call.state.functions.pop(solid(arg), None)
    return ""


@program("set")
def _set(call: Call) -> str:
    args = list(call.args)
    if not args:
        return SENSITIVE
    while args and re.fullmatch(r"[-+][A-Za-z]+", args[0]):
        args = args[2:] if args[0][-1] == "o" else args[1:]
    if args and args[0] in ("--", "-"):
        call.state.args = args[1:]
    elif args:
        call.state.args = args
    return ""


@program("shift")
def _shift(call: Call) -> str:
    count = whole(call.args[0]) if call.args and call.args[0].isdecimal() else 1
    call.state.args = call.state.args[count:]
    return ""


@program("read mapfile readarray")
def _read(call: Call) -> str:
    _subscripts(call)
    options = call.options("adnNptui" if call.name == "read" else "dnOsuCc")
    for line in call.feed.text.splitlines()[:8] if call.name != "read" and options.all("C") else []:
        call.shell(f"{options.get('C')} 0 {shlex.quote(line)}")
    feed = call.machine.source = call.state.feeds.get(solid(options.get("u")), call.feed)
    ifs = flat(call.state.env.get("IFS", " \t\n"))
    if call.name != "read" or "a" in options.values:
        name = options.get("a") or (options.rest[0] if options.rest else "MAPFILE")
        separator = options.get("d")[:1] or ("\0" if "d" in options.values else "\n")
        items = re.split(_separators(ifs), feed.text.strip()) if call.name == "read" else feed.text.split(separator)
        skip, origin = (int(n) if n.isdecimal() and len(n) < 4 else 0 for n in (options.get("s"), options.get("O")))
        call.machine.set(name, [""] * origin + items[skip:64], call.state)
        return ""
    names = options.rest or ["REPLY"]
    whole = options.values.get("d") == [""]  # up to a NUL, that is everything
    line = feed.take() if whole else feed.line() if feed.text else UNKNOWN
    count = options.get("n", "N")
    line = line.partition(options.get("d")[:1] or ("\0" if whole else "\n"))[0][
        : int(count) if count.isdigit() else None
    ]
    words = re.split(_separators(ifs), line.strip(), maxsplit=len(names) - 1) if len(names) > 1 else [line.strip()]
    if not known(line):
        words = [taints(line) if not known(line[:1]) else line] * len(names)
    for name, word in zip(names, words + [""] * len(names), strict=False):
        call.machine.set(solid(name), word, call.state)
    return ""


def _separators(ifs: str) -> str:
    """What cuts fields: blanks of IFS together are one cut, any other character is one by itself."""
    blank = f"[\0{''.join(char for char in ifs if char.isspace())}]"
    return f"{blank}*[\1{re.escape(''.join(ifs.split()))}]{blank}*|{blank}+"


@program("eval")
def _eval(call: Call) -> str:
    text = unglob(" ".join(call.args))
    _unseen(call, text)
    return call.shell(text, same=True)


def _unseen(call: Call, text: str) -> None:
    if not known(text):
        call.machine.run_suspects(call.state)
    if solid(text) and not known(text) and has(text, UNKNOWN) and not solid(text).strip(UNKNOWN + " \n"):
        call.emit("exec.unseen", text)


@program("source .")
def _source(call: Call) -> str:
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    return call.run_file(args[0], args[1:], same=True) if args else ""


@program("exec")
def _exec(call: Call) -> str:
    options = call.options("a", posix=True)
    return call.run(options.rest)


@program("builtin command")
def _command(call: Call) -> str:
    options = call.options(posix=True)
    if options.has("v", "V"):
        return f"/usr/bin/{options.rest[0]}\n" if options.rest else ""
    name = solid(options.rest[0]) if options.rest else ""
    hidden = call.state.functions.pop(name, None)
    try:
        return call.run(options.rest, same=True)
    finally:
        if hidden is not None:
            call.state.functions[name] = hidden


@program("alias")
def _alias(call: Call) -> str:
    for arg in call.args:
        name, equals, value = solid(arg).partition("=")
        if equals:
            call.state.aliases[name] = unglob(value)
            if name in ("sudo", "ssh", "su", "git", "ls", "cd") and re.search(r"[;|&]|\$\(|/tmp/", value):
                call.emit("persist.env", f"alias {show(arg)}")
    return ""


@program("unalias")
def _unalias(call: Call) -> str:
    for arg in call.args:
        call.state.aliases.pop(solid(arg), None)
    return ""


@program("trap")
def _trap(call: Call) -> str:
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    if len(args) > 1 and args[0] not in ("-", ""):
        call.machine.traps.append((unglob(args[0]), call.state))
    return ""


@program("hash enable complete bind")
def _hash(call: Call) -> str:
    options = call.options("pfCFx")
    if call.name == "hash" and "p" in options.values:
        for name in options.rest:
            call.state.aliases[solid(name)] = options.get("p")
        if not re.match(r"/(usr/)?(local/)?s?bin/", options.get("p")):
            call.emit("persist.env", f"hash -p {options.get('p')}")
    elif call.name == "enable" and "f" in options.values:
        call.emit("persist.env", f"enable -f {options.get('f')}")
    elif call.name in ("complete", "bind") and options.all("C", "x"):
        call.shell(options.get("C", "x").partition(":")[2] if call.name == "bind" else options.get("C"))
        if call.locate(options.get("C"))[1] == "scratch":
            call.emit("persist.env", f"complete -C {options.get('C')}")
    return ""


@program("fc")
def _fc(call: Call) -> str:
    if call.args[:1] in (["-s"], ["-e"]):
        call.machine.run_suspects(call.state)
    return ""


@program("getopts")
def _getopts(call: Call) -> str:
    """The next option of the arguments: its letter, and in OPTARG its value."""
    given, state = call.args[2:] or call.state.args, call.state
    at = flat(state.env.get("OPTIND", "1"))
    word = given[whole(at) - 1] if at.isdecimal() and 0 < whole(at) <= len(given) else ""
    takes = re.search(rf"{re.escape(word[1:2])}:", solid(call.args[0])) if word[1:2] and call.args else None
    value = word[2:] or (given[whole(at)] if takes and whole(at) < len(given) else "")
    state.env["OPTARG"] = value if takes else UNKNOWN
    state.env["OPTIND"] = str(whole(at) + (2 if takes and not word[2:] else 1)) if word else at
    call.machine.set(solid(call.args[1]), word[1:2] or ATOM, state) if len(call.args) > 1 else None
    return ""


@program(
    "test [ : true false shopt return exit break continue wait jobs umask ulimit let "
    "fg bg disown history times caller sleep logout suspend help"
)
def _quiet(call: Call) -> str:
    _subscripts(call)
    call.machine.truth = truth([word for word in call.args if word != "]"]) if call.name in ("[", "test") else None
    return ""


def _subscripts(call: Call) -> None:
    for arg in call.args:
        if re.match(r"\w+\[", arg):
            call.machine.run_subscripts(arg, call.state)


@program("compgen")
def _compgen(call: Call) -> str | None:
    options = call.options("AGWFCXPS")
    if options.all("G"):
        return options.get("G").replace("*", STAR) + "\n"
    for text in options.all("W", "C"):
        call.machine.run_subscripts(text, call.state)
    for text in options.all("C"):
        call.shell(text)
    return None


@program("which type whence whereis")
def _which(call: Call) -> str:
    return "".join(f"/usr/bin/{solid(arg)}\n" for arg in call.args if not arg.startswith("-"))


@program("env printenv")
def _env(call: Call) -> str:
    if call.name == "printenv":
        return flat(call.state.get(solid(call.args[0]))) if call.args else SENSITIVE
    options = call.options("uCS", ("unset", "chdir", "split-string", "block-signal", "ignore-signal"), posix=True)
    state = call.state.fork()
    words = list(options.rest)
    split = options.get("S", "split-string")
    if split:
        try:
            words = shlex.split(re.sub(r"\\[_tnrfv]", " ", unglob(split))) + words
            words = [re.sub(r"\$\{(\w+)\}", lambda m: solid(flat(call.state.get(m[1]))), word) for word in words]
        except ValueError:
            call.emit("text.unparseable", split)
    if options.get("C", "chdir"):
        state.cwd = locate(options.get("C", "chdir"), state)[0]
    while words and re.match(r"-$|[A-Za-z_]\w*=|BASH_FUNC", solid(words[0])):
        name, equals, value = solid(words.pop(0)).partition("=")
        call.machine.set(name, value, state, words[0] if words else "") if equals else None
    if not words:
        return SENSITIVE
    call.state, outer = state, call.state
    try:
        return call.run(words)
    finally:
        call.state = outer
