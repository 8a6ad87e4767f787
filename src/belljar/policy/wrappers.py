"""Programs that run other programs: each is taken off and what it runs is judged in its place."""

import re
import shlex

from .call import PROGRAMS, Call, Options, program
from .machine import Feed
from .marks import ATOM, DISGUISED, ENCODED, FILE, NETWORK, STAR, UNKNOWN, has, known, show, solid, unglob
from .quoting import listed

# name: short options with a value, long options with a value, operands before the command
_PLAIN: dict[str, tuple[str, tuple[str, ...], int]] = {
    "nohup": ("", (), 0),
    "nice": ("n", ("adjustment",), 0),
    "ionice": ("cnpPu", ("class", "classdata"), 0),
    "timeout": ("ks", ("kill-after", "signal"), 1),
    "gtimeout": ("ks", ("kill-after", "signal"), 1),
    "stdbuf": ("ioe", ("input", "output", "error"), 0),
    "setsid": ("", (), 0),
    "time": ("fo", ("format", "output"), 0),
    "chrt": ("TPD", (), 1),
    "taskset": ("", (), 1),
    "strace": ("eopsEuaIPXbO", (), 0),
    "ltrace": ("eopsuaAFlnx", (), 0),
    "valgrind": ("", (), 0),
    "unbuffer": ("", (), 0),
    "fakeroot": ("lsib", (), 0),
    "chronic": ("", (), 0),
    "dbus-run-session": ("", (), 0),
    "dbus-launch": ("", (), 0),
    "xvfb-run": ("nefspl", (), 0),
    "linux32": ("", (), 0),
    "linux64": ("", (), 0),
    "setarch": ("", (), 1),
    "numactl": ("CmNpil", (), 0),
    "faketime": ("f", (), 1),
    "rlwrap": ("Sc", (), 0),
    "torsocks": ("", (), 0),
    "proxychains": ("f", (), 0),
    "proxychains4": ("f", (), 0),
    "eatmydata": ("", (), 0),
    "catchsegv": ("", (), 0),
    "prlimit": ("p", (), 0),
    "choom": ("np", (), 0),
    "ccache": ("", (), 0),
    "sccache": ("", (), 0),
    "tsocks": ("", (), 0),
    "trickle": ("du", (), 0),
    "winpty": ("", (), 0),
    "fakechroot": ("", (), 0),
    "retry": ("tdn", (), 0),
    "dotenv": ("fe", (), 0),
    "exec-with": ("", (), 0),
    "caffeinate": ("tw", (), 0),
    "coproc": ("", (), 0),
    "hyperfine": ("wmMrnspcL", ("warmup", "runs", "prepare", "export-json", "export-markdown", "min-runs"), 0),
    "entr": ("", (), 0),
    "perf": ("eopCtr", (), 1),
    "arch": ("", (), 0),
    "daemonize": ("paecoEuls", (), 0),
    "sem": ("j", ("jobs", "id"), 0),
    "logsave": ("", (), 1),
    "gprofng": ("", (), 2),
    "ld.so": ("", ("library-path", "preload", "argv0"), 0),
    "dumb-init": ("r", (), 0),
    "tini": ("pe", (), 0),
    "catatonit": ("", (), 0),
    "systemd-inhibit": ("", (), 0),
    "runcon": ("turl", (), 0),
    "cgexec": ("g", (), 0),
}
SHELLS = frozenset(listed("sh bash dash zsh ksh mksh ash fish csh tcsh rbash pdksh yash elvish nu pwsh"))


@program(" ".join(_PLAIN))
def _wrapped(call: Call) -> str | None:
    valued, long, skip = _PLAIN[call.name]
    options = call.options(valued, long, posix=True)
    words = options.rest[skip:]
    if call.name in ("hyperfine", "entr"):
        for text in (*words, *options.all("prepare", "p", "s", "c")) if call.name != "entr" else ():
            call.shell(text.removeprefix("-c"))
        return call.run(words) if call.name == "entr" else None
    target = options.get("o", "output") if call.name in ("time", "strace", "ltrace") else ""
    if target[:1] in ("|", "!"):
        call.shell(target[1:])
    elif target:
        call.write(target)
    if call.name in ("strace", "ltrace") and "1" in options.all("p"):
        call.emit("kernel.namespace")
    if options.get("preload"):
        call.emit("persist.env", f"--preload {options.get('preload')}")
    while words and re.match(r"[A-Za-z_]\w*=", words[0]) and call.name == "coproc":
        words.pop(0)
    return call.run(words) if words else ""


