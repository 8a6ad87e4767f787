"""Presets: the hosts that pip, npm, apt, cargo, go and git use, according to their settings here and in the image.

No host is written down here. We ask each client for its hosts (configuration, environment, built-in default), and each
package index for the hosts of its files. Settings in a workspace are not read: they may be an attacker's. Neither an
image nor an index is trusted: they may name public hosts, but no address and no private host.
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
from belljar.network.allow import BadHost, host_of, in_url
from belljar.network.index_answers import addresses_of, ask_index
from belljar.patterns import lazy_pattern
from belljar.records import record

SECONDS = 20.0
MOST_INDEXES, MOST_HOSTS = 12, 100
"""Index pages that we ask for, and hosts that we allow, for one preset: an attacker's image may name any number."""
_URL = lazy_pattern(r"\bhttps?://[^\s'\"`<>,)]+")

Run = Callable[[list[str]], str]
"""Runs a client and returns what it printed; '' if it is missing or failed."""


@record
class PresetHost:
    host: str
    """As `Allow` takes it."""
    why: str


@record
class Clients:
    """The package managers of this machine, or of an image: in a sandbox, before anything else runs there."""

    run: Run
    in_image: bool = False
    pages: list[str] = field(default_factory=list)
    """Of indexes, that we asked for."""

    def ask_index(
        self, url: str, path: str, accept: str = "*/*", method: str = "GET"
    ) -> tuple[str, str]:
        page = f"{url.rstrip('/')}/{path}"
        if len(self.pages) == MOST_INDEXES:
            return "", ""
        self.pages.append(page)
        return ask_index(page, accept, public=self.in_image, method=method)

    def variable(self, name: str) -> str:
        return self.run(["printenv", name]).strip()


@record
class NamedUrl:
    url: str
    why: str
    index: str = ""
    """The index that named it; empty if a client's own settings did."""


Urls = Iterator[NamedUrl]


def explain(
    preset: str, here: Run | None = None, in_image: Run | None = None
) -> list[PresetHost]:
    """The hosts of a preset, and why. Blocks: runs clients and asks indexes."""
    if preset not in PRESETS:
        raise UsageError(
            f"{preset!r} is not a preset; there are {', '.join(sorted(PRESETS))}"
        )
    hosts = _hosts(preset, Clients(here or run_here))
    if in_image is not None:
        hosts = {**_hosts(preset, Clients(in_image, in_image=True)), **hosts}
    if not hosts:
        raise UsageError(
            f"preset {preset}: its clients are not there, or name no host; use --allow HOST"
        )
    return list(hosts.values())


def _hosts(preset: str, clients: Clients) -> dict[str, PresetHost]:
    hosts: dict[str, PresetHost] = {}
    with suppress(
        ValueError, RecursionError
    ):  # a URL or JSON that does not parse: keep the hosts so far
        for named in PRESETS[preset](clients):
            host = _host_pattern(named.url)
            if (
                host
                and host not in hosts
                and (allowed := _preset_host(host, named, clients.in_image))
            ):
                hosts[host] = allowed
            if len(hosts) == MOST_HOSTS:
                break
    return hosts


def _preset_host(host: str, named: NamedUrl, in_image: bool) -> PresetHost | None:
    """A company's mirror or registry often has a private address. The preset allows that address if this machine's
    settings name the host, or an index does that is private itself."""
    trusted = not in_image and (
        not named.index or bool(_private_addresses(named.index))
    )
    why = f"{named.why}{' in the image' if in_image and not named.index else ''}"
    name = urlsplit(named.url).hostname or ""
    if not isinstance(host_of(name), str):
        return PresetHost(host, why) if trusted else None
    private = ",".join(_private_addresses(named.url)) if trusted else ""
    if private:
        return PresetHost(f"{host}={private}", f"{why}, at a private address")
    return PresetHost(host, why)


def _private_addresses(url: str) -> list[str]:
    parts = urlsplit(url)
    addresses = addresses_of(parts.hostname or "", parts.port or 443)
    return sorted({str(each) for each in addresses if refusal(each)})


