"""Our files in every local container: the init, a hosts and a hostname file.

The init is installed execute-only. The kernel makes a program whose file cannot be read undumpable from its first
instruction on, so nothing inside can look into PID 1. For a caller who is not root the sandbox's user owns the file,
but the read-only mount keeps him from changing its mode.

A container without a network (`NetworkDisabled`, which halves the start-up time) gets no hosts and hostname files from
the engine, and without them not even `localhost` has an address.

The run directory is often on a file system that forbids execution (/run of Debian 13 and Ubuntu). Then the init is
installed below /var/lib/belljar or the caller's cache directory.
"""

from __future__ import annotations

import hashlib
import os
from functools import cache
from pathlib import Path

from belljar import resources
from belljar.errors import BelljarError
from belljar.layout import HOSTNAME
from belljar.sandbox.spec import LinkPlan

HOSTS = f"""\
127.0.0.1 localhost {HOSTNAME}
::1 localhost ip6-localhost ip6-loopback
"""


def local_link(init: Path, run_root: Path, directory: Path) -> LinkPlan:
    """The link of a container that dials sockets in `directory`. Our files go below `run_root`, if possible."""
    where = files_root(run_root)
    files = _installed(init, where)
    if not files.is_dir():
        _installed.cache_clear()
        files = _installed(init, where)
    return LinkPlan(
        "socket",
        str(files / "init"),
        str(directory),
        str(files / "hosts"),
        str(files / "hostname"),
    )


def files_root(run_root: Path) -> Path:
    """A directory that programs can be executed from."""
    if not forbids_execution(run_root):
        return run_root
    root = Path("/var/lib/belljar") if os.geteuid() == 0 else resources.cache_dir()
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    return root


def forbids_execution(directory: Path) -> bool:
    try:
        return bool(os.statvfs(directory).f_flag & os.ST_NOEXEC)
    except OSError:
        return False


@cache
def _installed(init: Path, root: Path) -> Path:
    try:
        content = init.read_bytes()
        target = (
            root
            / f"init-{hashlib.sha256(content + HOSTS.encode() + HOSTNAME.encode()).hexdigest()[:16]}"
        )
        if not target.is_dir():
            with resources.new_directory(target) as new:
                _write(new / "init", content, 0o111)
                _write(new / "hosts", HOSTS.encode(), 0o444)
                _write(new / "hostname", f"{HOSTNAME}\n".encode(), 0o444)
        return target
    except OSError as error:
        raise BelljarError(
            f"the init cannot be installed under {root}: {error.strerror}"
        ) from error


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(
        path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600
    )
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
