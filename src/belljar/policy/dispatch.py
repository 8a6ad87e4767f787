"""From the words of a simple command to the program that reads them."""

import re
from itertools import zip_longest

from . import (  # noqa: F401  they register their programs
    archives,
    awkprogram,
    building,
    builtins,
    clouds,
    editors,
    encodings,
    fileprograms,
    git,
    interpreters,
    listings,
    network,
    remotes,
    searching,
    sedprogram,
    system,
    textprograms,
    wrappers,
)
from .call import PROGRAMS, Call, Handler
from .compound import Feed
from .files import is_loopback
from .machine import Machine
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, SECRET, UNKNOWN, has, has_glob, known, solid, taints, unglob
from .paths import could_match, resolve
from .quoting import listed
from .shellstate import ShellState

_BIN = re.compile(
    r"(/usr/local|/usr|/opt/\w+|)/s?bin/[^/]+|/usr/libexec/[^/]+|/lib\w*/(?:\S+/)?ld-\S+|.*/(?:node_modules/\.b"
    r"in|\.?venv/bin|env/bin|vendor/bin)/[^/]+"
)
_TALKS = frozenset(
    listed(
        "echo printf grep egrep fgrep rg ag ack sed awk gawk git hub export declare local readonly "
        "alias test [ trap read python python3 perl ruby node php lua bash sh zsh dash eval "
        "set man tldr info whatis apropos type which command basename dirname jq yq cowsay logger "
        "say docker podman write wall"
    )
)
_OWN_KEYS = frozenset(
    listed(
        "ls dir stat cd pushd mkdir touch chmod chown chgrp setfacl chattr du find fd ssh scp sftp "
        "rsync ssh-add ssh-keygen ssh-copy-id mosh autossh kubectl helm k9s aws gcloud az terraform "
        "ansible "
        "ansible-playbook npm yarn pnpm pip pip3 twine rm mv shred unlink ln tree realpath readlink "
        "gpg wc md5sum sha256sum unset rmdir truncate flock env sudo doas exec nohup time timeout "
        "source . xargs exa eza "
        "eksctl k3d kind minikube flyctl rclone restic borg gpg2 vault docker-compose tar zip install "
        "cp tee dd [["
    )
)
_RISKY = frozenset(
    listed(
        "rm dd shred mkfs chmod chown mv find bash sh dash zsh sudo su env python python3 perl ruby "
        "node xargs curl wget nc cat tee cp ln kill mount"
    )
)
_RUNS = ("rm", "sh", "bash", "dd", "chmod", "chown", "shred", "mkfs\\S*", "curl", "wget", "nc", "find", "sudo", "mv")
_NETTED = frozenset(
    listed(
        "npx bunx pnpx pipx uvx npm yarn pnpm bun deno cargo go make gmake just task cmake ctest "
        "tox nox op sops vault gdb lldb ssh-agent poetry uv pipenv hatch pdm rye bundle rake gradle "
        "mvn bazel conda mamba "
        "direnv mise nix nix-shell docker-compose terraform dotnet mix stack ninja meson rbenv pyenv "
        "asdf volta env-cmd cross-env xterm uxterm rxvt urxvt composer"
    )
)
_MAKE_FOLDERS = ("mkdir", "install", "ginstall")  # a folder's group bit makes nobody another
# The option that says in which language a text is that is read, not run.
_LANGUAGE = r"-(s|l|S|ln|ft)|--?(shell|lang\w*|lexer|syntax|dialect|parser|filetype|mode|type)"
# A host that a client is told to ask: as an address, as the value of an option, as a setting, as user@host.
_FOREIGN = re.compile(
    r"(?:\b[a-z][a-z0-9+.-]{0,20}://(?:[^/@\s]{0,80}@)?|(?:^|\s)-[hS]\s?|-{1,2}(?:\w{1,20}-)?"
    r"(?:H|[hH]ost\w*|servers?|brokers?|addr\w*|endpoints?|ur[li])[ =]"
    r"|\bhost(?:addr)?=|@)([\w-]+(?:\.[\w-]+)+)|(?:^|\s)([\w-]+(?:\.[\w-]+)+):\d{2,5}\b"
)
# What follows are targets, scripts and binaries of the project, and their arguments.
_OWN_NAMES = re.compile(
    r"(?!.*\s(?:exec|-T|--[\w-]*command)\s)(?:(?:g?make|just|task|rake|ninja|gradle|mvn|bazel|mix|tox|nox|ctest)\b|(?:cargo|go|npm|yarn|pnpm|composer|dotnet|stack|deno)\s+"
    r"(?:-\S+\s+)*(?:run(?:-script)?|r|t|test|bench|build|install|doc|task)\b)"
)
_QUIET = frozenset(
    listed(
        ": true false test [ cd pwd echo printf ls cat head tail wc date whoami id sleep basename "
        "dirname sort uniq grep rg which type"
    )
)


