"""From the words of a simple command to what is known of the program."""

import re
from itertools import zip_longest

from . import builtins, expressions, filters, pyscan, roles_files, roles_net, roles_run, searching, streams  # noqa: F401
from .call import PROGRAMS, Call
from .expressions import named
from .files import is_loopback
from .knowledge import Entry, unversioned
from .machine import Machine
from .marks import ATOM, DISGUISED, ENCODED, FILE, HIDDEN, NETWORK, PRIVATE, SECRET, UNKNOWN

from .marks import has, has_glob, known, solid, taints, unglob  # isort: skip
from .paths import could_match, resolve
from .reading import Reading
from .roles_files import setuid
from .shellstate import Feed, ShellState

_FOLDERS = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin")


def dispatch(machine: Machine, words: list[str], state: ShellState, feed: Feed) -> str:
    name, args = words[0], words[1:]
    if has_glob(name):
        return _globbed(machine, name, args, state, feed)
    made = _made(machine, name, state)
    if made is not None and not _linked(name, state):
        return _run_made(machine, name, made, args, state, feed)
    if not known(name):
        return _unknown(machine, name, args, state, feed)
    if args and name.startswith("/usr/bin/") and args[0].startswith("/usr/bin/"):  # $(which a || which b)
        machine.simple(args, state.spawned(), feed)
    return _program(machine, name, args, state, feed)


def _program(machine: Machine, name: str, args: list[str], state: ShellState, feed: Feed) -> str:
    base, last = program_name(_linked(name, state) or name, state.cwd), name.rsplit("/", 1)[-1]
    if machine.knowledge.has_trait(last, "anywhere") or (base == "busybox" and Call.known(machine, last)):
        base = last
    elif "/" in base and _is_tool(machine, last):  # a copy of it: bin/solr, ./psql
        machine.emit("exec.unknown", name)
        base = last
    call = Call(machine, base, args, state, feed)
    handler = PROGRAMS.get(base) or PROGRAMS.get(unversioned(base))
    entries = machine.knowledge.entries(base)
    quiet = frozenset({"quiet"}) if machine.knowledge.has_trait(base, "quiet") else frozenset()
    machine.emit("exec", name, flags=quiet, program=base)
    if (handler or entries) and args in (["--version"], ["--help"]):
        return ATOM
    _sweep(call)
    if handler is None and not any(entry.trusted for entry in entries):
        stranger = _stranger(call)
        return _read(call, entries) or stranger if entries else stranger
    if machine.knowledge.has_trait(base, "sends") and has("".join(args), PRIVATE):
        call.emit("net.send", "", "sensitive")
    if handler:
        machine.note(f"{call.text()}  ←  built-in reader of {base}")
    with machine.under(base):
        out = handler(call) if handler else None
        read = _read(call, tuple(one for one in entries if one.when or not one.shipped) if handler else entries)
        if machine.knowledge.has_trait(base, "commands"):
            _net(Call(machine, base, args, state, feed))
    out = out if handler else read
    return _passed(feed, args) if out is None else out


def is_program(machine: Machine, name: str, state: ShellState) -> bool:
    """Whether what a function or an alias is called means a program as well, here or in a new process."""
    base, body = unversioned(program_name(name, state.cwd)), state.functions.get(name)
    exported = body is not None and body is state.inherited.get(name)
    known_one = Call.known(machine, base) or machine.knowledge.entries(base)
    return bool(exported or known_one or "/" in name or _made(machine, name, state) is not None)


def _is_tool(machine: Machine, name: str) -> bool:
    """Whether it is a service's or a database's tool, not a word that a project's own script may be called by."""
    return any(one.destroys or one.stdin == "code:sql" for one in machine.knowledge.entries(name))


def _read(call: Call, entries: tuple[Entry, ...]) -> str | None:
    """By all entries. Whoever describes a tool of his house describes some verbs; the others stay a stranger's."""
    out, strange = None, call.name not in PROGRAMS
    for entry in entries:
        reading = Reading(Call(call.machine, call.name, list(call.args), call.state, call.feed), entry)
        out = reading.run()
        strange = strange and not entry.shipped and not reading.described
    if strange and entries:
        _nets(call)
    return out


