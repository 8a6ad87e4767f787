"""Why a command may have failed, in one sentence each, with the option that helps.

Read off how the command ended and what it printed, so a hint is a guess: it is only given where the command failed, or
where the kernel said so.
"""

from __future__ import annotations

import re
import signal
from typing import TYPE_CHECKING

from belljar.patterns import lazy_pattern

if TYPE_CHECKING:
    from collections.abc import Iterator

    from belljar.session.result import Result, Surroundings

LOOKED_AT = 32 << 10  # bytes at the end of each stream: what stopped a command is said last

_NETWORK = lazy_pattern(
    r"EAI_AGAIN|ENETUNREACH|[Cc]ould not resolve|[Tt]emporary failure (in name resolution|resolving)"
    r"|Name or service not known|[Nn]etwork is unreachable|no such host|nodename nor servname|getaddrinfo"
    r"|unable to resolve host|NameResolutionError|Failed to establish a new connection"
)
_CURL, _WGET = lazy_pattern(r"\bcurl\b"), lazy_pattern(r"\bwget\b")
_DISK = lazy_pattern(r"No space left on device|ENOSPC|[Dd]isk quota exceeded")
_PROCESSES = lazy_pattern(
    r"fork: (retry: )?(Resource temporarily unavailable|Cannot allocate)|can't start new thread|[Cc]annot fork"
    r"|pthread_create failed|failed to create new OS thread|spawn \S+ EAGAIN|BlockingIOError: \[Errno 11\]"
)
_FILE_SIZE = lazy_pattern(r"File too large|EFBIG|File size limit exceeded")
_READ_ONLY = lazy_pattern(r"Read-only file system|EROFS")
_ROOT = lazy_pattern(
    r"\b(sudo|su|doas): (command not found|not found)|are you root\?|must be (run as )?root|requires? root"
    r"|Could not open lock file|superuser privilege"
)
# A name is tried at its beginning only: tried at each letter, 32 KiB of them took half a minute.
_MISSING = lazy_pattern(
    r"(?<![\w.+-])([\w.+-]+): command not found|: ([\w.+-]+): not found$|No module named '?([\w-]+)", re.M
)
# What our images have beyond `base`, by the name that is typed.
_IMAGES = {
    "python": ("pip", "pip3", "uv", "uvx", "pytest", "gcc", "g++", "cc", "c++", "python3-config"),
    "node": ("node", "nodejs", "npm", "npx"),
    "dev": ("cmake", "ninja", "gdb", "strace", "shellcheck", "sqlite3", "pkg-config", "ld", "as", "lsof", "vi"),
}
_MODULES = {"pip": "python", "venv": "python", "ensurepip": "python", "pytest": "python"}


def hints(result: Result, where: Surroundings) -> tuple[str, ...]:
    if result.ok and not result.oom_kills:
        return ()
    return tuple(_found(result, where))


def _found(result: Result, where: Surroundings) -> Iterator[str]:
    limits, printed = where.limits, _printed(result)
    if result.cause == "sandbox_lost":
        yield f"The sandbox was lost{f' ({result._lost})' if result._lost else ''}; open a new session."
    if result.cause == "out_of_memory" or result.oom_kills:
        size = f"{limits.memory >> 20} MiB"
        yield f"The memory limit of {size} was reached; raise it with --memory 2g or Limits(memory='2g')."
    if result.ok:
        return
    if where.network == "none" and (_NETWORK.search(printed) or _silent_client(result)):
        yield "The sandbox has no network; open a door for one host with --allow HOST, or use --network full."
    if refused := sorted(
        {f"{visit['host']}:{visit['port']}" for visit in result.network if visit["verdict"] == "refused"}
    ):
        yield f"The network door refused {', '.join(refused[:5])}; a person can allow a host with --allow HOST."
    if _DISK.search(printed):
        yield (
            f"A file system is full: /tmp holds {limits.tmp >> 20} MiB and the home directory {limits.home >> 20} MiB; "
            "raise them with --disk, --tmp and --home or Limits(tmp=…, home=…), or write to /workspace."
        )
    if _PROCESSES.search(printed):
        yield f"The limit of {limits.pids} processes was reached; raise it with --pids or Limits(pids=…)."
    if result.signal == signal.SIGXFSZ or result.exit_code == 128 + signal.SIGXFSZ or _FILE_SIZE.search(printed):
        yield f"A file may have {limits.fsize >> 20} MiB; raise that with Limits(fsize='4g')."
    if _READ_ONLY.search(printed):
        yield "Only /workspace, /tmp and the home directory can be written; the rest of the image is read-only."
    if _ROOT.search(printed):
        yield (
            "Commands run as an ordinary user and there is no sudo; use an image that has what they would install, "
            "or --root with the engine oci."
        )
    else:
        yield from _program(printed, where.image, found_out=result.exit_code == 127)


def _silent_client(result: Result) -> bool:
    """`curl -s` only says by its status that it found no host, or no way to it."""
    verdict, status = result.verdict, result.exit_code
    return verdict is not None and (
        (status in (6, 7) and bool(_CURL.search(verdict.canonical)))
        or (status == 4 and bool(_WGET.search(verdict.canonical)))
    )


def _program(printed: str, image: str, found_out: bool) -> Iterator[str]:
    """`found_out`: the shell's own last word was that it is missing."""
    found = list(_MISSING.finditer(printed))
    if not found:
        return
    name = next(filter(None, found[-1].groups()))
    has = _MODULES.get(name) if found[-1][3] else next((i for i, names in _IMAGES.items() if name in names), None)
    if has is not None and has != image:
        yield f"The image {image!r} has no {name}; {has!r} has it: --image {has} or image={has!r}."
    elif found[-1][3] is None and found_out:
        yield f"The image {image!r} has no {name}; use an image that has it, or install it into the workspace."


def _printed(result: Result) -> str:
    return "\n".join(
        data[-LOOKED_AT:].decode("utf-8", "replace") for data in (result.stdout_bytes, result.stderr_bytes)
    )
