"""The files of ours that every local container sees: the init, and a hosts file.

The init is installed execute-only. A program whose file cannot be read is not dumpable from its first
instruction on, so nothing inside can look into PID 1, not even before it has said so itself. That holds for a
caller who is not root too: the file is then the sandbox user's own, but the read-only mount lets nobody
change its mode.

The hosts file is there because a container without a network (`NetworkDisabled`, half the start-up time) gets
none from the engine, and then not even `localhost` has an address.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

from belljar.engines.spec import LinkPlan
from belljar.errors import BelljarError
from belljar.layout import HOSTNAME

HOSTS = f"""\
127.0.0.1 localhost {HOSTNAME}
::1 localhost ip6-localhost ip6-loopback
"""


def local_link(init: Path, run_root: Path, directory: Path) -> LinkPlan:
    """The plan for a container that dials the sockets in `directory`; our files go under `run_root`."""
    files = _installed(init, run_root)
    if not files.is_dir():
        _installed.cache_clear()
        files = _installed(init, run_root)
    return LinkPlan("socket", str(files / "init"), str(directory), hosts=str(files / "hosts"))


@cache
def _installed(init: Path, run_root: Path) -> Path:
    try:
        content = init.read_bytes()
        target = run_root / f"init-{hashlib.sha256(content + HOSTS.encode()).hexdigest()[:16]}"
        if not target.is_dir():
            _install(content, target)
        return target
    except OSError as error:
        raise BelljarError(f"the init cannot be installed under {run_root}: {error.strerror}") from error


def _install(content: bytes, target: Path) -> None:
    """Whole or not at all, also when two processes do it at once."""
    new = Path(tempfile.mkdtemp(dir=target.parent, prefix="new-init-"))
    try:
        _write(new / "init", content, 0o111)
        _write(new / "hosts", HOSTS.encode(), 0o444)
        new.rename(target)
    except OSError:
        if not target.is_dir():
            raise
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _write(path: Path, content: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        os.fchmod(file.fileno(), mode)
