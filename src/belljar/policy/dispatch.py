"""Find what is known of a program, and read its arguments accordingly."""

import re
from itertools import zip_longest

from . import (
    builtins,
    expressions,
    filters,
    pyscan,
    roles_files,
    roles_net,
    roles_run,
    searching,
    streams,
)
from .call import PROGRAMS, Call
from .code import scan
from .expressions import named
from .files import is_loopback
from .interpreter import Interpreter, Programs
from .knowledge import Entry, unversioned
from .marks import (
    ATOM,
    DISGUISED,
    ENCODED,
    FILE,
    HIDDEN,
    NETWORK,
    PRIVATE,
    SECRET,
    UNKNOWN,
    drop_unset,
    has,
    has_glob,
    known,
    plain_text,
    taints,
)
from .paths import could_match, resolve
from .reading import Reading
from .roles_files import setuid
from .shellstate import Feed, ShellState

_FOLDERS = ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin")


def dispatch(
    machine: Interpreter, words: list[str], state: ShellState, feed: Feed
) -> str:
    call = Call(machine, words[0], words[1:], state, feed)
    name = call.name
    if has_glob(name):
        return _named_by_pattern(call)
    text = _written_program(machine, name, state)
    if text is not None and not _link_target(name, state):
        return _run_written(call, text)
    if not known(name):
        return _unknown_name(call)
    if name.startswith("/usr/bin/") and "".join(call.args[:1]).startswith(
        "/usr/bin/"
    ):  # $(which a || which b)
        machine.simple_command(call.args, state.new_process(), feed)
    return _program(call, name)


def _program(given: Call, name: str) -> str:
    """Read a call as one of the program `name`."""
    machine, state, args = given.machine, given.state, given.args
    base = program_name(_link_target(name, state) or name, state.cwd)
    last = name.rsplit("/", 1)[-1]
    if machine.knowledge.has_trait(last, "anywhere") or (
        base == "busybox" and Call.known(machine, last)
    ):
        base = last
    elif "/" in base and _is_tool(machine, last):  # a copy of it: bin/solr, ./psql
        machine.emit("exec.unknown", name)
        base = last
    call = given.renamed(base)
    handler = PROGRAMS.get(base) or PROGRAMS.get(unversioned(base))
    entries = machine.knowledge.entries(base)
    quiet = (
        frozenset({"quiet"})
        if machine.knowledge.has_trait(base, "quiet")
        else frozenset()
    )
    machine.emit("exec", name, flags=quiet, program=base)
    if (handler or entries) and args in (["--version"], ["--help"]):
        return ATOM
    _check_arguments(call)
    if handler is None and not any(entry.trusted for entry in entries):
        unknown = _undescribed(call)
        return _read_entries(call, entries) or unknown
    if machine.knowledge.has_trait(base, "sends") and has("".join(args), PRIVATE):
        call.emit("net.send", "", "sensitive")
    if handler:
        machine.record_reading(f"{call.text()}  ←  built-in reader of {base}")
    with machine.under(base):
        out = handler(call) if handler else None
        read = _read_entries(
            call,
            tuple(one for one in entries if one.when or not one.shipped)
            if handler
            else entries,
        )
        if machine.knowledge.has_trait(base, "commands"):
            _commands_in_arguments(given.renamed(base))
    out = out if handler else read
    return _unknown_output(given.feed, args) if out is None else out


def is_program(machine: Interpreter, name: str, state: ShellState) -> bool:
    """Whether the name of a function or alias is also that of a program, here or in a new process."""
    base = unversioned(program_name(name, state.cwd))
    body = state.functions.get(name)
    exported = body is not None and body is state.inherited.get(name)
    known_one = Call.known(machine, base) or machine.knowledge.entries(base)
    return bool(
        exported
        or known_one
        or "/" in name
        or _written_program(machine, name, state) is not None
    )


def _is_tool(machine: Interpreter, name: str) -> bool:
    """Whether it is a tool of a service or a database: a name that a script of a project would not have."""
    return any(
        one.destroys or one.stdin == "code:sql"
        for one in machine.knowledge.entries(name)
    )


