"""Roles of arguments that speak to the network: what is fetched is tainted, what is sent is looked at."""

import re

from .call import Call
from .files import is_loopback
from .marks import ENCODED, FILE, NETWORK, SECRET, SENSITIVE, STAR, UNKNOWN, UNSET, has, known, show, solid, unglob
from .reading import MANY, ONE, Reading
from .roles_run import remote, shell

_HOST = re.compile(r"^(?:[a-z][a-z0-9+.-]*://)?(?:[^/@]*@)?(\[[0-9a-f:]+\]|[^/:?#]+)", re.I)
_METADATA = re.compile(
    r"169\.254\.(169\.254|170\.2)|metadata\.google\.internal|100\.100\.100\.200|fd00:ec2::254|metadata/identity/oauth2|"
    r"0xa9fea9fe|2852039166",
    re.I,
)
_ENGINE_API = re.compile(r":237[56]/(v[\d.]+/)?(containers|images|exec|build|volumes|plugins|swarm)")
_VENDORS = {"gh": "github", "hf": "huggingface", "npm": "npm|registry", "azure": "azure|microsoft"}
_FORGES = re.compile(r"(^|\.)(github\.com|gitlab\.com|bitbucket\.org|codeberg\.org|sr\.ht|dev\.azure\.com)$")


def host_of(url: str) -> str:
    found = _HOST.match(unglob(solid(url)))
    return found[1] if found else ""


def _meant_for(vendor: re.Match[str] | None, host: str) -> bool:
    """Whether a credential whose variable names a vendor goes to that vendor."""
    return vendor is not None and re.search(_VENDORS.get(vendor[1], vendor[1]), host) is not None


def fetch(reading: Reading, url: str) -> None:
    if url.startswith("file:"):
        reading.add(reading.call.read(solid(url)[7:]))
        return
    reading.call.emit("net.fetch", show(url))
    reading.add(UNKNOWN if is_loopback(host_of(url)) else NETWORK)
    metadata(reading.call, url)


def metadata(call: Call, url: str) -> None:
    """A cloud's metadata service hands out the machine's own credentials."""
    if _METADATA.search(solid(url)):
        call.machine.emit("read", show(url), "secret", program=call.name)
    if _ENGINE_API.search(solid(url)):
        call.emit("kernel.engine")


def fetch_here(reading: Reading, url: str) -> None:
    """What is fetched is kept under its own name, or under the one that an option gives."""
    fetch(reading, url)
    name = re.split(r"[?#]", solid(url).rstrip("/"))[0].rsplit("/", 1)[-1] or "index.html"
    if "named" not in reading.flags:
        reading.call.write(f"{reading.mode}/{name}" if reading.mode else name, reading.content)


def fetch_folder(reading: Reading, path: str) -> None:
    reading.mode = path


def send(reading: Reading, text: str) -> None:
    """The body of a request: text, or a file after @."""
    found = re.match(r"[\w.\[\]-]*=?[@<]([^;\s]+)", text)
    reading.sent += reading.call.read(found[1]) if found else text or " "


def send_text(reading: Reading, text: str) -> None:
    reading.sent += text or " "


def header(reading: Reading, text: str) -> None:
    """A header may carry a credential where it says so, to the host that the credential is for."""
    auth = (
        re.match(r"(?i)(authorization|.*(token|key|auth|secret|cookie)[\w-]*)\s*:", text) and "leak" not in text.lower()
    )
    vendor = re.search(rf"{SENSITIVE}([a-z]+)", solid(text))
    if SECRET in text:
        reading.sent += SECRET
    elif SENSITIVE in text and not (auth and (not vendor or _meant_for(vendor, host_of(reading.target)))):
        reading.sent += SENSITIVE
    elif ENCODED in text and not re.match(r"(?i)authorization", text):
        reading.sent += ENCODED


def http(reading: Reading, words: list[str], _: str) -> None:
    """httpie: METHOD address name=text name@file …"""
    words = words[1:] if re.fullmatch(r"[A-Z]+", words[0]) else words
    reading.target = words[0] if words else ""
    fetch(reading, reading.target)
    for found in filter(None, (re.match(r"[\w.-]+(:?=@?|@)(.*)", word) for word in words[1:])):
        reading.sent += reading.call.read(found[2]) if "@" in found[1] else found[2]
    reading.sent += reading.call.stdin


def host(reading: Reading, name: str) -> None:
    """The other end of a raw connection."""
    call, flags = reading.call, reading.flags
    if "probe" in flags:
        return
    if "unix" in flags:
        call.emit("kernel.engine") if "engine" in call.locate(name)[2] else None
        return
    if call.machine.fifos:
        call.emit("net.shell")
    if "listen" in flags:
        call.emit("net.listen")
        call.emit("net.send", "whoever connects", "sensitive") if has(call.stdin, SECRET + SENSITIVE) else None
        return
    name = host_of(name) if "://" in name else name
    local = is_loopback(name) or re.fullmatch(r"[a-z][a-z0-9_-]*", name) is not None
    call.emit("net.socket", name, *(["local"] if local else []))
    if not local and has(call.stdin, FILE + SECRET + SENSITIVE + ENCODED + UNKNOWN):
        call.emit("net.send", name, "raw")