def _passed(feed: Feed, args: list[str]) -> str:
    """What an unknown transformation leaves: not the text, but where it came from. With no input it is the project's
    own code that spoke, or the host that it was told to ask."""
    if not feed.text or feed.outside:
        hosts = ["".join(one.groups("")) for one in expressions.found(named("foreign_host"), " ".join(args)[:4000])]
        return NETWORK if any(not is_loopback(host) for host in hosts) else FILE
    if feed.text.strip() and known(feed.text):
        return DISGUISED
    return taints(feed.text).replace(FILE, UNKNOWN).replace(ATOM, UNKNOWN) or UNKNOWN


def program_name(name: str, cwd: str = "/workspace") -> str:
    """`/bin/rm` is rm; `./rm` is the project's own program, whatever its name (unless the project is in /bin)."""
    full = resolve(name, cwd)
    if name.endswith(("/gradlew", "/mvnw")):  # a project's copy of the tool
        return name.rsplit("/", 1)[-1]
    return name.rsplit("/", 1)[-1] if "/" in name and expressions.fullmatch(named("bin"), full) else name


def _linked(name: str, state: ShellState) -> str:
    """The system program that a link or a copy made by this command stands for."""
    full = resolve(name, state.cwd, state.links, state.home()) if "/" in name and state.links else ""
    return full if full and full != name and expressions.fullmatch(named("bin"), full) else ""


def _sweep(call: Call) -> None:
    """Whatever a program is for: an argument that names a credential, another process's root or the engine's socket."""
    knowledge = call.machine.knowledge
    if knowledge.has_trait(call.name, "text"):
        return
    for arg, following in zip_longest(call.args, call.args[1:], fillvalue=""):
        mode = re.fullmatch(r"--(?:mode|chmod)(?:=(.*))?", solid(arg))
        if mode and not knowledge.has_trait(call.name, "folders") and setuid(mode[1] or following):
            call.emit("privilege.setuid")
        path = re.sub(r"^(--?[\w-]+=|[\w.\[\]-]*=?@|unix://|file://|if=|[A-Za-z_]\w*=)", "", solid(arg))
        if "/" not in path or (re.search(r"\s", path) and path[0] != "/") or not re.match(r"[/~.\w]", path):
            continue
        full, kind, flags = call.locate(path)
        looks = {"-l", "--list", "-i"} & set(call.args) or Call.known(call.machine, call.name)
        if kind == "device" and not looks and expressions.matched(named("raw_disk"), full):
            call.emit("device.format")
        secret = kind == "secret" and not knowledge.has_trait(call.name, "keys")
        if secret or (kind == "kernel" and flags & {"escape", "engine"}):
            call.machine.emit("read", full, kind, flags, call.name)


def _stranger(call: Call) -> str:
    """A program nobody described: it may run, and scripts that it is handed on its input stay unseen."""
    call.emit("exec.unknown")
    _nets(call)
    if "command_not_found_handle" in call.state.functions:
        call.machine.simple(["command_not_found_handle", call.name, *call.args], call.state, call.feed)
    return _passed(call.feed, call.args)


def _nets(call: Call) -> None:
    kinds = ["anything else", "a control tool"] if re.search("(ctl|-cli)$", call.name) else ["anything else"]
    own = "/" in call.name and not re.search(r"(?:^|/)s?bin/[^/.]+$", call.name)  # a script of the project
    for kind in kinds if not own else []:
        _read(call, call.machine.knowledge.programs[kind])
    _net(call)


def _net(call: Call) -> None:
    """Programs that run what they are handed, in ways nobody listed: a command after `--`, a command among the
    arguments, a command as the text of one argument."""
    nets = call.machine.knowledge.has_trait(call.name, "commands")
    for index, arg in enumerate(call.args):
        if expressions.fullmatch(named("drops_database"), unglob(solid(arg)).rstrip(",")):  # `mix do a, b`
            call.emit("data.drop")
        option = expressions.matched(named("takes_command"), call.args[index - 1] if index else "")
        option = option or re.match(r"--?[\w-]*(exec|cmd|command|run|eval|hook)[\w-]*=", arg)
        if (not option and not nets) or expressions.matched(named("own_program"), call.name):
            continue
        text = unglob(solid(arg)).partition("=")[2] if solid(arg).startswith("--") else unglob(solid(arg))
        if expressions.matched(named("command"), text):
            call.shell(text)
        elif option and re.search(r"\b(system|popen|exec\w*|rmtree|spawn)\W*\(", text):
            call.scan("other", text, [])
    if not expressions.matched(named("own_names"), " ".join([call.name, *map(solid, call.args)])):
        _embedded(call)