def _read_entries(call: Call, entries: tuple[Entry, ...]) -> str | None:
    """Read a call by all entries. An operator's entry describes some verbs; the others count as unknown."""
    out = None
    undescribed = call.name not in PROGRAMS
    for entry in entries:
        reading = Reading(call.renamed(call.name), entry)
        out = reading.run()
        undescribed = undescribed and not entry.shipped and not reading.described
    if undescribed and entries:
        _undescribed_effects(call)
    return out


def _unknown_output(feed: Feed, args: list[str]) -> str:
    """After an unknown change only the marks of the input are left; without input it is a project's or host's text."""
    if not feed.text or feed.outside:
        hosts = [
            "".join(one.groups(""))
            for one in expressions.find_all(
                named("foreign_host"), " ".join(args)[:4000]
            )
        ]
        return NETWORK if any(not is_loopback(host) for host in hosts) else FILE
    if feed.text.strip() and known(feed.text):
        return DISGUISED
    return taints(feed.text).replace(FILE, UNKNOWN).replace(ATOM, UNKNOWN) or UNKNOWN


def program_name(name: str, cwd: str = "/workspace") -> str:
    """`/bin/rm` is rm; `./rm` is a program of the project, whatever its name (unless the project is in /bin)."""
    full = resolve(name, cwd)
    if name.endswith(("/gradlew", "/mvnw")):  # a project's copy of the tool
        return name.rsplit("/", 1)[-1]
    return (
        name.rsplit("/", 1)[-1]
        if "/" in name and expressions.is_a("bin", full)
        else name
    )


def _link_target(name: str, state: ShellState) -> str:
    """The system program that this command linked or copied to this name."""
    full = (
        resolve(name, state.cwd, state.links, state.home())
        if "/" in name and state.links
        else ""
    )
    return full if full and full != name and expressions.is_a("bin", full) else ""


def _check_arguments(call: Call) -> None:
    """For any program: arguments that name a credential, a way out of the sandbox or the engine's socket."""
    knowledge = call.machine.knowledge
    if knowledge.has_trait(call.name, "text"):
        return
    for arg, following in zip_longest(call.args, call.args[1:], fillvalue=""):
        mode = re.fullmatch(r"--(?:mode|chmod)(?:=(.*))?", drop_unset(arg))
        if (
            mode
            and not knowledge.has_trait(call.name, "folders")
            and setuid(mode[1] or following)
        ):
            call.emit("privilege.setuid")
        path = re.sub(
            r"^(--?[\w-]+=|[\w.\[\]-]*=?@|unix://|file://|if=|[A-Za-z_]\w*=)",
            "",
            drop_unset(arg),
        )
        if (
            "/" not in path
            or (re.search(r"\s", path) and path[0] != "/")
            or not re.match(r"[/~.\w]", path)
        ):
            continue
        full, kind, flags = call.locate(path)
        looks = {"-l", "--list", "-i"} & set(call.args) or Call.known(
            call.machine, call.name
        )
        if kind == "device" and not looks and expressions.begins("raw_disk", full):
            call.emit("device.format")
        secret = kind == "secret" and not knowledge.has_trait(call.name, "keys")
        if secret or (kind == "kernel" and flags & {"escape", "engine"}):
            call.machine.emit("read", full, kind, flags, call.name)


def _undescribed(call: Call) -> str:
    """A program without an entry."""
    call.emit("exec.unknown")
    _undescribed_effects(call)
    if "command_not_found_handle" in call.state.functions:
        call.machine.simple_command(
            ["command_not_found_handle", call.name, *call.args], call.state, call.feed
        )
    return _unknown_output(call.feed, call.args)


def _undescribed_effects(call: Call) -> None:
    kinds = (
        ["anything else", "a control tool"]
        if re.search("(ctl|-cli)$", call.name)
        else ["anything else"]
    )
    own = "/" in call.name and not re.search(
        r"(?:^|/)s?bin/[^/.]+$", call.name
    )  # a script of the project
    for kind in kinds if not own else []:
        _read_entries(call, call.machine.knowledge.programs[kind])
    _commands_in_arguments(call)


