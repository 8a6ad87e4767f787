"""Shells: the text they are given by -c, by a file or on their standard input is judged in their place."""

import re

from .call import Call, program
from .feed import Feed
from .marks import FILE, HIDDEN, NETWORK, UNKNOWN, has, known, solid, unglob
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
    elif has(text, HIDDEN):
        call.emit("exec.disguised", text)
    elif has(text, UNKNOWN) and not known(text):
        call.emit("exec.unseen", text)
    return call.shell(text, [call.name, *args], Feed()) if text and text.strip(FILE + "\n") != "" else None