@program(" ".join(SHELLS))
def _shell(call: Call) -> str | None:
    if call.machine.privileged:
        call.emit("privilege.become")
    if call.name == "pwsh":
        return _powershell(call)
    call.args = [arg for arg in call.args if not re.fullmatch(r"\+[a-zA-Z]+", arg)]
    options = call.options("oO", ("rcfile", "init-file"), posix=True)
    if "n" in options.flags:
        return ""
    for startup in options.all("rcfile", "init-file"):
        call.run_file(startup, [])
    if "c" in options.flags:
        if not options.rest:
            return ""
        text = unglob(options.rest[0])
        if not solid(text).strip(UNKNOWN + " ") and UNKNOWN in text:
            call.emit("exec.unseen", text)
        return call.shell(text, options.rest[1:])
    if options.rest and "s" not in options.flags:
        return call.run_file(options.rest[0], options.rest[1:])
    return feed_shell(call, options.rest)


def _powershell(call: Call) -> str | None:
    """PowerShell on Linux: its own verbs for deleting, everything else as if it were a shell."""
    text = unglob(" ".join(arg for arg in call.args if not arg.startswith("-")))
    if re.search(r"(?i)(^|\s)-e(nc|ncodedcommand|c)?\s", " ".join(call.args)):
        call.emit("exec.disguised")
    for found in re.findall(r"(?i)(?:Remove-Item|ri|rd|Clear-Content)\s+([^;|]+)", " ".join(call.args)):
        for path in re.findall(r"(?:^|\s)([^\s-]\S*)", found):
            call.delete(path, "recursive")
    if re.search(r"(?i)\b(iex|Invoke-Expression)\b", text) and re.search(
        r"(?i)iwr|Invoke-WebRequest|DownloadString|http", text
    ):
        call.emit("exec.network")
        return None
    return call.shell(text) if re.match(r"[a-z]", text) else None


def feed_shell(call: Call, args: list[str]) -> str | None:
    """A shell that reads its commands from standard input."""
    text = call.stdin
    call.machine.blind_shell |= call.machine.fifos
    if NETWORK in text:
        call.emit("exec.network", text)
    elif has(text, ENCODED + DISGUISED):
        call.emit("exec.disguised", text)
    elif has(text, UNKNOWN) and not known(text):
        call.emit("exec.unseen", text)
    return call.shell(text, [call.name, *args], Feed()) if text and not text.strip(FILE + "\n") == "" else None


@program("busybox toybox")
def _busybox(call: Call) -> str:
    return call.run(call.args)


@program("sudo doas gksudo kdesudo sudoedit please")
def _sudo(call: Call) -> str:
    options = call.options("ugChpTDRUrt", ("user", "group", "chdir", "host", "prompt"), posix=True)
    words = list(options.rest)
    while words and re.match(r"[A-Za-z_]\w*=", words[0]):
        name, _, value = words.pop(0).partition("=")
        call.machine.set(name, value, call.state.fork(), "sudo")
    name = unglob(solid(words[0])).rsplit("/", 1)[-1] if words else ""
    if call.name == "sudoedit" or options.has("e", "edit"):
        for path in words:
            call.write(path)
        return ""
    if options.has("i", "s", "login", "shell") or name in SHELLS or name in ("su", "login"):
        call.emit("privilege.become")
    elif words or not options.has("l", "k", "K", "v", "V", "h", "list", "version", "help"):
        call.emit("privilege.sudo")
    call.machine.privileged += 1
    try:
        return call.run(words)
    finally:
        call.machine.privileged -= 1


@program(
    "su runuser setpriv pkexec run0 sg machinectl gksu sux flatpak-spawn gosu su-exec chpst newgrp "
    "login capsh machinectl-shell"
)
def _become(call: Call) -> str:
    if call.args in (["--help"], ["--version"], ["--print"]):
        return ""
    call.emit("privilege.become")
    if call.name == "machinectl" and call.args[:1] not in (["shell"], ["login"]):
        return ""
    options = call.options("cgGsu", ("command", "group", "shell", "user"))
    for text in options.all("c", "command"):
        call.shell(text)
    if call.name in ("gosu", "su-exec", "setpriv") and len(options.rest) > 1:
        call.run(options.rest[1:])
    return ""


