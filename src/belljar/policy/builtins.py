"""The shell's own commands: those that change the shell, and those that only print."""

import re
import shlex

from belljar.patterns import lazy_pattern

from .call import Call, program
from .expand import flat
from .files import locate
from .filters import clock
from .marks import ATOM, MAX_TEXT, SENSITIVE, UNKNOWN, has, known, solid, taints, unglob
from .paths import resolve
from .quoting import backslashes, whole

_SPEC = lazy_pattern(r"%(%|[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlLqjzt]*(?:\([^)]*\)T|[diouxXeEfFgGcsbq]))")


@program("cd pushd")
def _cd(call: Call) -> str:
    state, rest = call.state, [arg for arg in call.args if not re.fullmatch(r"-[LPe@n]+|--", arg)]
    target = rest[0] if rest else state.home()
    target = flat(state.env.get("OLDPWD", state.cwd)) if target == "-" else target
    state.env["OLDPWD"] = state.cwd
    unknown = target[:1] == UNKNOWN
    state.cwd = target if unknown else resolve(solid(target), state.cwd, state.links, state.home())
    return ""


@program("popd pwd")
def _pwd(call: Call) -> str:
    if call.name == "popd":
        call.state.cwd = flat(call.state.env.get("OLDPWD", call.state.cwd))
    return call.state.cwd + "\n" if call.name == "pwd" else ""


@program("echo")
def _echo(call: Call) -> str:
    args, flags = list(call.args), ""
    while args and re.fullmatch(r"-[neE]+", args[0]):
        flags += args.pop(0)
    text = " ".join(args)
    return (backslashes(text) if "e" in flags else text) + ("" if "n" in flags else "\n")


@program("printf")
def _printf(call: Call) -> str:
    args = list(call.args)
    name = args[1] if len(args) > 2 and args[0] == "-v" else ""
    args = args[2:] if name else args[1:] if args[:1] == ["--"] else args
    text = printf(args[0], args[1:]) if args else ""
    call.machine.set(name, text, call.state) if name else None
    return "" if name else text


def printf(template: str, args: list[str]) -> str:
    if not known(template):
        return taints(template + "".join(args)) or UNKNOWN
    out, pending = "", list(args)
    takes = any(spec != "%" for spec in _SPEC.findall(template))
    for _ in range(400):
        at = 0
        for spec in _SPEC.finditer(template):
            out += backslashes(template[at : spec.start()]) + ("%" if spec[1] == "%" else _one(spec[1], pending))
            at = spec.end()
        out += backslashes(template[at:])
        if not pending or not takes or len(out) > MAX_TEXT:
            break
    return out


def _one(spec: str, pending: list[str]) -> str:
    value, kind = (pending.pop(0) if pending else ""), spec[-1]
    if kind == "T":
        return clock(spec[spec.index("(") + 1 : -2])
    if kind in "sbqc":
        precision = re.search(r"\.(\d+)", spec)
        text = backslashes(value) if kind == "b" else value
        return text[: 1 if kind == "c" else whole(precision[1]) if precision else None]
    try:
        number = ord(value[1]) if value[:1] in "'\"" and len(value) > 1 else int(value or "0", 0)
        width = re.match(r"0(\d{1,2})", spec)
        return (f"{number:{kind}}" if kind in "xXo" else str(number)).zfill(int(width[1]) if width else 0)
    except (ValueError, IndexError):
        return ATOM


@program("export declare typeset local readonly")
def _declare(call: Call) -> str:
    for arg in call.args:
        name, equals, value = solid(arg).partition("=")
        if equals and not arg.startswith("-"):
            call.machine.set(name.rstrip("+"), unglob(value), call.state)
    return SENSITIVE if all(arg.startswith("-") for arg in call.args) else ""


@program("unset unalias")
def _unset(call: Call) -> str:
    for name in map(solid, call.args):
        for held in (call.state.aliases,) if call.name == "unalias" else (call.state.env, call.state.functions):
            held.pop(name, None)
    return ""


@program("set shift")
def _set(call: Call) -> str:
    args = list(call.args)
    if call.name == "shift":
        call.state.args = call.state.args[whole(args[0]) if args and args[0].isdecimal() else 1 :]
        return ""
    while args and re.fullmatch(r"[-+][A-Za-z]+", args[0]):
        args = args[2:] if args[0][-1] == "o" else args[1:]
    if args:
        call.state.args = args[1:] if args[0] in ("--", "-") else args
    return SENSITIVE if not call.args else ""


