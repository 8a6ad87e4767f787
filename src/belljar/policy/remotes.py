"""Programs that run commands elsewhere: other hosts, terminals, containers, environments."""

import re
from itertools import pairwise

from .building import reached
from .call import PROGRAMS, Call, Options, program
from .files import is_loopback
from .marks import FILE, NETWORK, SENSITIVE, known, show, solid, unglob
from .quoting import listed
from .wrappers import SHELLS

_FOREIGN = {"exec.network", "net.shell", "process.forkbomb", ("delete", "root"), ("read", "secret")}


def ssh_settings(call: Call, options: Options) -> None:
    """The settings of ssh that run a command: given by -o, or in a file that this command wrote."""
    files = [call.script(path) or "" for path in options.all("F")]
    for option in [*options.all("o"), *"\n".join(files).splitlines()]:
        found = re.match(r"(?i)\s*(?:(?:proxy|local|knownhosts)command|match\b.*\bexec)[\s=]+(.+)", option)
        if found and found[1].lower() != "none":
            call.emit("exec.hidden", option)
            call.shell(found[1].strip('"'))


@program("ssh autossh mosh sshpass dropbear dbclient sftp")
def _ssh(call: Call) -> str | None:
    options = call.options("bcDEeFIiJLlmOopQRSWwB", posix=True)
    if call.name == "sshpass":
        return call.run(call.options("pfPe", posix=True).rest)
    ssh_settings(call, options)
    for key in options.all("i"):
        call.locate(key)
    if options.all("R", "D", "w"):
        call.emit("net.tunnel")
    if call.name == "sftp":
        for verb, rest in re.findall(r"(?m)^\s*(!|m?put\b|reput\b)\s*(\S.*)", call.handed()):
            call.shell(rest) if verb == "!" else call.read(rest.split()[0])
        return NETWORK
    if re.match(r"root@", options.rest[0] if options.rest else "") and is_loopback(options.rest[0][5:]):
        call.emit("privilege.become")
    remote = " ".join(options.rest[1:])
    call.emit("net.remote", options.rest[0] if options.rest else "")
    from .network import sends

    sends(call, call.stdin, options.rest[0] if options.rest else "")
    if remote or known(call.stdin):
        remote = remote or call.stdin
        state = call.state.fork()
        state.cwd = "/home/sandbox"
        with call.machine.under("ssh"):
            call.machine.run_text(unglob(remote), state, call.feed)
    return NETWORK


@program("tmux screen byobu")
def _terminal(call: Call) -> str | None:
    words = [unglob(arg) for arg in call.args]
    if words[:1] == ["-c"] and call.name == "tmux":
        call.shell(" ".join(words[1:]))
    for before, path in pairwise(words):
        given = before in ("source", "source-file", "-f", "-c") and call.machine.read_file(path, call.state)
        lines = given.splitlines()[:200] if given and given not in call.machine.judged else []
        call.machine.judged.add(given or "")
        for line in lines:
            call.run([call.name, *re.sub(r"[\"']", "", line).split()])
    rest = call.options("cSsthepTr", posix=True).rest if call.name == "screen" and "-X" not in words else []
    call.run(rest[rest[0] in ("screen", "exec") :]) if rest and rest[-1] != rest[0] else None
    for index, word in enumerate(words):
        if word in ("send-keys", "send", "stuff"):
            call.shell(
                " ".join(w for w in words[index + 1 :] if w not in ("Enter", "C-m", "-t") and not w.startswith("-"))
            )
        elif word in listed(
            "-dm -dmS -m new new-session new-window neww split-window run-shell run respawn-pane if-shell"
        ):
            rest = call.args[index + 1 :]
            call.args, saved = rest, call.args
            options = call.options("tncsxyFeSlp", posix=True)
            call.args = saved
            body = options.rest[1:] if word == "-dmS" else options.rest
            call.shell(unglob(body[0])) if len(body) == 1 else call.run(body)
    return None