@program(
    "unshare nsenter chroot pivot_root bwrap proot switch_root systemd-nspawn runc crun ctr lxc-attach "
    "schroot lxc crictl firejail nsjail systemd-mount udisksctl aa-teardown aa-exec aa-complain"
)
def _namespace(call: Call) -> str:
    if call.args in (["--help"], ["--version"], ["list"]) or (
        call.name == "udisksctl" and call.args[:1] in (["status"], ["info"])
    ):
        return ""
    call.emit("kernel.namespace")
    options = call.options("tSGrwR", ("target", "setuid", "setgid", "root", "wd"), posix=True)
    return call.run(options.rest[1:] if call.name == "chroot" else options.rest)


@program("xargs gxargs")
def _xargs(call: Call) -> str:
    options = call.options(
        "aEILnPsd", ("arg-file", "max-args", "max-procs", "delimiter", "replace", "max-lines"), posix=True
    )
    text = call.read(options.get("a", "arg-file")) if options.get("a", "arg-file") else call.stdin
    items = _items(text, options)
    words = options.rest or ["echo"]
    token = options.get("I", "replace") or ("{}" if options.has("i", "replace") else "")
    out = ""
    if token:
        for item in items[:40]:
            out += call.run([word.replace(token, item) for word in words], Feed())
        return out
    size = (
        int(options.get("n", "max-args", "L", "max-lines") or 0)
        if (options.get("n", "max-args", "L") or "0").isdigit()
        else 0
    )
    for start in range(0, max(1, min(len(items), 200)), size or 200):
        out += call.run(words + items[start : start + (size or 200)], Feed())
    return out


def _items(text: str, options: Options) -> list[str]:
    if options.has("0", "null"):
        return [item for item in re.split(r"[\0\n]", text) if item]
    delimiter = options.get("d", "delimiter")
    if delimiter:
        from .quoting import ansi_c

        return [item for item in text.rstrip("\n").split(ansi_c(delimiter)) if item]
    if "I" in options.values or "replace" in options.values or "i" in options.flags:
        return [line.strip() for line in text.splitlines() if line.strip()]
    if re.search(r"['\"\\]", text) and known(text):
        try:
            return shlex.split(text)
        except ValueError:
            pass
    return text.split()


@program("parallel rush")
def _parallel(call: Call) -> str:
    words, _, literal = ("\0" + "\0".join(call.args)).partition("\0:::\0")
    words = words.lstrip("\0")
    argv = words.split("\0") if words else []
    call.args = argv
    options = call.options(
        "jNna", ("jobs", "arg-file", "colsep", "max-args", "results", "joblog", "timeout"), posix=True
    )
    if options.has("pipe", "spreadstdin"):
        return call.run(options.rest)
    listed = [line for path in options.all("a", "arg-file") for line in call.read(path).splitlines()]
    items = literal.split("\0") if literal else listed or [line for line in call.stdin.splitlines() if line] or [ATOM]
    command = " ".join(options.rest)
    if not command:
        return "".join(call.shell(item) for item in items[:40])
    return "".join(
        call.shell(command.replace("{}", item) if "{" in command else f"{command} {item}") for item in items[:40]
    )


@program("pee mispipe")
def _pee(call: Call) -> str:
    return "".join(call.shell(unglob(arg)) for arg in call.args)


@program("watch")
def _watch(call: Call) -> str:
    options = call.options("nqs", ("interval",), posix=True)
    return call.shell(unglob(" ".join(options.rest)))


@program("flock")
def _flock(call: Call) -> str:
    options = call.options("wEc", ("timeout", "wait", "conflict-exit-code", "command"), posix=True)
    rest = options.rest[1:]
    text = options.get("c", "command")
    if rest and rest[0] in ("-c", "--command"):
        text = " ".join(rest[1:])
    return call.shell(unglob(text)) if text else call.run(rest)


@program("script scriptlive")
def _script(call: Call) -> str:
    options = call.options("cTtoIOBEm", ("command", "log-out", "timing"))
    for path in options.rest[:1]:
        call.write(path)
    return "".join(call.shell(unglob(text)) for text in options.all("c", "command"))


