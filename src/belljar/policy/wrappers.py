"""Programs that run other programs: each is taken off and what it runs is judged in its place."""

import re

from .call import Call, program
from .compound import Feed
from .marks import DISGUISED, ENCODED, FILE, NETWORK, UNKNOWN, has, known, solid, unglob
from .quoting import listed

# name: short options with a value, long options with a value, operands before the command
_PLAIN: dict[str, tuple[str, tuple[str, ...], int]] = {
    **dict.fromkeys(("nohup", "!"), ("", (), 0)),
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
    **dict.fromkeys(("setarch", "x86_64", "i386", "i686", "aarch64", "uname26"), ("", (), 0)),
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
    valued, long, skip = _PLAIN.get(call.name) or _PLAIN["ld.so"]  # which has as many names as there are machines
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
    if call.name in ("strace", "ltrace", "perf") and "1" in options.all("p") + options.rest:
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
        if call.locate(startup)[1] not in ("workspace", "workspace_root") and startup != "/dev/null":
            call.emit("persist.env", f"--rcfile {startup}")
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
    if NETWORK in call.stdin:
        call.emit("exec.network")
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
    if not known(text):
        call.machine.run_suspects(call.state)
    if NETWORK in text:
        call.emit("exec.network", text)
    elif has(text, ENCODED + DISGUISED):
        call.emit("exec.disguised", text)
    elif has(text, UNKNOWN) and not known(text):
        call.emit("exec.unseen", text)
    return call.shell(text, [call.name, *args], Feed()) if text and text.strip(FILE + "\n") != "" else None


@program("busybox toybox")
def _busybox(call: Call) -> str:
    return call.run(call.args)


@program("sudo doas dzdo gksudo kdesudo sudoedit please")
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
    "su runuser setpriv pkexec run0 sg machinectl gksu sulogin agetty setuidgid sux flatpak-spawn gosu "
    "su-exec chpst newgrp ksu "
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


@program("pee mispipe")
def _pee(call: Call) -> str:
    return "".join(call.shell(unglob(arg)) for arg in call.args)


@program("watch")
def _watch(call: Call) -> str:
    options = call.options("nqs", ("interval",), posix=True)
    if options.has("x", "exec"):
        return call.run(options.rest)
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
    out = "".join(call.shell(unglob(text)) for text in options.all("c", "command"))
    return out + (call.run(options.rest[1:]) if len(options.rest) > 1 else "")