def net_shell(reading: Reading, command: str) -> None:
    reading.call.emit("net.shell")
    shell(reading, [command])


def socat(reading: Reading, text: str) -> None:
    for command in re.findall(r"(?i)(?:EXEC|SYSTEM|SHELL):([^,]+)", text):
        net_shell(reading, command.strip("'\""))
    for path in re.findall(r"(?i)UNIX[\w-]*:([^,\s]+)", text):
        reading.call.emit("kernel.engine") if "engine" in reading.call.locate(path)[2] else None
    other = re.match(r"(?i)(?:TCP|UDP|OPENSSL|SCTP)\d?(?:-\w+)?:([^:,\s]+)", text)
    if other and "LISTEN" not in text.upper():
        reading.call.emit("net.socket", text, *(["local"] if is_loopback(other[1]) else []))
    for path in re.findall(r"(?i)(?:FILE|OPEN|GOPEN|CREATE):([^,\s]+)", text):
        reading.call.read(path)


def tls(reading: Reading, name: str) -> None:
    """A TLS client that is given text; without any it only looks at the certificate."""
    reading.target = name
    if reading.call.stdin.strip(" \nQ") or reading.call.machine.fifos:
        host(reading, name.partition(":")[0])
        reading.call.send(reading.call.stdin, name)


def ssh_host(reading: Reading, name: str) -> None:
    call = reading.call
    call.emit("net.remote", name)
    if name.startswith("root@") and is_loopback(name[5:]):
        call.emit("privilege.become")
    call.send(call.stdin, name) if has(call.stdin, SECRET + SENSITIVE + ENCODED) else None


def ssh_stdin(reading: Reading, text: str) -> None:
    remote(reading, [text]) if known(text) and len(reading.rest) < 2 else None


def push_to(reading: Reading, word: str) -> None:
    """A repository leaves for an address that is written out, perhaps with a credential in it."""
    call, url = reading.call, re.match(r"\w+://(?:([^/@]*)@)?([^/:]+)", word)
    held = call.machine.read_file(".git/COMMIT_EDITMSG", call.state) or ""
    files = "".join(call.state.files.values()) if held else ""
    if has(held + files, SECRET + SENSITIVE) or (not url and has(word, SECRET + SENSITIVE)):
        call.emit("net.send", "a remote", "sensitive")
    if url and url[1] and has(url[1], SECRET + SENSITIVE):
        meant = _meant_for(re.search(rf"{SENSITIVE}{UNSET}?([a-z]+)", url[1]), url[2])
        call.emit("net.send", word, "sensitive") if not meant and not _FORGES.search(url[2]) else None
    elif url and not url[1] and not is_loopback(url[2]):
        call.emit("vcs.elsewhere", word)
    if call.machine.read_file(".git/config.remote", call.state):
        call.emit("vcs.elsewhere", "a remote whose address this command changed")


def process(reading: Reading, pid: str) -> None:
    everyone = solid(pid) in ("-1", "1") or STAR in pid
    reading.call.emit("process.killall" if everyone else "process.kill", pid)


def process_name(reading: Reading, text: str) -> None:
    text = unglob(solid(text))
    everyone = not text.strip(".*^$ ") or re.fullmatch(r"init|systemd|dockerd|containerd|sshd|bash|sh", text)
    reading.call.emit("process.killall" if everyone else "process.kill", text)


def _sends(reading: Reading, text: str, marks: str, flag: str) -> None:
    reading.call.emit("net.send", text, flag) if has(text, marks) else None


MANY["http"] = http
ONE.update({
    "fetch": fetch, "fetch-here": fetch_here, "fetch-folder": fetch_folder, "send": send, "send-text": send_text,
    "send-file": lambda reading, path: send_text(reading, reading.call.take(path)), "header": header, "host": host,
    "net-shell": net_shell, "socat": socat, "tls": tls, "ssh-host": ssh_host, "ssh-stdin": ssh_stdin,
    "push-to": push_to,
    "new-remote": lambda reading, url: reading.call.machine.write_file(".git/config.remote", url, reading.call.state),
    "tunnel": lambda reading, _: reading.call.emit("net.tunnel"),
    "lookup": lambda reading, name: _sends(reading, name, SECRET + SENSITIVE + ENCODED, "encoded"),
    "send-stdin": lambda reading, text: _sends(reading, text, SECRET + SENSITIVE, "sensitive"),
    "process": process, "process-name": process_name,
})  # fmt: skip