@program("docker podman nerdctl docker-compose podman-remote")
def _docker(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if re.search(r"(^|\s)(up|run|create|start|play|deploy)\b", text):
        made = call.stdin + call.named() + call.machine.written(r"\.ya?ml$", call.state)
        text += _declared(reached(f"\n{made}", call.args, "services"))
    if re.search(
        r"--privileged|--pid[= ]host|--net(work)?[= ]host.*--pid|--cap-add[= ](ALL|SYS_ADMIN|SYS_PTRACE|"
        r"SYS_MODULE|DAC_READ_SEARCH)|--security-opt[= ](apparmor|seccomp)[=:]unconfined|--device[= "
        r"]/dev/(sd|nvme|mem|kmsg)|--userns[= ]host|"
        r"--grant-all-permissions|--allow[= ]security\.insecure|--ipc[= ]host",
        text,
    ):
        call.emit("kernel.engine")
    for mount in re.findall(r"(?:-v|--volume)[= ]?(\S+?):|(?:source|src)=([^,\s]+)", text):
        source = next(part for part in mount if part) if any(mount) else ""
        full, kind, flags = call.locate(source) if source.startswith(("/", "~", ".", "$")) else ("", "", frozenset())
        whole = "top" in flags or full in ("/var/run", "/var/lib")
        harmful = kind in ("root", "device", "secret", "kernel") or (kind == "system" and whole)
        if harmful or (kind == "home" and "inner" not in flags):
            call.emit("kernel.engine")
    for host in re.findall(r"(?:^|\s)(?:-H|(?:--)?host|--url)[= ]?unix://(\S+)", text):
        call.emit("kernel.engine") if "engine" in call.locate(host)[2] else None
    if re.match(r"(system|volume|image|container|network|builder) prune|system prune|rm -f \S*…|volume rm", text):
        call.emit("exec.prune")
    words = list(call.args[1:] if call.args[:1] == ["compose"] else call.args)
    if words[:1] == ["exec"]:
        call.args, saved = words[1:], call.args
        rest = call.options("ewu", ("env", "env-file", "workdir", "user", "index", "detach-keys"), posix=True).rest
        call.args = saved
        return in_container(call, rest[1:])
    for arg in call.args[1:] if re.match(r"cp|build|buildx|secret|config", text) else []:
        path = re.sub(r"^(--?[\w-]+=)?(id=\w+,)?(src=|source=)?", "", arg)
        call.read(path) if "/" in path and call.locate(path)[1] == "secret" and "-f" not in call.args else None
    if words[:1] == ["run"]:
        _network_code(call, words)
    call.emit("exec.build", "", "network") if re.search(r"^(build|push|pull|compose (up|build))", text) else None
    private = re.search(
        r"^(container )?inspect\b(?!.*(-f|--format)[= ](?!.*(Env|json|\{\{\.\}\})))|^compose config\b", text
    )
    return SENSITIVE if private else None


def _declared(text: str) -> str:
    """What a compose file asks for, as the options that ask for the same."""
    found = [" --privileged"] if re.search(r"privileged:\s*['\"]?true", text) else []
    found += [f" --{name}=host" for name in re.findall(r"\b(pid|ipc|userns)(?:_mode)?:\s*['\"]?host", text)]
    found += [f" --cap-add={name}" for name in re.findall(r"['\"\s\[-](ALL|SYS_[A-Z]+|DAC_READ_SEARCH)\b", text)]
    mounts = re.findall(r"(?:[-\[,]|source:)\s*['\"]?([~/][^:\s'\"]{0,200})(?=:/|['\"\s])", text)
    return "".join([*found, *(f" -v {path}:" for path in mounts)])


def in_container(call: Call, argv: list[str]) -> str:
    """What runs in another container harms that container: its root, its credentials and foreign code still count."""
    outer, call.machine.effects = call.machine.effects, {}
    try:
        out = call.machine.simple(list(argv), call.state.detached(), call.feed)
    finally:
        inner, call.machine.effects = call.machine.effects, outer
    for effect in inner:
        if effect.kind in _FOREIGN or (effect.kind, effect.path_class) in _FOREIGN:
            outer[effect] = None
    return out


def _network_code(call: Call, words: list[str]) -> None:
    for index, word in enumerate(words[:-2]):
        if word in SHELLS and re.fullmatch(r"-\w*c", words[index + 1]) and NETWORK in words[index + 2]:
            call.emit("exec.network", show(words[index + 2]))


@program("npx bunx pnpx uvx pipx")
def _npx(call: Call) -> str | None:
    options = call.options("cp", ("package", "call", "spec", "from", "with", "python"), posix=True)
    for text in options.all("c", "call"):
        call.shell(text)
    rest = [word for word in options.rest if word not in ("run",)]
    call.emit("exec.build")
    return call.run(rest) if rest and solid(rest[0]) in PROGRAMS else None


@program(
    "cross-env env-cmd uv poetry pipenv hatch pdm rye bundle conda mamba micromamba nix-shell "
    "nix direnv mise asdf corepack rbenv pyenv volta"
)
def _runner(call: Call) -> str | None:
    args = [solid(arg) for arg in call.args]
    if call.name in ("nix", "nix-shell") and re.search(r"(?:^|\s)(?:tarball\+)?https?://", " ".join(args)):
        call.emit("exec.network")
    for marker in ("run", "exec", "--run", "--command", "-c"):
        if marker in args[:4]:
            rest = call.args[args.index(marker) + 1 :]
            if marker in ("--run",) and rest:
                return call.shell(rest[0])
            call.args, saved = rest, call.args
            words = call.options(
                "npm",
                ("name", "with", "python", "package", "env-file", "extra", "group", "prefix", "directory", "project"),
                posix=True,
            ).rest
            call.args = saved
            return call.run(words[1:] if call.name == "direnv" else words)
    while call.name == "cross-env" and args and re.match(r"\w+=", args[0]):
        args.pop(0)
    if call.name in ("cross-env", "env-cmd"):
        return call.run(args)
    call.emit("exec.install" if {"install", "add", "sync", "update", "upgrade"} & set(args[:3]) else "exec.build")
    return FILE if re.search(r"init|hook|shell|activate|env|shellenv", " ".join(args[:2])) else None


@program("expect unexpect")
def _expect(call: Call) -> str | None:
    for spawned in re.findall(r"(?:spawn|exec|system)\s+([^;\n}]+)", call.handed()):
        call.shell(spawned)
    return None


@program("gdb lldb")
def _debugger(call: Call) -> str | None:
    text = call.handed()
    for path in call.options("xs", ("command", "source")).all("x", "s", "command", "source"):
        call.load(path)
    for found in re.findall(r"^\s*['\"]?(?:!|(?:platform )?shell\s+|pipe\s[^|\n]*\|)([^'\"\n]+)", text, re.M):
        call.shell(found)
    if re.search(r"generate-core-file|\bgcore\b|dump memory", text):
        call.machine.emit("read", "the memory of another process", "secret", program=call.name)
    for path in re.findall(r"dlopen\w*\s*\(\s*\"([^\"]+)\"", text):
        call.load(path)
    for found in re.findall(r"call\s+(?:\(\w+\))?system\(\"([^\"]+)\"\)", text):
        call.shell(found)
    if re.search(r"(^|\s)(-p|--pid|attach)[=\s]*1(\s|$)", text):
        call.emit("kernel.namespace")
    if "python" in text or "script" in text:
        from .interpreters import scan

        for found in re.findall(r"(?:python|script)\s+(.+)", text):
            scan(call, "python", found.rstrip("'\""))
    return None