@program("find gfind")
def _find(call: Call) -> str:
    roots = []
    args = [arg for arg in call.args]
    while (args and args[0] in ("-H", "-L", "-P")) or (args and args[0].startswith("-O")):
        args.pop(0)
    while args and not re.match(r"-|\(|!|\\\(", solid(args[0])):
        roots.append(args.pop(0))
    roots = roots or ["."]
    narrow = _narrows(args)
    name = next((unglob(args[index + 1]) for index, arg in enumerate(args[:-1]) if arg == "-name"), "")
    found = [_secret_found(call, root, args) or _found(root, narrow, name) for root in roots]
    for index, arg in enumerate(args):
        if arg == "-delete":
            for root in roots:
                call.delete(_found(root, narrow, name), "recursive")
        elif arg in ("-exec", "-execdir", "-ok", "-okdir"):
            _find_exec(call, args[index + 1 :], found)
        elif arg in ("-fprint", "-fprintf", "-fprint0", "-fls") and index + 1 < len(args):
            call.write(args[index + 1])
        elif arg == "-files0-from" and index + 1 < len(args):
            call.read(args[index + 1])
    return "".join(
        f"{item}\n" + (f"{item.rstrip('/')}/{STAR}\n" if item in roots and not narrow else "") for item in found
    )


def _narrows(args: list[str]) -> bool:
    """Whether a test picks some files out; without one, find takes everything below its root."""
    if "-type" in args[:-1] and args[args.index("-type") + 1] in ("l", "p", "s"):
        return True
    tests = {
        "-name",
        "-iname",
        "-path",
        "-ipath",
        "-regex",
        "-mtime",
        "-mmin",
        "-size",
        "-newer",
        "-empty",
        "-user",
        "-wholename",
        "-iregex",
        "-atime",
        "-ctime",
        "-perm",
        "-cmin",
        "-inum",
        "-newermt",
    }
    for index, arg in enumerate(args):
        if arg in tests:
            value = unglob(args[index + 1]) if index + 1 < len(args) else ""
            if arg == "-empty" or (
                value.strip("*?./!-+0")
                and not (index and args[index - 1] in ("!", "-not") and arg in ("-name", "-path"))
            ):
                return True
    return False


def _found(root: str, narrow: bool, name: str = "") -> str:
    base = root.rstrip("/") if root.strip("/") else ""
    if not narrow:
        return root
    return f"{base}/{name}" if known(name) and name and not re.search(r"[*?\[]", name) else f"{base}/{ATOM}/{ATOM}"


def _find_exec(call: Call, words: list[str], found: list[str]) -> None:
    if words[:1] and words[0] in ("chown", "chgrp") and found and not has(found[0], ATOM):
        words = [words[0], "-R", *words[1:]]
    elif (
        words[:1] == ["chmod"]
        and found
        and not has(found[0], ATOM)
        and re.search(r"^0+$|777|666|[ao]\+\w*w|^[ago]*-", words[1] if len(words) > 1 else "")
    ):
        words = ["chmod", "-R", *words[1:]]
    end = next((i for i, word in enumerate(words) if word in (";", "+", "\\;")), len(words))
    for item in found:
        call.run([word.replace("{}", item) for word in words[:end]], Feed())


def _secret_found(call: Call, root: str, args: list[str]) -> str:
    """A search for keys in homes or the whole system finds keys."""
    full, kind, _ = call.locate(root)
    names = unglob(" ".join(args))
    if kind in ("root", "home", "system", "kernel", "secret"):
        if re.search(
            r"id_|\.pem|\.key\b|credential|\.aws|\.ssh|\.netrc|\.kube|\.pgpass|\.git-cred|\.gnupg|token|"
            r"secret|passw",
            names,
        ):
            return "/home/sandbox/.ssh/id_rsa"
        if re.search(r"shadow|sudoers", names):
            return "/etc/shadow"
        if "environ" in names and kind in ("kernel", "root"):
            return "/proc/1/environ"
    return full if kind == "secret" else ""


@program("ssh autossh mosh sshpass dropbear dbclient sftp")
def _ssh(call: Call) -> str | None:
    options = call.options("bcDEeFIiJLlmOopQRSWwB", posix=True)
    if call.name == "sshpass":
        return call.run(call.options("pfPe", posix=True).rest)
    for option in options.all("o"):
        key, _, value = re.sub(r"^\s*(\w+)[\s=]+", r"\1=", option).partition("=")
        if key.lower() in ("proxycommand", "localcommand", "knownhostscommand") and value.lower() != "none":
            call.emit("exec.hidden", option)
            call.shell(value)
    for key in options.all("i"):
        call.locate(key)
    if options.all("R", "D", "w"):
        call.emit("net.tunnel")
    for path in re.findall(r"(?m)^\s*(?:m?put|reput)\s+(\S+)", call.stdin) if call.name == "sftp" else []:
        call.read(path)
    if call.name == "sftp":
        return NETWORK
    remote = " ".join(options.rest[1:])
    call.emit("net.remote", options.rest[0] if options.rest else "")
    from .network import sends

    sends(call, call.stdin, options.rest[0] if options.rest else "")
    if remote:
        state = call.state.fork()
        state.cwd = "/home/sandbox"
        with call.machine.under("ssh"):
            call.machine.run_text(unglob(remote), state, call.feed)
    return NETWORK


