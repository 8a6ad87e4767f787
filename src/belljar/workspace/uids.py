"""A user id for each sandbox of root's: one that no account has and no other living sandbox.

Whoever has the uid of a sandbox can walk into it through /proc, past every filter, and uses up the same quotas. So
root's sandboxes get ids that belong to nobody, from the range in BELLJAR_UIDS. Each number is checked against the
account database (NSS, so LDAP too) and /etc/subuid; gid and uid are the same number.

Who has which is kept in one directory for the whole machine, as links named by the number that lead to the sandbox's
run directory. An id is free again when that directory is gone, however its owner died.
"""

from __future__ import annotations

import fcntl
import grp
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from belljar.errors import ProtectionMissing, UsageError
from belljar.patterns import lazy_pattern

SETTING = "BELLJAR_UIDS"
DEFAULT = "70000-99999"
"""Past accounts and 16 bits, below where subordinate ids (100000) and what tar's headers can hold (2097151) begin."""
_REGISTRY = Path("/run/belljar/uids")
_RANGE = lazy_pattern(r"(\d{1,10})-(\d{1,10})")
_LEAST, _MOST = 1000, (1 << 31) - 2  # engines take 31 bits


def reserve(run_dir: Path) -> int:
    """A uid (and gid) for the sandbox whose directory this is, which must exist already."""
    first, last = allowed()
    count = last - first + 1
    start = int.from_bytes(os.urandom(8)) % count
    lent = _lent_ranges()
    with _locked(_registry(run_dir)) as registry:
        taken = _living(registry)
        for n in range(count):
            uid = first + (start + n) % count
            if uid not in taken and not any(low <= uid <= high for low, high in lent) and not has_account(uid):
                os.symlink(os.path.abspath(run_dir), registry / str(uid))
                return uid
    raise ProtectionMissing(
        f"no user id is free in {SETTING}={first}-{last}: each belongs to an account, to /etc/subuid or to a sandbox"
    )


def allowed() -> tuple[int, int]:
    """The range that the settings give."""
    text = os.environ.get(SETTING) or DEFAULT
    match = _RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, -1)
    if not _LEAST <= first <= last <= _MOST:
        raise UsageError(f"{SETTING}={text!r} is not a range of user ids such as {DEFAULT} ({_LEAST} to {_MOST})")
    return first, last


def has_account(number: int) -> bool:
    """Whether a user or a group has this number."""
    for look in (pwd.getpwuid, grp.getgrgid):
        try:
            look(number)
        except KeyError:
            continue
        return True
    return False


def _lent_ranges() -> list[tuple[int, int]]:
    """What /etc/subuid and /etc/subgid give to users' own namespaces: their owners can become these."""
    found = []
    for path in ("/etc/subuid", "/etc/subgid"):
        try:
            lines = Path(path).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            _, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if first.isdigit() and count.isdigit():
                found.append((int(first), int(first) + int(count) - 1))
    return found


def _registry(run_dir: Path) -> Path:
    """One for the machine; beside the run directory where that cannot be had."""
    for path in (_REGISTRY, run_dir.parent / "uids"):
        try:
            for each in (path.parent, path):
                each.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    raise ProtectionMissing(f"user ids cannot be reserved: neither {_REGISTRY} nor {run_dir.parent} can be written")


@contextmanager
def _locked(registry: Path) -> Iterator[Path]:
    lock = os.open(registry, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield registry
    finally:
        os.close(lock)


def _living(registry: Path) -> set[int]:
    """The numbers in use; those of sandboxes that are gone are given back."""
    found = set()
    for entry in registry.iterdir():
        if not entry.name.isdigit():
            continue
        if entry.exists():  # follows the link: is its run directory still there?
            found.add(int(entry.name))
        else:
            entry.unlink(missing_ok=True)
    return found
