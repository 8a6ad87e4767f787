"""Presets: the hosts that pip, npm, apt, cargo, go and git use, as their own settings on this machine say.

No host is written down here. Each client is asked where it goes (its configuration, its environment, its own default),
and a package index is asked where its files are. Settings in a workspace are not read: they may be an attacker's.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit

from belljar.errors import UsageError
from belljar.network.addresses import refusal

SECONDS = 20.0
INDEX_MAX = 32 << 20
_URL = re.compile(r"\bhttps?://[^\s'\"`<>,)]+")

Ask = Callable[[list[str]], str]
"""Runs a client and gives what it printed, '' if it is not there or failed."""


@dataclass(frozen=True)
class Found:
    host: str
    """As `Allow` takes it."""
    why: str


def explain(preset: str, ask: Ask | None = None, workspace: str | None = None) -> list[Found]:
    """Which hosts a preset comes to on this machine, and why. Blocks: runs clients and asks indexes."""
    if preset not in PRESETS:
        raise UsageError(f"{preset!r} is not a preset; there are {', '.join(sorted(PRESETS))}")
    found: dict[str, Found] = {}
    for url, why in PRESETS[preset](ask or on_this_machine, workspace):
        if (host := _pattern(url)) and host not in found:
            found[host] = _placed(host, why)
    if not found:
        raise UsageError(f"preset {preset}: its clients are not on this machine, or name no host; use --allow HOST")
    return list(found.values())


def _placed(host: str, why: str) -> Found:
    """A mirror or registry of one's own often has a private address: the preset lets its name lead there."""
    name, _, port = host.partition(":") if not host.startswith("[") else (host, "", "")
    try:
        entries = socket.getaddrinfo(name, int(port or 443), type=socket.SOCK_STREAM)
    except (OSError, ValueError):
        return Found(host, why)
    addresses = {ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in entries}
    private = sorted(str(each) for each in addresses if refusal(each))
    if not private or name == private[0]:
        return Found(host, why)
    return Found(f"{host}={','.join(private)}", f"{why}, at a private address")


def on_this_machine(command: list[str]) -> str:
    """Ask a client of this machine, away from any workspace."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, *command[1:]], cwd="/", stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout + ended.stderr


def _pattern(url: str) -> str | None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return host if parts.port in (None, 80, 443) else f"{host}:{parts.port}"


def _get(url: str, accept: str = "*/*") -> bytes:
    request = urllib.request.Request(url, headers={"Accept": accept})
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            read: bytes = answer.read(INDEX_MAX)
            return read
    except (OSError, ValueError, urllib.error.URLError):
        return b""


Answers = Iterator[tuple[str, str]]


def _python(ask: Ask, workspace: str | None) -> Answers:
    settings = ask([sys.executable, "-m", "pip", "config", "list"]) or ask(["pip", "config", "list"])
    named = dict(re.findall(r"^\S*?\.?(index-url|extra-index-url)='(.*)'$", settings, re.MULTILINE))
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        named.setdefault(variable, os.environ.get(variable, ""))
    main = named.get("index-url") or named["PIP_INDEX_URL"] or named["UV_DEFAULT_INDEX"] or named["UV_INDEX_URL"]
    own = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    default = main or ask([sys.executable, "-c", own]) or ask(["python3", "-c", own])
    urls = [(url, "pip's index") for url in _URL.findall(default)[:1]]
    urls += [(url, f"pip's {name}") for name, text in named.items() for url in _URL.findall(text) if text != main]
    for url, why in urls:
        yield url, why
        page = f"{url.rstrip('/')}/pip/"
        for link in _links(page, _get(page, "application/vnd.pypi.simple.v1+json, text/html;q=0.5")):
            yield link, f"where {urlsplit(url).hostname} keeps its files"


def _links(page: str, answer: bytes) -> list[str]:
    text = answer.decode("utf-8", "replace")
    try:
        files = [entry["url"] for entry in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError):
        files = re.findall(r'href="([^"#]+)', text)
    return list({_pattern(url): url for url in (urljoin(page, str(each)) for each in files)}.values())


def _node(ask: Ask, workspace: str | None) -> Answers:
    listed = ask(["npm", "config", "list", "--json"])
    try:
        settings, _ = json.JSONDecoder().raw_decode(listed[listed.index("{") :])
    except ValueError:
        settings = {"registry": ask(["yarn", "config", "get", "registry"]).strip()}
    for name, value in settings.items():
        if isinstance(value, str) and (name == "registry" or name.endswith(":registry")) and _URL.fullmatch(value):
            yield value, f"npm's {name}"
            answer = _get(f"{value.rstrip('/')}/npm/latest")
            for link in re.findall(r'"tarball"\s*:\s*"([^"]+)"', answer.decode("utf-8", "replace")):
                yield link, f"where {urlsplit(value).hostname} keeps its packages"


def _debian(ask: Ask, workspace: str | None) -> Answers:
    for url in _URL.findall(ask(["apt-get", "indextargets", "--format", "$(SITE)"])):
        yield url, "apt's sources"


def _rust(ask: Ask, workspace: str | None) -> Answers:
    """cargo tells its index only when it cannot reach it."""
    nowhere = ["env", "CARGO_HTTP_PROXY=http://127.0.0.1:9", "CARGO_NET_RETRY=0", "cargo", "info", "serde"]
    for url in _URL.findall(ask(nowhere)):
        if urlsplit(url).hostname in ("127.0.0.1", None):
            continue
        yield url, "cargo's index"
        root = url if url.endswith("config.json") else f"{url.rstrip('/')}/config.json"
        for link in _URL.findall(_get(root).decode("utf-8", "replace")):
            yield link, f"where {urlsplit(url).hostname} keeps its crates"
            for onward in _redirect(f"{link.rstrip('/')}/serde/1.0.0/download"):
                yield onward, f"where {urlsplit(link).hostname} leads"


def _redirect(url: str) -> list[str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=SECONDS) as answer:
            return [str(answer.url)]
    except (OSError, ValueError, urllib.error.URLError):
        return []


def _go(ask: Ask, workspace: str | None) -> Answers:
    for name in ("GOPROXY", "GOSUMDB"):
        value = os.environ.get(name) or ask(["go", "env", name]).strip()
        for part in re.split(r"[,|\s]+", value):
            if _URL.fullmatch(part):
                yield part, f"go's {name}"
            elif name == "GOSUMDB" and re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", part):
                yield f"https://{part}", "go's GOSUMDB"


def _git(ask: Ask, workspace: str | None) -> Answers:
    """The remotes that a person set on this machine (not in the workspace's own configuration)."""
    settings = ask(["git", "config", "--global", "--list"]) + "\n" + ask(["git", "config", "--system", "--list"])
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        if match := re.match(r"(?:credential|http|url)\.(https?://.+)\.\w+$", name):
            yield match[1], f"git's {name.partition('.')[0]} settings"
        elif name.startswith("remote.") and _URL.fullmatch(value):
            yield value, f"git's {name}"


PRESETS: dict[str, Callable[[Ask, str | None], Answers]] = {
    "python": _python, "node": _node, "debian": _debian, "rust": _rust, "go": _go, "git": _git,
}  # fmt: skip
