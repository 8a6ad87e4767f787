"""Shells: the text they are given by -c, by a file or on their standard input is judged in their place."""

import re

from .call import Call, program
from .feed import Feed
from .marks import DISGUISED, ENCODED, FILE, NETWORK, UNKNOWN, has, known, solid, unglob
from .quoting import listed

SHELLS = frozenset(listed("sh bash dash zsh ksh mksh ash fish csh tcsh rbash pdksh yash elvish nu"))


@program(" ".join(SHELLS))
def _shell(call: Call) -> str | None:
    if call.machine.privileged:
        call.emit("privilege.become")
    call.args = [arg for arg in call.args if not re.fullmatch(r"\+[a-zA-Z]+", arg)]
    options = call.options("oO", ("rcfile", "init-file"), posix=True)
    if "n" in options.flags:
        return ""
    for startup in options.all("rcfile", "init-file"):
        call.run_file(startup, [])
        if call.locate(startup)[1] not in ("workspace", "workspace_root") and startup != "/dev/null":
            call.emit("persist.env", f"--rcfile {startup}")
    if "c" in options.flags:
        text = unglob(options.rest[0]) if options.rest else ""
        if not solid(text).strip(UNKNOWN + " ") and UNKNOWN in text:
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
    elif has(text, ENCODED + DISGUISED):
        call.emit("exec.disguised", text)
    elif has(text, UNKNOWN) and not known(text):
        call.emit("exec.unseen", text)
    return call.shell(text, [call.name, *args], Feed()) if text and text.strip(FILE + "\n") != "" else None


@program("pwsh powershell")
def _powershell(call: Call) -> str | None:
    """PowerShell on Linux: its own verbs for deleting, everything else as if it were a shell."""
    whole = " ".join(call.args)
    text = unglob(" ".join(arg for arg in call.args if not arg.startswith("-")))
    if re.search(r"(?i)(^|\s)-e(nc|ncodedcommand|c)?\s", whole):
        call.emit("exec.disguised")
    for found in re.findall(r"(?i)(?:Remove-Item|ri|rd|Clear-Content)\s+([^;|]+)", whole):
        for path in re.findall(r"(?:^|\s)([^\s-]\S*)", found):
            call.delete(path, "recursive")
    fetches = re.search(r"(?i)iwr|Invoke-WebRequest|DownloadString|http", text)
    if NETWORK in call.stdin or (fetches and re.search(r"(?i)\b(iex|Invoke-Expression)\b", text)):
        call.emit("exec.network")
        return None
    return call.shell(text) if re.match(r"[a-z]", text) else None