@program("tmux screen byobu")
def _terminal(call: Call) -> str | None:
    words = [unglob(arg) for arg in call.args]
    for index, word in enumerate(words):
        if word in ("send-keys", "send", "stuff"):
            call.shell(
                " ".join(w for w in words[index + 1 :] if w not in ("Enter", "C-m", "-t") and not w.startswith("-"))
            )
        elif word in (
            "-dm",
            "-dmS",
            "-m",
            "new",
            "new-session",
            "new-window",
            "neww",
            "split-window",
            "run-shell",
            "run",
            "respawn-pane",
            "if-shell",
        ):
            rest = call.args[index + 1 :]
            call.args, saved = rest, call.args
            options = call.options("tncsxyFeSlp", posix=True)
            call.args = saved
            body = options.rest[1:] if word == "-dmS" else options.rest
            call.shell(unglob(body[0])) if len(body) == 1 else call.run(body)
    return None


@program("docker podman nerdctl docker-compose")
def _docker(call: Call) -> str | None:
    text = " ".join(solid(arg) for arg in call.args)
    if re.search(
        r"--privileged|--pid[= ]host|--net(work)?[= ]host.*--pid|--cap-add[= ](ALL|SYS_ADMIN|SYS_PTRACE|"
        r"SYS_MODULE|DAC_READ_SEARCH)|--security-opt[= ](apparmor|seccomp)[=:]unconfined|--device[= "
        r"]/dev/(sd|nvme|mem|kmsg)|--userns[= ]host|--ipc[= ]host",
        text,
    ):
        call.emit("kernel.engine")
    for mount in re.findall(r"(?:-v|--volume)[= ]?(\S+?):|(?:source|src)=([^,\s]+)", text):
        source = next(part for part in mount if part) if any(mount) else ""
        full, kind, flags = call.locate(source) if source.startswith(("/", "~", ".", "$")) else ("", "", frozenset())
        if kind in ("root", "system", "device", "secret", "kernel") or (kind == "home" and "inner" not in flags):
            call.emit("kernel.engine")
    if re.match(r"(system|volume|image|container|network|builder) prune|system prune|rm -f \S*…|volume rm", text):
        call.emit("exec.prune")
    words = [arg for arg in call.args]
    if (
        words[:1] == ["exec"]
        or words[:1] == ["run"]
        or words[:2] == ["compose", "exec"]
        or words[:2] == ["compose", "run"]
    ):
        _in_container(call, words)
    call.emit("exec.build", "", "network") if re.search(r"^(build|push|pull|compose (up|build))", text) else None
    return None


def _in_container(call: Call, words: list[str]) -> None:
    """What runs in another container harms that container; only secrets and scripts from the network are looked at."""
    for index, word in enumerate(words):
        if (
            word in SHELLS
            and index + 2 < len(words)
            and re.fullmatch(r"-\w*c", words[index + 1])
            and NETWORK in words[index + 2]
        ):
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
    options = call.options("cf", ())
    for text in (*options.all("c"), call.stdin):
        for spawned in re.findall(r"(?:spawn|exec|system)\s+([^;\n}]+)", text):
            call.shell(spawned)
    return None


@program("gdb lldb")
def _debugger(call: Call) -> str | None:
    text = unglob(" ".join(call.args)) + "\n" + call.stdin
    for found in re.findall(r"(?:-ex\s+|^\s*)['\"]?(?:!|shell\s+)([^'\"\n]+)", text, re.M):
        call.shell(found)
    for found in re.findall(r"call\s+(?:\(\w+\))?system\(\"([^\"]+)\"\)", text):
        call.shell(found)
    if re.search(r"(^|\s)(-p|--pid|attach)[= ]*1(\s|$)", text):
        call.emit("kernel.namespace")
    if "python" in text:
        from .interpreters import scan

        for found in re.findall(r"python\s+(.+)", text):
            scan(call, "python", found.rstrip("'\""))
    return None