def run_here(command: list[str]) -> str:
    """Run a client of this machine, outside of any workspace."""
    program = shutil.which(command[0])
    if program is None:
        return ""
    try:
        ended = subprocess.run(
            [program, *command[1:]],
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return ended.stdout + ended.stderr


def _host_pattern(url: str) -> str | None:
    """Only host and port: settings may use nothing else of what a pattern can be (`*`, `=address`)."""
    try:
        parts = urlsplit(url)
        name, port = host_of(parts.hostname or ""), parts.port
    except (BadHost, ValueError):
        return None
    if parts.scheme not in ("http", "https"):
        return None
    return in_url(name) if port in (None, 80, 443) else f"{in_url(name)}:{port}"


def _python(clients: Clients) -> Urls:
    pip = (
        ["python3", "-m", "pip"] if clients.in_image else [sys.executable, "-m", "pip"]
    )
    settings = clients.run([*pip, "config", "list"]) or clients.run(
        ["pip", "config", "list"]
    )
    named = dict(
        re.findall(
            r"^\S*?\.?(index-url|extra-index-url)='(.*)'$", settings, re.MULTILINE
        )
    )
    for variable in (
        "PIP_INDEX_URL",
        "PIP_EXTRA_INDEX_URL",
        "UV_DEFAULT_INDEX",
        "UV_INDEX_URL",
        "UV_EXTRA_INDEX_URL",
    ):
        named.setdefault(variable, clients.variable(variable))
    main = (
        named.get("index-url")
        or named["PIP_INDEX_URL"]
        or named["UV_DEFAULT_INDEX"]
        or named["UV_INDEX_URL"]
    )
    builtin = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
    index = (
        main
        or clients.run([pip[0], "-c", builtin])
        or clients.run(["python3", "-c", builtin])
    )
    urls = [(url, "pip's index") for url in _URL.findall(index)[:1]]
    urls += [
        (url, f"pip's {name}")
        for name, text in named.items()
        for url in _URL.findall(text)
        if text != main
    ]
    for url, why in urls:
        yield NamedUrl(url, why)
        page, text = clients.ask_index(
            url, "pip/", "application/vnd.pypi.simple.v1+json, text/html;q=0.5"
        )
        for link in _links(page, text):
            yield NamedUrl(link, f"where {urlsplit(url).hostname} keeps its files", url)


def _links(page: str, text: str) -> list[str]:
    try:
        files = [entry["url"] for entry in json.loads(text)["files"]]
    except (ValueError, KeyError, TypeError):
        files = re.findall(r'href="([^"#]+)', text)
    return list(
        {
            _host_pattern(url): url
            for url in (urljoin(page, str(each)) for each in files)
        }.values()
    )


def _node(clients: Clients) -> Urls:
    listed = clients.run(["npm", "config", "list", "--json"])
    try:
        settings, _ = json.JSONDecoder().raw_decode(listed[listed.index("{") :])
    except ValueError:
        settings = {}
    named = {
        f"npm's {name}": url
        for name, url in settings.items()
        if re.fullmatch(r"(.*:)?registry", name)
    }
    for name in (
        "registry",
        "npmRegistryServer",
    ):  # of old and new yarn, which has its own default
        named[f"yarn's {name}"] = clients.run(["yarn", "config", "get", name]).strip()
    for why, url in {
        url: (why, url) for why, url in named.items() if _URL.fullmatch(str(url))
    }.values():
        yield NamedUrl(url, why)
        _, text = clients.ask_index(url, "npm/latest")
        for link in re.findall(r'"tarball"\s*:\s*"([^"]+)"', text):
            yield NamedUrl(
                link, f"where {urlsplit(url).hostname} keeps its packages", url
            )


def _debian(clients: Clients) -> Urls:
    for url in _URL.findall(
        clients.run(["apt-get", "indextargets", "--format", "$(SITE)"])
    ):
        yield NamedUrl(url, "apt's sources")


def _rust(clients: Clients) -> Urls:
    """cargo prints the URL of its index only in the error message when it cannot reach it."""
    failing = [
        "env",
        "CARGO_HTTP_PROXY=http://127.0.0.1:9",
        "CARGO_NET_RETRY=0",
        "cargo",
        "search",
        "serde",
    ]
    for url in _URL.findall(clients.run(failing)):
        if urlsplit(url).hostname in ("127.0.0.1", None):
            continue
        index = url.removesuffix("config.json")
        yield NamedUrl(index, "cargo's index")
        for link in _URL.findall(clients.ask_index(index, "config.json")[1]):
            yield NamedUrl(
                link, f"where {urlsplit(url).hostname} keeps its crates", index
            )
            redirected, _ = clients.ask_index(
                link, "serde/1.0.0/download", method="HEAD"
            )
            if redirected:
                yield NamedUrl(
                    redirected, f"where {urlsplit(link).hostname} leads", index
                )


def _go(clients: Clients) -> Urls:
    for name in ("GOPROXY", "GOSUMDB"):
        value = clients.variable(name) or clients.run(["go", "env", name]).strip()
        for part in re.split(r"[,|\s]+", value):
            if _URL.fullmatch(part):
                yield NamedUrl(part, f"go's {name}")
            elif name == "GOSUMDB" and re.fullmatch(r"[a-z0-9.-]+\.[a-z]+", part):
                yield NamedUrl(f"https://{part}", "go's GOSUMDB")


def _git(clients: Clients) -> Urls:
    """The remotes that a person set on this machine or in the image (not in the workspace's own configuration)."""
    for line in "\n".join(
        clients.run(["git", "config", where, "--list"])
        for where in ("--global", "--system")
    ).splitlines():
        name, _, value = line.partition("=")
        if match := re.match(r"(?:credential|http|url)\.(https?://.+)\.\w+$", name):
            yield NamedUrl(match[1], f"git's {name.partition('.')[0]} settings")
        elif name.startswith("remote.") and _URL.fullmatch(value):
            yield NamedUrl(value, f"git's {name}")


PRESETS: dict[str, Callable[[Clients], Urls]] = {
    "python": _python,
    "node": _node,
    "debian": _debian,
    "rust": _rust,
    "go": _go,
    "git": _git,
}