def dispatch(machine: Machine, words: list[str], state: ShellState, feed: Feed) -> str:
    name, args = words[0], words[1:]
    if has_glob(name):
        return _globbed(machine, name, args, state, feed)
    made = _made(machine, name, state)
    if made is not None and not _linked(name, state):
        return _run_made(machine, name, made, args, state, feed)
    if not known(name):
        return _unknown(machine, name, args, state, feed)
    base = program_name(_linked(name, state) or name, state.cwd)
    if base in ("busybox", "toybox") and name.rsplit("/", 1)[-1] in PROGRAMS:
        base = name.rsplit("/", 1)[-1]  # it is what its link is called
    call = Call(machine, base, args, state, feed)
    handler = PROGRAMS.get(base) or (PROGRAMS["mkfs"] if re.match(r"mkfs\.|mke2fs", base) else None) or _versioned(base)
    machine.emit("exec", name, flags=frozenset({"quiet"}) if base in _QUIET else frozenset(), program=base)
    if handler is not None and args in (["--version"], ["--help"]):
        return ATOM
    _sweep(call)
    if handler is None:
        return _stranger(call)
    with machine.under(base):
        out = handler(call)
        if base in _NETTED:
            _net(Call(machine, base, args, state, feed))
    return _passed(feed, args) if out is None else out


def _passed(feed: Feed, args: list[str]) -> str:
    """What an unknown transformation leaves: not the text, but where it came from. With no input it is the project's
    own code that spoke, or the host that it was told to ask."""
    if not feed.text or feed.outside:
        hosts = ["".join(found) for found in _FOREIGN.findall(" ".join(args)[:4000])]
        return NETWORK if any(not is_loopback(host) for host in hosts) else FILE
    if feed.text.strip() and known(feed.text):
        return DISGUISED
    return taints(feed.text).replace(FILE, UNKNOWN).replace(ATOM, UNKNOWN) or UNKNOWN


def program_name(name: str, cwd: str = "/workspace") -> str:
    """`/bin/rm` is rm; `./rm` is the project's own program, whatever its name (unless the project is in /bin)."""
    full = resolve(name, cwd)
    if name.endswith(("/gradlew", "/mvnw")):  # a project's copy of the tool
        return name.rsplit("/", 1)[-1]
    return name.rsplit("/", 1)[-1] if "/" in name and _BIN.fullmatch(full) else name


def _linked(name: str, state: ShellState) -> str:
    """The system program that a link or a copy made by this command stands for."""
    full = resolve(name, state.cwd, state.links, state.home()) if "/" in name and state.links else ""
    return full if full != name and _BIN.fullmatch(full) else ""


def _sweep(call: Call) -> None:
    """Whatever a program is for: an argument that names a credential, another process's root or the engine's socket."""
    if call.name in _TALKS:
        return
    for arg, following in zip_longest(call.args, call.args[1:], fillvalue=""):
        mode = re.fullmatch(r"--(?:mode|chmod)(?:=(.*))?", solid(arg)) if call.name not in _MAKE_FOLDERS else None
        call.emit("privilege.setuid") if mode and fileprograms.setuid(mode[1] or following) else None
        path = re.sub(r"^(--?[\w-]+=|[\w.\[\]-]*=?@|unix://|file://|if=|[A-Za-z_]\w*=)", "", solid(arg))
        if "/" not in path or (re.search(r"\s", path) and path[0] != "/") or not re.match(r"[/~.\w]", path):
            continue
        full, kind, flags = call.locate(path)
        if (
            kind == "device"
            and call.name not in PROGRAMS
            and re.match(r"/dev/(sd|hd|vd|xvd|nvme|mmcblk|sg\d|mapper|disk|md\d|dm-)", full)
            and not {"-l", "--list", "--version", "-h", "--help", "-i"} & set(call.args)
        ):
            call.emit("device.format")
        if (kind == "kernel" and flags & {"escape", "engine"}) or (kind == "secret" and call.name not in _OWN_KEYS):
            call.machine.emit("read", full, kind, flags, call.name)


def _versioned(name: str) -> Handler | None:
    if re.fullmatch(r"ld(-linux|-musl)?[\w.-]*\.so(\.\d+)?", name):
        return PROGRAMS["ld.so"]
    if re.fullmatch(r"(ip6?tables|ebtables|arptables)-(legacy|nft)", name):
        return PROGRAMS["iptables"]
    if name.startswith("docker-credential-"):
        return PROGRAMS["lpass"]
    found = re.fullmatch(r"(python|perl|ruby|lua|php|node|gcc|g\+\+|clang|pip|bash)-?\d+(\.\d+)*", name)
    return PROGRAMS.get(found[1]) if found else None


def _stranger(call: Call) -> str:
    """A program nobody described: it may run, and scripts that it is handed on its input stay unseen."""
    call.emit("exec.unknown", call.name)
    _net(call)
    if "command_not_found_handle" in call.state.functions:
        call.machine.simple(["command_not_found_handle", call.name, *call.args], call.state, call.feed)
    if "/" in call.name and call.fetched(call.locate(call.name)[0]):
        call.emit("exec.network", call.name)
    if "/" in call.name and call.locate(call.name)[1] in ("kernel", "secret", "device"):
        call.emit("kernel.namespace")
    return _passed(call.feed, call.args)