@program("read mapfile readarray")
def _read(call: Call) -> str:
    options = call.options("adnNptui" if call.name == "read" else "dnOsuCc")
    for line in call.feed.text.splitlines()[:8] if call.name != "read" and options.all("C") else []:
        call.shell(f"{options.get('C')} 0 {shlex.quote(line)}")
    feed = call.machine.source = call.state.feeds.get(solid(options.get("u")), call.feed)
    blanks = _separators(flat(call.state.env.get("IFS", " \t\n")))
    if call.name != "read" or "a" in options.values:
        name = options.get("a") or (options.rest[0] if options.rest else "MAPFILE")
        separator = options.get("d")[:1] or ("\0" if "d" in options.values else "\n")
        items = re.split(blanks, feed.text.strip()) if call.name == "read" else feed.text.split(separator)
        items = [UNKNOWN] * 4 if options.all("s", "O") else items
        call.machine.set(name, items[:64], call.state)
        return ""
    names, everything = options.rest or ["REPLY"], options.values.get("d") == [""]
    line = feed.take() if everything else feed.line() if feed.text else UNKNOWN
    line = line.partition(options.get("d")[:1] or ("\0" if everything else "\n"))[0]
    words = re.split(blanks, line.strip(), maxsplit=len(names) - 1) if len(names) > 1 else [line.strip()]
    words = words if known(line) else [taints(line) if not known(line[:1]) else line] * len(names)
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
    if not known(text):
        call.machine.run_suspects(call.state)
        if has(text, UNKNOWN) and not solid(text).strip(UNKNOWN + " \n"):
            call.emit("exec.unseen", text)
    return call.shell(text, same=True)


@program("source .")
def _source(call: Call) -> str:
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    return call.run_file(args[0], args[1:], same=True) if args else ""


@program("exec builtin command")
def _command(call: Call) -> str:
    options = call.options("a" if call.name == "exec" else "", posix=True)
    if options.has("v", "V"):
        return f"/usr/bin/{options.rest[0]}\n" if options.rest else ""
    name = solid(options.rest[0]) if options.rest else ""
    hidden = call.state.functions.pop(name, None)
    try:
        return call.run(options.rest, same=True)
    finally:
        call.state.functions.update({name: hidden} if hidden is not None else {})


@program("alias")
def _alias(call: Call) -> str:
    for arg in call.args:
        name, equals, value = solid(arg).partition("=")
        call.state.aliases.update({name: unglob(value)} if equals else {})
        own = value.split()[:1] == [name] and not re.search(r"[;&|`]|\$\(", value)  # ls='ls --color'
        if equals and call.is_program(name) and not own:  # it runs whenever that program is called
            call.shell(unglob(value))
    return ""


@program("trap")
def _trap(call: Call) -> str:
    args = call.args[1:] if call.args[:1] == ["--"] else call.args
    if len(args) > 1 and args[0] not in ("-", ""):
        call.machine.traps.append((unglob(args[0]), call.state))
    return ""


@program("getopts")
def _getopts(call: Call) -> str:
    """The value of an option may be any of the arguments."""
    given = [re.sub(r"^-\w(?=.)", "", arg) for arg in call.args[2:] or call.state.args]
    call.state.env["OPTARG"] = next((arg for arg in given if not arg.startswith("-")), UNKNOWN)
    call.machine.set(solid(call.args[1]), ATOM, call.state) if len(call.args) > 1 else None
    return ""


@program(
    "test [ : true false shopt return exit break continue wait jobs umask ulimit let fg bg disown history times caller "
    "sleep logout suspend help compgen"
)
def _quiet(call: Call) -> str:
    return SENSITIVE if call.name == "history" else ""


@program("which type whence whereis")
def _which(call: Call) -> str:
    return "".join(f"/usr/bin/{solid(arg)}\n" for arg in call.args if not arg.startswith("-"))


@program("env printenv")
def _env(call: Call) -> str:
    if call.name == "printenv":
        return flat(call.state.get(solid(call.args[0]))) if call.args else SENSITIVE
    options = call.options("uCS", ("unset", "chdir", "split-string", "block-signal", "ignore-signal"), posix=True)
    state, words, split = call.state.fork(), list(options.rest), options.get("S", "split-string")
    try:
        given = shlex.split(re.sub(r"\\[_tnrfv]", " ", unglob(split))) if split else []
        words = [re.sub(r"\$\{(\w+)\}", lambda m: solid(flat(call.state.get(m[1]))), word) for word in given] + words
    except ValueError:
        call.emit("text.unparseable", split)
    if options.get("C", "chdir"):
        state.cwd = locate(options.get("C", "chdir"), state)[0]
    while words and re.match(r"-$|[A-Za-z_]\w*=|BASH_FUNC", solid(words[0])):
        name, equals, value = solid(words.pop(0)).partition("=")
        call.machine.set(name, value, state, words[0] if words else "") if equals else None
    return call.machine.simple(words, state, call.feed) if words else SENSITIVE
