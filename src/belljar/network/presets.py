"""Presets: the hosts that pip, npm, apt, cargo, go and git use, as their own settings say, here and in the image.

No host is written down here. Each client is asked where it goes (its configuration, its environment, its own default),
and a package index is asked where its files are. Settings in a workspace are not read: they may be an attacker's. What
an image or an index says is not trusted either: it may name public hosts, never an address or a private place.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import field
from urllib.parse import urljoin, urlsplit

from belljar.errors import UsageError
from belljar.network.addresses import refusal
from belljar.network.allow import BadHost, host_of
from belljar.network.index_answers import addresses_of, ask_index
from belljar.patterns import lazy_pattern
from belljar.records import record

SECONDS = 20.0
MOST_INDEXES, MOST_HOSTS = 12, 100
"""Asked, and let through, for one preset: what names them may be an attacker's."""
_URL = lazy_pattern(r"\bhttps?://[^\s'\"`<>,)]+")

Ask = Callable[[list[str]], str]
"""Runs a client and gives what it printed, '' if it is not there or failed."""


@record
class Found:
    host: str
    """As `Allow` takes it."""
    why: str


@record
class Clients:
    """Where settings are asked for: on this machine, or in a sandbox before anything else runs there."""

    ask: Ask
    inside: bool = False
    asked: list[str] = field(default_factory=list)
    """Pages of indexes."""

    def index(self, url: str, path: str, accept: str = "*/*", method: str = "GET") -> tuple[str, str]:
        """What an index that was named in settings answers."""
        page = f"{url.rstrip('/')}/{path}"
        if len(self.asked) == MOST_INDEXES:
            return "", ""
        self.asked.append(page)
        return ask_index(page, accept, public=self.inside, method=method)

    def variable(self, name: str) -> str:
        return self.ask(["printenv", name]).strip()


@record
class Answer:
    url: str
    why: str
    told_by: str = ""
    """The index that named it; empty: a client's own settings did."""


Answers = Iterator[Answer]


def explain(preset: str, ask: Ask | None = None, inside: Ask | None = None) -> list[Found]:
    """Which hosts a preset comes to, and why. Blocks: runs clients and asks indexes."""
    if preset not in PRESETS:
        raise UsageError(f"{preset!r} is not a preset; there are {', '.join(sorted(PRESETS))}")
    found = _worked_out(preset, Clients(ask or on_this_machine))
    if inside is not None:
        found = {**_worked_out(preset, Clients(inside, inside=True)), **found}
    if not found:
        raise UsageError(f"preset {preset}: its clients are not there, or name no host; use --allow HOST")
    return list(found.values())


def _worked_out(preset: str, clients: Clients) -> dict[str, Found]:
    found: dict[str, Found] = {}
    with suppress(ValueError, RecursionError):  # an answer that is no address or no JSON: what came before it counts
        for answer in PRESETS[preset](clients):
            host = _pattern(answer.url)
            if host and host not in found and (placed := _placed(host, answer, clients.inside)):
                found[host] = placed
            if len(found) == MOST_HOSTS:
                break
    return found


def _placed(host: str, answer: Answer, inside: bool) -> Found | None:
    """A mirror or registry of one's own often has a private address: the preset lets its name lead there, if this
    machine's settings name it, or an index that is itself private."""
    trusted = not inside and (not answer.told_by or bool(_private(answer.told_by)))
    why = f"{answer.why}{' in the image' if inside and not answer.told_by else ''}"
    name = urlsplit(answer.url).hostname or ""
    if not isinstance(host_of(name), str):
        return Found(host, why) if trusted else None
    private = _private(answer.url) if trusted else []
    return Found(f"{host}={','.join(private)}", f"{why}, at a private address") if private else Found(host, why)


def _private(url: str) -> list[str]:
    parts = urlsplit(url)
    found = addresses_of(parts.hostname or "", parts.port or 443)
    return sorted({str(each) for each in found if refusal(each)})


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
    """Only a host and a port: whatever else a pattern may say (`*`, `=address`) is not for settings to say."""
    try:
        parts = urlsplit(url)
        name, port = host_of(parts.hostname or ""), parts.port
    except (BadHost, ValueError):
        return None
    if parts.scheme not in ("http", "https"):
        return None
    host = f"[{name}]" if ":" in str(name) else str(name)
    return host if port in (None, 80, 443) else f"{host}:{port}"


