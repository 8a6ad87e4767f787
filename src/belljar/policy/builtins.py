"""Shells and their builtins."""

import re
import shlex

from belljar.patterns import lazy_pattern

from .call import PROGRAMS, Call, Options, program
from .expand import flat
from .files import locate
from .filters import clock
from .marks import ATOM, FILE, HIDDEN, MAX_TEXT, NETWORK, SENSITIVE, UNKNOWN, UNSET

from .marks import drop_unset, has, is_unseen, known, taints, unglob  # isort: skip
from .paths import resolve
from .quoting import backslashes, to_int
from .shellstate import Feed

_SPEC = lazy_pattern(
    r"%(%|[-+ #0']*(?:\*|\d+)?(?:\.(?:\*|\d+))?[hlLqjzt]*(?:\([^)]*\)T|[diouxXeEfFgGcsbq]))"
)


@program("cd pushd popd")
def _cd(call: Call) -> str:
    state = call.state
    rest = [arg for arg in call.args if not re.fullmatch(r"-[LPe@n]+|--", arg)]
    target = rest[0] if rest else state.home()
    target = (
        flat(state.env.get("OLDPWD", state.cwd))
        if target == "-" or call.name == "popd"
        else target
    )
    state.env["OLDPWD"] = state.cwd
    state.cwd = (
        target
        if target[:1] == UNKNOWN
        else resolve(drop_unset(target), state.cwd, state.links, state.home())
    )
    return ""


@program("echo")
def _echo(call: Call) -> str:
    args = list(call.args)
    flags = ""
    while args and re.fullmatch(r"-[neE]+", args[0]):
        flags += args.pop(0)
    text = " ".join(args)
    return (backslashes(text) if "e" in flags else text) + (
        "" if "n" in flags else "\n"
    )


@program("printf")
def _printf(call: Call) -> str:
    args = list(call.args)
    variable = ""
    if args and args[0].startswith("-v"):
        variable = args.pop(0)[2:] or (args.pop(0) if args else "")
    args = args[1:] if args[:1] == ["--"] else args
    text = printf(args[0], args[1:]) if args else ""
    if not variable:
        return text
    call.machine.set(variable, text, call.state)
    return ""


def printf(template: str, args: list[str]) -> str:
    if not known(template):
        return taints(template + "".join(args)) or UNKNOWN
    out = ""
    pending = list(args)
    takes = any(spec != "%" for spec in _SPEC.findall(template))
    for _ in range(400):
        at = 0
        for spec in _SPEC.finditer(template):
            out += backslashes(template[at : spec.start()]) + (
                "%" if spec[1] == "%" else _format_one(spec[1], pending)
            )
            at = spec.end()
        out += backslashes(template[at:])
        if not pending or not takes or len(out) > MAX_TEXT:
            break
    return out


def _format_one(spec: str, pending: list[str]) -> str:
    value = pending.pop(0) if pending else ""
    kind = spec[-1]
    if kind == "T":
        return clock(spec[spec.index("(") + 1 : -2])
    if kind in "sbqc":
        precision = re.search(r"\.(\d+)", spec)
        text = backslashes(value) if kind == "b" else value
        return text[: 1 if kind == "c" else to_int(precision[1]) if precision else None]
    try:
        number = (
            ord(value[1])
            if value[:1] in "'\"" and len(value) > 1
            else int(value or "0", 0)
        )
        width = re.match(r"0(\d{1,2})", spec)
        return (f"{number:{kind}}" if kind in "xXo" else str(number)).zfill(
            int(width[1]) if width else 0
        )
    except (ValueError, IndexError):
        return ATOM


@program("export declare typeset local readonly")
def _declare(call: Call) -> str:
    for arg in call.args:
        name, equals, value = drop_unset(arg).partition("=")
        before = call.state.env.get(name := name.rstrip("+"), UNSET)
        if equals and not arg.startswith("-"):
            call.machine.set(name, unglob(value), call.state)
        if name.isidentifier():
            call.state.after_declaration(call.name, call.args, name, before, not equals)
    return SENSITIVE if all(arg.startswith("-") for arg in call.args) else ""