_OWN_PROGRAM = re.compile(r"\.{0,2}/?(?!.*(?:node_modules|vendor|v?env)/)\w[\w.-]*/")  # a text is its data


def _net(call: Call) -> None:
    """Programs that run what they are handed, in ways nobody listed: a command after `--`, a command among the
    arguments, a command as the text of one argument."""
    for index, arg in enumerate(call.args):
        option = re.match(
            r"--?(x|c|e|s|exec\w*|cmd|command|run|eval|[\w-]*expr\w*|script|shell|on-?\w*|\w*hook\w*|\w*-cmd|\w*-command)(=|"
            r"$)",
            call.args[index - 1] if index else "",
        ) or re.match(r"--?[\w-]*(exec|cmd|command|run|eval|hook)[\w-]*=", arg)
        if (not option and call.name not in _NETTED) or _OWN_PROGRAM.match(call.name):
            continue
        text = unglob(solid(arg)).partition("=")[2] if solid(arg).startswith("--") else unglob(solid(arg))
        if re.match(rf"(?:\S*/)?(?:{'|'.join(_RUNS)})\s+['\"]?[-/~.$]", text):
            call.shell(text)
        elif option and re.search(r"\b(system|popen|exec\w*|rmtree|spawn)\W*\(", text):
            interpreters.scan(call, "other", text)
    if _OWN_NAMES.match(" ".join([call.name, *map(solid, call.args)])):
        return
    words, operands = [solid(arg) for arg in call.args], 0
    for index, word in enumerate(words[:-1]):
        before, name = words[index - 1] if index else "", program_name(word)
        language = re.fullmatch(_LANGUAGE, before) and not re.match(r"-\w*c", words[index + 1])
        if not language and ((before == "--" and name in PROGRAMS) or (name in _RISKY and operands <= 2)):
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
    call = Call(machine, name, args, state, feed)
    machine.emit("exec.script", name, program=name)
    shebang = re.match(r"#!\s*(?:\S*/env\s+(?:-\S+\s+|\w+=\S*\s+)*)?(\S+)(?:\s+(\S+))?", text)
    interpreter = program_name(shebang[1]) if shebang else "bash"
    if NETWORK in text:
        call.emit("exec.network", name)
        return NETWORK
    if interpreter in ("sed", "gsed") and shebang and shebang[2]:
        return call.run([interpreter, shebang[2], name, *args])
    if interpreter in wrappers.SHELLS or not re.match(r"python|perl|ruby|node|php|lua|awk", interpreter):
        inner = state.fork()
        inner.name, inner.args = name, args
        with machine.under(name):
            full = resolve(name, state.cwd, state.links, state.home())
            if text.strip(FILE + UNKNOWN + "\n "):
                return machine.run_script("file:" + full, text, inner, feed)
        return UNKNOWN
    return interpreters.scan(call, re.sub(r"[\d.]+$", "", interpreter), text, args)


def _globbed(machine: Machine, name: str, args: list[str], state: ShellState, feed: Feed) -> str:
    """A program named by a pattern: every known program it could match is tried."""
    full = resolve(name, state.cwd, state.links, state.home())
    folders = [
        folder
        for folder in ("/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/local/bin")
        if could_match(full.rsplit("/", 1)[0] or "/", folder)
    ]
    plausible = [p for p in PROGRAMS if any(could_match(full, f"{folder}/{p}") for folder in folders)]
    machine.emit("exec.glob", full)
    out = UNKNOWN
    for candidate in plausible[:60]:
        out = dispatch(machine, [candidate, *args], state, feed)
    if not plausible and not full.startswith("/workspace"):
        machine.emit("exec.unseen", full)
    return out


def _unknown(machine: Machine, name: str, args: list[str], state: ShellState, feed: Feed) -> str:
    """The program's name is not known."""
    machine.emit("exec.unknown", name)
    if NETWORK in name:
        machine.emit("exec.network", name)
    elif has(name, ENCODED + DISGUISED):
        machine.emit("exec.disguised", name)
    elif has(name, UNKNOWN + SECRET) and not has(name, FILE) and "/" not in name:
        machine.emit("exec.unseen", name)
    machine.run_suspects(state)
    text = [unglob(solid(arg)) for arg in args]
    if any(re.fullmatch(r"-\w*[rR]\w*|--recursive", word) for word in text) and known("".join(text)):
        PROGRAMS["rm"](Call(machine, "rm", args, state, feed))
    elif any(re.fullmatch(r"-\w*c", word) for word in text[:1]) and len(args) > 1:
        PROGRAMS["bash"](Call(machine, "bash", args, state, feed))
    return ATOM if name.strip(ATOM) == "" else UNKNOWN