def _embedded(call: Call) -> None:
    words, operands = [solid(arg) for arg in call.args], 0
    for index, word in enumerate(words[:-1]):
        before, name = words[index - 1] if index else "", program_name(word)
        language = expressions.fullmatch(named("says_language"), before) and not re.match(r"-\w*c", words[index + 1])
        risky = call.machine.knowledge.has_trait(name, "risky") and operands <= 2
        if not language and ((before in ("--", "run", "exec") and Call.known(call.machine, name)) or risky):
            call.run(call.args[index:])
        operands += not word.startswith("-")


def _made(machine: Machine, name: str, state: ShellState) -> str | None:
    """The text of the program where this command wrote it itself: by path, or first in PATH."""
    if not state.files:
        return None
    if "/" in name:
        return machine.read_file(name, state)
    path = state.env.get("PATH", "")
    for folder in str(path).split(":") if isinstance(path, str) else []:
        full = resolve(f"{folder or '.'}/{name}", state.cwd, state.links, state.home())
        if full in state.files:
            return state.files[full]
    return None


def _run_made(machine: Machine, name: str, text: str, args: list[str], state: ShellState, feed: Feed) -> str:
    """A program that this command wrote: by the interpreter in its first line, else as a script of bash."""
    call = Call(machine, name, args, state, feed)
    machine.emit("exec.script", name, program=name)
    shebang = re.match(r"#!\s*(?:\S*/env\s+(?:-\S+\s+|\w+=\S*\s+)*)?(\S+)", text)
    interpreter = unversioned(program_name(shebang[1])) if shebang else "bash"
    if re.match(r"python|perl|ruby|node|php|lua|awk", interpreter):
        return call.scan(interpreter, text, args)
    if has(text, UNKNOWN + ENCODED) and not text.strip(FILE + UNKNOWN + ENCODED + "\n ") and name[-6:] != "/a.out":
        machine.emit("exec.unseen", name)
    inner = state.spawned()
    inner.name, inner.args = name, args
    with machine.under(name):
        key = resolve(name, state.cwd, state.links, state.home())
        return machine.guarded(key, lambda: machine.run_text(text.strip(FILE + UNKNOWN + ENCODED + "\n "), inner, feed))


def _globbed(machine: Machine, name: str, args: list[str], state: ShellState, feed: Feed) -> str:
    """A program named by a pattern: every known program it could match is tried."""
    full, out = resolve(name, state.cwd, state.links, state.home()), UNKNOWN
    folders = [folder for folder in _FOLDERS if could_match(full.rsplit("/", 1)[0] or "/", folder)]
    every = [*PROGRAMS, *machine.knowledge.programs] if folders else []
    plausible = [one for one in every if any(could_match(full, f"{folder}/{one}") for folder in folders)]
    machine.emit("exec.glob", full)
    for candidate in plausible[:60]:
        out = dispatch(machine, [candidate, *args], state, feed)
    return out


def _unknown(machine: Machine, name: str, args: list[str], state: ShellState, feed: Feed) -> str:
    """The program's name is not known."""
    machine.emit("exec.unknown", name)
    if NETWORK in name:
        machine.emit("exec.network", name)
    elif has(name, HIDDEN):
        machine.emit("exec.disguised", name)
    elif has(name, UNKNOWN + SECRET) and not has(name, FILE) and "/" not in name:
        machine.emit("exec.unseen", name)
    machine.run_suspects(state)
    text = [unglob(solid(arg)) for arg in args]
    if any(re.fullmatch(r"-\w*[rR]\w*|--recursive", word) for word in text) and known("".join(text)):
        _program(machine, "rm", args, state, feed)
    elif re.fullmatch(r"-\w*c", "".join(text[:1])):
        _program(machine, "bash", args, state, feed)
    return ATOM if name.strip(ATOM) == "" else UNKNOWN