@program("unset unalias")
def _unset(call: Call) -> str:
    for name in map(drop_unset, call.args):
        variable = name in call.state.env and "-f" not in call.args  # else a function
        held = call.state.env if variable else call.state.functions
        (held if call.name == "unset" else call.state.aliases).pop(name, None)
    return ""


@program("set shift")
def _set(call: Call) -> str:
    args = list(call.args)
    if call.name == "shift":
        call.state.args = call.state.args[
            to_int(args[0]) if args and args[0].isdecimal() else 1 :
        ]
        return ""
    while args and re.fullmatch(r"[-+][A-Za-z]+", args[0]):
        args = args[2:] if args[0][-1] == "o" else args[1:]
    if args:
        call.state.args = args[1:] if args[0] in ("--", "-") else args
    return SENSITIVE if not call.args else ""


def _input(call: Call, options: Options) -> Feed:
    call.machine.source = call.state.feeds.get(drop_unset(options.get("u")), call.feed)
    return call.machine.source


@program("mapfile readarray")
def _mapfile(call: Call) -> str:
    options = call.options("d n O s u C c")
    feed = _input(call, options)
    for line in feed.text.splitlines()[:8] if options.all("C") else []:
        call.shell(f"{options.get('C')} 0 {shlex.quote(line)}")
    items = feed.text.split(
        options.get("d")[:1] or ("\0" if "d" in options.values else "\n")
    )
    items = [UNKNOWN] * 4 if options.all("s", "O") else items
    call.machine.set(
        options.rest[0] if options.rest else "MAPFILE", items[:64], call.state
    )
    return ""


@program("read")
def _read(call: Call) -> str:
    options = call.options("a d n N p t u i")
    feed = _input(call, options)
    blanks = _separators(flat(call.state.env.get("IFS", " \t\n")))
    if "a" in options.values:
        call.machine.set(
            options.get("a"), re.split(blanks, feed.text.strip())[:64], call.state
        )
        return ""
    names = options.rest or ["REPLY"]
    everything = options.values.get("d") == [""]
    line = feed.take() if everything else feed.line() if feed.text else UNKNOWN
    line = line.partition(options.get("d")[:1] or ("\0" if everything else "\n"))[0]
    words = (
        re.split(blanks, line.strip(), maxsplit=len(names) - 1)
        if len(names) > 1
        else [line.strip()]
    )
    words = (
        words
        if known(line)
        else [taints(line) if not known(line[:1]) else line] * len(names)
    )
    for name, word in zip(names, words + [""] * len(names), strict=False):
        call.machine.set(drop_unset(name), word, call.state)
    return ""


def _separators(ifs: str) -> str:
    """Where `read` splits a line: at a run of blanks of IFS, or at any other single character of IFS."""
    blank = f"[\0{''.join(char for char in ifs if char.isspace())}]"
    return f"{blank}*[\1{re.escape(''.join(ifs.split()))}]{blank}*|{blank}+"


@program("eval")
def _eval(call: Call) -> str:
    text = unglob(" ".join(call.args))
    if not known(text):
        call.machine.run_suspects(call.state)
        if is_unseen(text):
            call.emit("exec.unseen", text)
    return call.shell(text, same=True)


@program("source .")
def _source(call: Call) -> str:
    args = call.options("", True).rest
    return call.run_file(args[0], args[1:], same=True) if args else ""


@program("exec builtin command")
def _command(call: Call) -> str:
    options = call.options("a" if call.name == "exec" else "", True)
    if options.has("v", "V"):
        return f"/usr/bin/{options.rest[0]}\n" if options.rest else ""
    name = drop_unset(options.rest[0]) if options.rest else ""
    hidden = call.state.functions.pop(name, None)
    try:
        return call.run(options.rest, same=True)
    finally:
        call.state.functions.update({name: hidden} if hidden is not None else {})