def _commands_in_arguments(call: Call) -> None:
    """Judge commands that an unknown program may run: the text of an argument, or the words after one."""
    may_hold_commands = call.machine.knowledge.has_trait(call.name, "commands")
    for index, arg in enumerate(call.args):
        if expressions.is_a(
            "drops_database", plain_text(arg).rstrip(",")
        ):  # `mix do a, b`
            call.emit("data.drop")
        option = expressions.begins(
            "takes_command", call.args[index - 1] if index else ""
        )
        option = option or re.match(
            r"--?[\w-]*(exec|cmd|command|run|eval|hook)[\w-]*=", arg
        )
        if (not option and not may_hold_commands) or expressions.begins(
            "own_program", call.name
        ):
            continue
        text = (
            plain_text(arg).partition("=")[2]
            if drop_unset(arg).startswith("--")
            else plain_text(arg)
        )
        if expressions.begins("command", text):
            call.shell(text)
        elif option and re.search(r"\b(system|popen|exec\w*|rmtree|spawn)\W*\(", text):
            call.scan("other", text, [])
    if not expressions.begins(
        "own_names", " ".join([call.name, *map(drop_unset, call.args)])
    ):
        _command_among_words(call)


def _command_among_words(call: Call) -> None:
    words = [drop_unset(arg) for arg in call.args]
    operands = 0
    for index, word in enumerate(words[:-1]):
        before = words[index - 1] if index else ""
        name = program_name(word)
        language = expressions.is_a("says_language", before) and not re.match(
            r"-\w*c", words[index + 1]
        )
        risky = call.machine.knowledge.has_trait(name, "risky") and operands <= 2
        if not language and (
            (before in ("--", "run", "exec") and Call.known(call.machine, name))
            or risky
        ):
            call.run(call.args[index:])
        operands += not word.startswith("-")


def _written_program(machine: Interpreter, name: str, state: ShellState) -> str | None:
    """The text of the program, if this command wrote it: by its path, or as the first in PATH."""
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


def _run_written(call: Call, text: str) -> str:
    """Run a program that this command wrote: with the interpreter in its first line, else with bash."""
    machine, state, name = call.machine, call.state, call.name
    machine.emit("exec.script", name, program=name)
    shebang = re.match(r"#!\s*(?:\S*/env\s+(?:-\S+\s+|\w+=\S*\s+)*)?(\S+)", text)
    interpreter = unversioned(program_name(shebang[1])) if shebang else "bash"
    if re.match(r"python|perl|ruby|node|php|lua|awk", interpreter):
        return call.scan(interpreter, text, call.args)
    script = text.strip(FILE + UNKNOWN + ENCODED + "\n ")
    if has(text, UNKNOWN + ENCODED) and not script and name[-6:] != "/a.out":
        machine.emit("exec.unseen", name)
    inner = state.new_process()
    inner.name = name
    inner.args = call.args
    with machine.under(name):
        key = resolve(name, state.cwd, state.links, state.home())
        return machine.limit_recursion(
            key, lambda: machine.run_text(script, inner, call.feed)
        )


def _named_by_pattern(call: Call) -> str:
    """The program's name is a pattern: try every known program that it could match."""
    machine, state = call.machine, call.state
    full = resolve(call.name, state.cwd, state.links, state.home())
    out = UNKNOWN
    folders = [
        folder
        for folder in _FOLDERS
        if could_match(full.rsplit("/", 1)[0] or "/", folder)
    ]
    every = [*PROGRAMS, *machine.knowledge.programs] if folders else []
    plausible = [
        one
        for one in every
        if any(could_match(full, f"{folder}/{one}") for folder in folders)
    ]
    machine.emit("exec.glob", full)
    for candidate in plausible[:60]:
        out = dispatch(machine, [candidate, *call.args], state, call.feed)
    return out


def _unknown_name(call: Call) -> str:
    """The program's name is not known: judge it as rm or bash if its arguments look so."""
    machine, name = call.machine, call.name
    machine.emit("exec.unknown", name)
    if NETWORK in name:
        machine.emit("exec.network", name)
    elif has(name, HIDDEN):
        machine.emit("exec.disguised", name)
    elif has(name, UNKNOWN + SECRET) and not has(name, FILE) and "/" not in name:
        machine.emit("exec.unseen", name)
    machine.run_suspects(call.state)
    text = [plain_text(arg) for arg in call.args]
    if any(re.fullmatch(r"-\w*[rR]\w*|--recursive", word) for word in text) and known(
        "".join(text)
    ):
        _program(call, "rm")
    elif re.fullmatch(r"-\w*c", "".join(text[:1])):
        _program(call, "bash")
    return ATOM if name.strip(ATOM) == "" else UNKNOWN


KNOWN = Programs(dispatch, is_program, scan)
