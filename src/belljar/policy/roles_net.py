"""Roles of arguments that use the network: fetched text is marked NETWORK, sent text is checked for secrets."""

import re

from . import expressions
from .call import Call
from .files import host_of, is_loopback
from .marks import (
    ENCODED,
    FILE,
    NETWORK,
    PRIVATE,
    SECRET,
    SENSITIVE,
    STAR,
    UNKNOWN,
    UNSET,
)

from .marks import drop_unset, has, known, plain_text, show  # isort: skip
from .reading import WORD_ROLES, Reading
from .roles_run import remote, shell

_VENDORS = {
    "gh": "github",
    "hf": "huggingface",
    "npm": "npm|registry",
    "azure": "azure|microsoft",
}


def _meant_for(text: str, host: str) -> bool:
    """Whether a credential goes to the vendor that its variable names; if it names none, to any host."""
    vendor = re.search(rf"{SENSITIVE}{UNSET}?([a-z]+)", text)
    return (
        vendor is None
        or re.search(_VENDORS.get(vendor[1], vendor[1]), host) is not None
    )


def fetch(reading: Reading, url: str) -> None:
    if url.startswith("file:"):
        reading.add_content(reading.call.read(drop_unset(url)[7:]))
        return
    reading.call.emit("net.fetch", show(url))
    reading.add_content(UNKNOWN if is_loopback(host_of(url)) else NETWORK)
    metadata(reading.call, url)


def metadata(call: Call, url: str) -> None:
    """A cloud's metadata service gives out the machine's credentials."""
    if expressions.holds("metadata", drop_unset(url)):
        call.machine.emit("read", show(url), "secret", program=call.name)


def download(reading: Reading, url: str) -> None:
    """Fetch a file and save it, under its own name unless an option gives another."""
    fetch(reading, url)
    name = (
        re.split(r"[?#]", drop_unset(url).rstrip("/"))[0].rsplit("/", 1)[-1]
        or "index.html"
    )
    if "named" not in reading.flags:
        reading.call.write(
            f"{reading.mode}/{name}" if reading.mode else name, reading.content
        )


def send(reading: Reading, text: str) -> None:
    """The body of a request: a text, or a file after @."""
    found = re.match(r"[\w.\[\]-]*=?[@<]([^;\s]+)", text)
    reading.add_sent(reading.call.read(found[1]) if found else text)


def header(reading: Reading, text: str) -> None:
    """A header of a request. A header for credentials may carry one to the vendor that it is for."""
    auth = re.match(
        r"(?i)(authorization|.*(token|key|auth|secret|cookie)[\w-]*)\s*:", text
    )
    if SECRET in text or (
        SENSITIVE in text and not (auth and _meant_for(text, host_of(reading.target)))
    ):
        reading.sent += SENSITIVE


def host(reading: Reading, name: str) -> None:
    """The other end of a raw connection."""
    call = reading.call
    flags = reading.flags
    if "probe" in flags:
        return
    if "unix" in flags:
        call.use_socket(name)
        return
    if call.machine.fifos:
        call.emit("net.shell")
    if "listen" in flags:
        call.emit("net.listen")
        if has(call.stdin, PRIVATE):
            call.emit("net.send", "whoever connects", "sensitive")
        return
    name = host_of(name) if "://" in name else name
    local = is_loopback(name) or re.fullmatch(r"[a-z][a-z0-9_-]*", name) is not None
    call.emit("net.socket", name, *(["local"] if local else []))
    if not local and has(call.stdin, FILE + PRIVATE + ENCODED + UNKNOWN):
        call.emit("net.send", name, "raw")


def net_shell(reading: Reading, command: str) -> None:
    reading.call.emit("net.shell")
    shell(reading, [command])