def _python(clients: Clients) -> Answers:
    pip = ["python3", "-m", "pip"] if clients.inside else [sys.executable, "-m", "pip"]
    settings = clients.ask([*pip, "config", "list"]) or clients.ask(["pip", "config", "list"])
    named = dict(re.findall(r"^\S*?\.?(index-url|extra-index-url)='(.*)'$", settings, re.MULTILINE))
    for variable in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL"):
        named.setdefault(variable, clients.variable(variable))
    main = named.get("index-url") or named["PIP_INDEX_URL"] or named["UV_DEFAULT_INDEX"] or named["UV_INDEX_URL"]
    own = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    default = main or clients.ask([pip[0], "-c", own]) or clients.ask(["python3", "-c", own])
    urls = [(url, "pip's index") for url in _URL.findall(default)[:1]]
    urls += [(url, f"pip's {name}") for name, text in named.items() for url in _URL.findall(text) if text != main]
    for url, why in urls:
        yield Answer(url, why)
        page, text = clients.index(url, "pip/", "application/vnd.pypi.simple.v1+json, text/html;q=0.5")
        for link in _links(page, text):
            yield Answer(link, f"where {urlsplit(url).hostname} keeps its files", url)


def _links(page: str, text: str) -> list[str]:
    try:
        files = [entry["url"] for entry in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError):
        files = re.findall(r'href="([^"#]+)', text)
    return list({_pattern(url): url for url in (urljoin(page, str(each)) for each in files)}.values())


def _node(clients: Clients) -> Answers:
    listed = clients.ask(["npm", "config", "list", "--json"])
    try:
        settings, _ = json.JSONDecoder().raw_decode(listed[listed.index("{") :])
    except ValueError:
        settings = {}
    named = {f"npm's {name}": url for name, url in settings.items() if re.fullmatch(r"(.*:)?registry", name)}
    for name in ("registry", "npmRegistryServer"):  # of old and new yarn, which has a default of its own
        named[f"yarn's {name}"] = clients.ask(["yarn", "config", "get", name]).strip()
    for why, url in {url: (why, url) for why, url in named.items() if _URL.fullmatch(str(url))}.values():
        yield Answer(url, why)
        _, text = clients.index(url, "npm/latest")
        for link in re.findall(r'"tarball"\s*:\s*"([^"]+)"', text):
            yield Answer(link, f"where {urlsplit(url).hostname} keeps its packages", url)


def _debian(clients: Clients) -> Answers:
    for url in _URL.findall(clients.ask(["apt-get", "indextargets", "--format", "$(SITE)"])):
        yield Answer(url, "apt's sources")


def _rust(clients: Clients) -> Answers:
    """cargo tells its index only when it cannot reach it."""
    nowhere = ["env", "CARGO_HTTP_PROXY=http://127.0.0.1:9", "CARGO_NET_RETRY=0", "cargo", "search", "serde"]
    for url in _URL.findall(clients.ask(nowhere)):
        if urlsplit(url).hostname in ("127.0.0.1", None):
            continue
        index = url.removesuffix("config.json")
        yield Answer(index, "cargo's index")
        for link in _URL.findall(clients.index(index, "config.json")[1]):
            yield Answer(link, f"where {urlsplit(url).hostname} keeps its crates", index)
            onward, _ = clients.index(link, "serde/1.0.0/download", method="HEAD")
            if onward:
                yield Answer(onward, f"where {urlsplit(link).hostname} leads", index)


def _go(clients: Clients) -> Answers:
    for name in ("GOPROXY", "GOSUMDB"):
        value = clients.variable(name) or clients.ask(["go", "env", name]).strip()
        for part in re.split(r"[,|\s]+", value):
            if _URL.fullmatch(part):
                yield Answer(part, f"go's {name}")
            elif name == "GOSUMDB" and re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", part):
                yield Answer(f"https://{part}", "go's GOSUMDB")


def _git(clients: Clients) -> Answers:
    """The remotes that a person set on this machine or in the image (not in the workspace's own configuration)."""
    for line in "\n".join(
        clients.ask(["git", "config", where, "--list"]) for where in ("--global", "--system")
    ).splitlines():
        name, _, value = line.partition("=")
        if match := re.match(r"(?:credential|http|url)\.(https?://.+)\.\w+$", name):
            yield Answer(match[1], f"git's {name.partition('.')[0]} settings")
        elif name.startswith("remote.") and _URL.fullmatch(value):
            yield Answer(value, f"git's {name}")


PRESETS: dict[str, Callable[[Clients], Answers]] = {
    "python": _python, "node": _node, "debian": _debian, "rust": _rust, "go": _go, "git": _git,
}  # fmt: skip
