"""Hints: why a command may have failed, and what helps. Python callers get an argument, the command line an option,
agents something to do or to ask for.

A hint is a guess from how the command ended and what it printed. It is given only if the command failed, or the kernel
reported the problem.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol

from belljar.limits import Limits
from belljar.patterns import lazy_pattern
from belljar.records import record

if TYPE_CHECKING:
    from belljar.policy import Verdict

Reader = Literal["python", "cli", "prompt", "agent"]
"""Who reads a hint; `prompt` is safe mode. A reader without an entry of its own gets the one of `cli`."""


@record
class Surroundings:
    """Facts about the sandbox that hints in a result use."""

    network: object
    limits: Limits
    image: str
    staged: bool = False


class Outcome(Protocol):
    """What a hint is guessed from: a `Result`."""

    @property
    def cause(self) -> str: ...
    @property
    def exit_code(self) -> int: ...
    @property
    def signal(self) -> int | None: ...
    @property
    def ok(self) -> bool: ...
    @property
    def oom_kills(self) -> int: ...
    @property
    def verdict(self) -> Verdict | None: ...
    @property
    def network(self) -> Sequence[Mapping[str, Any]]: ...
    @property
    def stdout_bytes(self) -> bytes: ...
    @property
    def stderr_bytes(self) -> bytes: ...
    @property
    def _lost(self) -> str: ...


_REMEDIES: dict[str, dict[Reader, str]] = {
    "lost": {
        "python": "open a new Session",
        "cli": "run it again, or start a new session",
        "agent": "whoever started it must start it again",
    },
    "memory": {
        "python": "raise it with limits=Limits(memory='{has}')",
        "cli": "raise it with --memory {has}",
        "agent": "do less at once (fewer jobs), or ask the person to raise it: --memory {has}",
    },
    "network": {
        "python": "open a door for one host with network=belljar.Allow('HOST'), or use network='full'",
        "cli": "open a door for one host with --allow HOST, or use --network full",
        "prompt": "open a door for one host with :allow HOST",
        "agent": "work with what is here, or ask the person to open a door for the host: --allow HOST",
    },
    "packages": {
        "python": "let them in with network=belljar.Allow(presets=['{has}'])",
        "cli": "let them in with --allow-preset {has}",
        "agent": "work with what is here, or ask the person to let them in: --allow-preset {has}",
    },
    "inside": {"cli": "start the server in the same session"},
    "refused": {
        "python": "allow a host with `await box.allow_host('HOST')`",
        "cli": "allow a host with --allow HOST",
        "prompt": "allow a host with :allow HOST",
        "agent": "do without it, or ask the person to allow the host: --allow HOST",
    },
    "address": {
        "cli": "check the name, or this machine's DNS",
        "agent": "check the name, or tell the person that the host machine finds no address for it",
    },
    "disk": {
        "python": "raise them with limits=Limits(disk='{has}'), or write to /workspace",
        "cli": "raise them with --disk {has} (as root) or with --tmp and --home, or write to /workspace",
        "agent": "delete what is not needed, write to /workspace, or ask the person for more: --disk {has}",
    },
    "processes": {
        "python": "raise it with limits=Limits(pids={has})",
        "cli": "raise it with --pids {has}",
        "agent": "start fewer at once, or ask the person to raise it: --pids {has}",
    },
    "file size": {
        "python": "raise that with limits=Limits(fsize='{has}')",
        "cli": "raise that with --fsize {has}",
        "agent": "split the file, or ask the person to raise it: --fsize {has}",
    },
    "rename": {
        "cli": "`mv` copies it, and `git add -A` sees the move",
        "agent": "use `mv`, which copies it; `git add -A` sees the move",
    },
    "root": {
        "python": "use an image that has what they would install, or root=True with engine='oci'",
        "cli": "use an image that has what they would install, or --root with --engine oci",
        "agent": "install into the home directory (pip install, npm install -g), or ask the person for another image",
    },
    "image": {
        "python": "{has!r} has it: image={has!r}",
        "cli": "{has!r} has it: --image {has}",
        "agent": "{has!r} has it: ask the person for --image {has}",
    },
    "lists": {
        "cli": "run `apt-get update` first, in the same sandbox",
    },
    "program": {
        "cli": "use an image that has it, or install it into the workspace",
        "agent": "do it with what is here, or install it into the workspace",
    },
}
MOST_CONNECTIONS = 3  # failed connections that are listed with their reasons
SEARCHED = 32 << 10  # bytes at the end of each stream: error messages come last

_NETWORK = lazy_pattern(
    r"EAI_AGAIN|ENETUNREACH|[Cc]ould not resolve|[Tt]emporary failure (in name resolution|resolving)"
    r"|Name or service not known|[Nn]etwork is unreachable|no such host|nodename nor servname|getaddrinfo"
    r"|unable to resolve host|NameResolutionError|Failed to establish a new connection"
)
_PACKAGES = {
    "python": lazy_pattern(r"pip\._vendor|pypi\.org"),
    "node": lazy_pattern(r"npm (ERR!|error)|registry\.(npmjs|yarnpkg)\."),
    "rust": lazy_pattern(r"crates\.io"),
    "go": lazy_pattern(r"proxy\.golang\.org"),
}
_LOOPBACK = lazy_pattern(
    r"(?:[Cc]onnect(?:ion)? (?:to|refused)|ECONNREFUSED|host=)[\s'\"(\[]*(?:localhost|127\.0\.0\.1|::1)\b"
)
_CURL, _WGET = lazy_pattern(r"\bcurl\b"), lazy_pattern(r"\bwget\b")
_DISK = lazy_pattern(r"No space left on device|ENOSPC|[Dd]isk quota exceeded")
_PROCESSES = lazy_pattern(
    r"fork: (retry: )?(Resource temporarily unavailable|Cannot allocate)|can't start new thread|[Cc]annot fork"
    r"|pthread_create failed|failed to create new OS thread|spawn \S+ EAGAIN|BlockingIOError: \[Errno 11\]"
)
_FILE_SIZE = lazy_pattern(r"File too large|EFBIG|File size limit exceeded")
_READ_ONLY = lazy_pattern(r"Read-only file system|EROFS")
_CROSS_DEVICE = lazy_pattern(
    r"Invalid cross-device link|[Cc]ross-device link not permitted|EXDEV"
)
_NO_LISTS = lazy_pattern(
    r"E: (?:Unable to locate package|Package '\S+' has no installation candidate)"
)
_ROOT = lazy_pattern(
    r"\b(sudo|su|doas): (command not found|not found)|are you root\?|must be (run as )?root|requires? root"
    r"|Could not open lock file|superuser privilege"
)
# A name is tried at its beginning only: tried at each letter, 32 KiB of them took half a minute.
_MISSING = lazy_pattern(
    r"(?<![^\s'\"])([\w.+-]+): command not found|: ([\w.+-]+): not found$|No module named '?([\w-]+)",
    re.M,
)
# The programs of our images that `base` does not have.
_IMAGES = {
    "python": (
        "pip",
        "pip3",
        "uv",
        "uvx",
        "pytest",
        "gcc",
        "g++",
        "cc",
        "c++",
        "python3-config",
    ),
    "node": ("node", "nodejs", "npm", "npx"),
    "dev": (
        "cmake",
        "ninja",
        "gdb",
        "strace",
        "shellcheck",
        "sqlite3",
        "pkg-config",
        "ld",
        "as",
        "lsof",
    ),
}
_MODULES = {
    "pip": "python",
    "venv": "python",
    "ensurepip": "python",
    "pytest": "python",
}


def hints(
    result: Outcome, where: Surroundings, reader: Reader = "python"
) -> tuple[str, ...]:
    if result.ok and not result.oom_kills:
        return ()
    return tuple(
        f"{fact}{_remedy(key, value, reader)}."
        for fact, key, value in _obstacles(result, where)
    )


def _remedy(key: str, value: str, reader: Reader) -> str:
    remedies = _REMEDIES.get(key)
    return (
        ""
        if remedies is None
        else "; " + remedies.get(reader, remedies["cli"]).format(has=value)
    )


Obstacle = tuple[str, str, str]
"""What went wrong, the key of its remedy, and the image or number that the remedy names."""


def _larger(size: int, least: int) -> str:
    """About twice as much, in whole gigabytes."""
    return f"{max(least, -(-2 * size // (1 << 30)))}g"


def _obstacles(result: Outcome, where: Surroundings) -> Iterator[Obstacle]:
    limits, printed = where.limits, _printed(result)
    if result.cause == "sandbox_lost":
        yield (
            f"The sandbox was lost{f' ({result._lost})' if result._lost else ''}",
            "lost",
            "",
        )
    if result.cause == "out_of_memory" or result.oom_kills:
        yield (
            f"The memory limit of {limits.memory >> 20} MiB was reached",
            "memory",
            _larger(limits.memory, 2),
        )
    if result.ok:
        return
    if _LOOPBACK.search(printed):
        yield (
            "localhost is the sandbox itself, not the host machine, and nothing listens there",
            "inside",
            "",
        )
    elif where.network == "none" and (
        _NETWORK.search(printed) or _silent_client(result)
    ):
        preset = next(
            (name for name, pattern in _PACKAGES.items() if pattern.search(printed)), ""
        )
        key, of_packages = (
            ("packages", " to fetch packages from") if preset else ("network", "")
        )
        yield f"The sandbox has no network{of_packages}", key, preset
    yield from _door(result)
    if _DISK.search(printed):
        # If `disk` was not set they may be on a volume, and then these are not the sizes.
        sizes = (
            f" ({limits.tmp >> 20} and {limits.home >> 20} MiB)"
            if limits.disk is not None
            else ""
        )
        full = f"A file system is full; /tmp and the home directory are limited{sizes}"
        yield full, "disk", _larger(limits.disk or 0, 8)
    if _PROCESSES.search(printed):
        yield (
            f"The limit of {limits.pids} processes was reached",
            "processes",
            str(max(4096, 2 * limits.pids)),
        )
    if (
        result.signal == signal.SIGXFSZ
        or result.exit_code == 128 + signal.SIGXFSZ
        or _FILE_SIZE.search(printed)
    ):
        yield (
            f"A file may have {limits.fsize >> 20} MiB",
            "file size",
            _larger(limits.fsize, 32),
        )
    if _READ_ONLY.search(printed):
        written = "Only /workspace, /tmp and the home directory can be written"
        yield f"{written}; the rest of the image is read-only", "", ""
    if where.staged and _CROSS_DEVICE.search(printed):
        yield (
            "In a staged workspace a directory of the host's cannot be renamed in one step",
            "rename",
            "",
        )
    if _ROOT.search(printed):
        yield "Commands run as an ordinary user and there is no sudo", "root", ""
    elif _NO_LISTS.search(printed):
        yield "The image has no lists of packages", "lists", ""
    else:
        yield from _program(printed, where.image, not_found=result.exit_code == 127)


def _door(result: Outcome) -> Iterator[Obstacle]:
    """The failed connections through the network door; `--allow` is suggested only for hosts that were not allowed."""
    from belljar.network.visit import (
        NOT_ALLOWED,
    )  # only a session with a door has loaded it

    unknown: dict[str, None] = {}
    failures: dict[Obstacle, None] = {}
    for visit in result.network:
        host = visit["host"]
        reason = visit["reason"].removeprefix(f"{host} ").removeprefix(f"{host}: ")
        if visit["verdict"] == "failed":
            key = (
                "address"
                if reason.startswith(("has no address", "the host's resolver"))
                else ""
            )
            failures[f"{host} is allowed but {reason}", key, ""] = None
        elif visit["verdict"] == "refused" and reason.startswith(NOT_ALLOWED):
            unknown[f"{host}:{visit['port']}"] = None
        elif visit["verdict"] == "refused":
            failures[
                f"The network door refused {host or 'a connection'}: {reason}", "", ""
            ] = None
    if unknown:
        yield (
            f"The network door refused {', '.join(sorted(unknown)[:5])}",
            "refused",
            "",
        )
    yield from sorted(failures)[:MOST_CONNECTIONS]


def _silent_client(result: Outcome) -> bool:
    """Whether a curl or wget that prints nothing (`-s`) failed to reach its host, by its exit status."""
    verdict, status = result.verdict, result.exit_code
    return verdict is not None and (
        (status in (6, 7) and bool(_CURL.search(verdict.canonical)))
        or (status == 4 and bool(_WGET.search(verdict.canonical)))
    )


def image_with(program: str) -> str | None:
    """Which of our images has a program that `base` does not have."""
    return next((image for image, names in _IMAGES.items() if program in names), None)


def _program(printed: str, image: str, not_found: bool) -> Iterator[Obstacle]:
    """`not_found`: the shell's exit status says that a program is missing."""
    *_, missing = (None, *_MISSING.finditer(printed))
    if missing is None:
        return
    name = next(filter(None, missing.groups()))
    better = _MODULES.get(name) if missing[3] else image_with(name)
    if better is not None and better != image:
        yield f"The image {image!r} has no {name}", "image", better
    elif missing[3] is None and not_found:
        yield f"The image {image!r} has no {name}", "program", ""


def _printed(result: Outcome) -> str:
    return "\n".join(
        data[-SEARCHED:].decode("utf-8", "replace")
        for data in (result.stdout_bytes, result.stderr_bytes)
    )