def socat(reading: Reading, text: str) -> None:
    for command in re.findall(r"(?i)(?:EXEC|SYSTEM|SHELL):([^,]+)", text):
        net_shell(reading, command.strip("'\""))
    for path in re.findall(r"(?i)UNIX[\w-]*:([^,\s]+)", text):
        reading.call.use_socket(path)
    other = re.match(r"(?i)(?:TCP|UDP|OPENSSL|SCTP)\d?(?:-\w+)?:([^:,\s]+)", text)
    if other and "LISTEN" not in text.upper():
        reading.call.emit(
            "net.socket", text, *(["local"] if is_loopback(other[1]) else [])
        )
    for path in re.findall(r"(?i)(?:FILE|OPEN|GOPEN|CREATE):([^,\s]+)", text):
        reading.call.read(path)


def tls(reading: Reading, name: str) -> None:
    """A TLS client. Without input it only shows the certificate."""
    reading.target = name
    if reading.call.stdin.strip(" \nQ") or reading.call.machine.fifos:
        host(reading, name.partition(":")[0])
        reading.call.send(reading.call.stdin, name)


def ssh_host(reading: Reading, name: str) -> None:
    call = reading.call
    call.emit("net.remote", name)
    if name.startswith("root@") and is_loopback(name[5:]):
        call.emit("privilege.become")
    if has(call.stdin, PRIVATE + ENCODED):
        call.send(call.stdin, name)


def push_to(reading: Reading, word: str) -> None:
    """Where git pushes to: a remote, or an address that may contain a credential."""
    call = reading.call
    url = re.match(r"\w+://(?:([^/@]*)@)?([^/:]+)", word)
    held = call.machine.read_file(".git/COMMIT_EDITMSG", call.state) or ""
    files = "".join(call.state.files.values()) if held else ""
    if has(held + files, PRIVATE) or (not url and has(word, PRIVATE)):
        call.emit("net.send", "a remote", "sensitive")
    if url and url[1] and has(url[1], PRIVATE):
        if not expressions.holds("forges", url[2]):
            call.emit("net.send", word, "sensitive")
    elif url and not url[1] and not is_loopback(url[2]):
        call.emit("vcs.elsewhere", word)
    if call.machine.read_file(".git/config.remote", call.state):
        call.emit("vcs.elsewhere", "a remote whose address this command changed")


def process(reading: Reading, pid: str) -> None:
    everyone = drop_unset(pid) in ("-1", "1") or STAR in pid
    reading.call.emit("process.killall" if everyone else "process.kill", pid)


def process_name(reading: Reading, text: str) -> None:
    text = plain_text(text)
    everyone = not text.strip(".*^$ ") or re.fullmatch(
        r"init|systemd|dockerd|containerd|sshd|bash|sh", text
    )
    reading.call.emit("process.killall" if everyone else "process.kill", text)


def _sends(reading: Reading, text: str, marks: str, flag: str) -> None:
    if has(text, marks):
        reading.call.emit("net.send", text, flag)


WORD_ROLES.update(
    {
        "fetch": fetch,
        "download": download,
        "send": send,
        "header": header,
        "host": host,
        "net-shell": net_shell,
        "download-to": lambda reading, path: setattr(reading, "mode", path),
        "send-text": lambda reading, text: reading.add_sent(text),
        "socat": socat,
        "tls": tls,
        "ssh-host": ssh_host,
        "send-file": lambda reading, path: reading.add_sent(
            reading.call.read_all(path)
        ),
        "ssh-stdin": lambda reading, text: (
            remote(reading, [text]) if known(text) and len(reading.rest) < 2 else None
        ),
        "push-to": push_to,
        "new-remote": lambda reading, url: reading.call.machine.write_file(
            ".git/config.remote", url, reading.call.state
        ),
        "tunnel": lambda reading, _: reading.call.emit("net.tunnel"),
        "lookup": lambda reading, name: _sends(
            reading, name, PRIVATE + ENCODED, "encoded"
        ),
        "send-stdin": lambda reading, text: _sends(reading, text, PRIVATE, "sensitive"),
        "process": process,
        "process-name": process_name,
    }
)