@program("alias")
def _alias(call: Call) -> str:
    for arg in call.args:
        name, equals, value = drop_unset(arg).partition("=")
        call.state.aliases.update({name: unglob(value)} if equals else {})
        own = value.split()[:1] == [name] and not re.search(
            r"[;&|`]|\$\(", value
        )  # ls='ls --color'
        if (
            equals and call.is_program(name) and not own
        ):  # it would run instead of that program
            call.shell(unglob(value))
    return ""


@program("trap")
def _trap(call: Call) -> str:
    args = call.options("", True).rest
    if len(args) > 1 and args[0] not in ("-", ""):
        call.machine.traps.append((unglob(args[0]), call.state))
    return ""


@program("env")
def _env(call: Call) -> str:
    options = call.options(
        "u C S unset chdir split-string block-signal ignore-signal", True
    )
    state = call.state.new_process()
    words = list(options.rest)
    split = options.get("S", "split-string")
    try:
        given = shlex.split(re.sub(r"\\[_tnrfv]", " ", unglob(split))) if split else []
        filled = [
            re.sub(
                r"\$\{(\w+)\}", lambda m: drop_unset(flat(call.state.get(m[1]))), word
            )
            for word in given
        ]
        words = filled + words
    except ValueError:
        call.emit("text.unparseable", split)
    if options.get("C", "chdir"):
        state.cwd = locate(options.get("C", "chdir"), state)[0]
    while words and re.match(r"-$|[A-Za-z_]\w*=|BASH_FUNC", drop_unset(words[0])):
        name, equals, value = drop_unset(words.pop(0)).partition("=")
        if equals:
            call.machine.set(name, value, state, words[0] if words else "")
    return call.machine.simple_command(words, state, call.feed) if words else SENSITIVE


@program("getopts")
def _getopts(call: Call) -> str:
    """Any argument may be the value of an option. Take the last."""
    call.machine.set(
        "OPTARG",
        re.sub(r"^-\w(?=.)", "", ["", *(call.args[2:] or call.state.args)][-1]),
        call.state,
    )
    return ""


PROGRAMS.update(
    {
        **dict.fromkeys(
            ("which", "type", "whence", "whereis"),
            lambda call: "".join(
                f"/usr/bin/{drop_unset(arg)}\n"
                for arg in call.args
                if not arg.startswith("-")
            ),
        ),
        "pwd": lambda call: call.state.cwd + "\n",
        "history": lambda call: SENSITIVE,
        "printenv": lambda call: (
            flat(call.state.get(drop_unset(call.args[0]))) if call.args else SENSITIVE
        ),
    }
)

# -- shells: judge the text that they get from -c, from a file or from standard input


@program("sh bash dash zsh ksh mksh ash fish csh tcsh rbash pdksh yash elvish nu")
def _shell(call: Call) -> str | None:
    if call.machine.privileged:
        call.emit("privilege.become")
    call.args = [arg for arg in call.args if not re.fullmatch(r"\+[a-zA-Z]+", arg)]
    options = call.options("o O rcfile init-file", True)
    if "n" in options.flags:
        return ""
    for startup in options.all("rcfile", "init-file"):
        call.run_file(startup, [])
        if (
            call.locate(startup)[1] not in ("workspace", "workspace_root")
            and startup != "/dev/null"
        ):
            call.emit("persist.env", f"--rcfile {startup}")
    if "c" in options.flags:
        text = unglob(options.rest[0]) if options.rest else ""
        if is_unseen(text):
            call.emit("exec.unseen", text)
        return call.shell(text, options.rest[1:]) if text else ""
    if options.rest and "s" not in options.flags:
        return call.run_file(options.rest[0], options.rest[1:])
    return feed_shell(call, options.rest)


def feed_shell(call: Call, args: list[str]) -> str | None:
    """A shell that reads its commands from standard input."""
    text = call.stdin
    if not known(text):
        call.machine.run_suspects(call.state)
    if NETWORK in text:
        call.emit("exec.network", text)
    elif has(text, HIDDEN):
        call.emit("exec.disguised", text)
    elif has(text, UNKNOWN) and not known(text):
        call.emit("exec.unseen", text)
    if text and text.strip(FILE + "\n") != "":
        return call.shell(text, [call.name, *args], Feed())
    return None
