"""Reserves a user id for each sandbox of root: one that no account and no other running sandbox has.

A process with the uid of a sandbox can enter it through /proc, past every filter, and shares its quotas. So root's
sandboxes get unused ids from the range in BELLJAR_UIDS. Each is checked against the account database (NSS, so LDAP
too) and /etc/subuid; uid and gid are the same number.

The reservations are links in one directory for the whole machine, named by the id and leading to the sandbox's run
directory. An id is free again when that directory is gone. All of them are read only when the id that was drawn has one:
a machine with a thousand sandboxes would pay for it at each start.
"""

from __future__ import annotations

import grp
import os
import pwd
from pathlib import Path

from belljar import environment, resources
from belljar.errors import ProtectionMissing, UsageError
from belljar.patterns import lazy_pattern

SETTING = "BELLJAR_UIDS"
DEFAULT = "70000-99999"
"""Above accounts and 16 bits, below subordinate ids (100000) and the largest id in a tar header (2097151)."""
_REGISTRY = Path("/run/belljar/uids")
_RANGE = lazy_pattern(r"(\d{1,10})-(\d{1,10})")
_LEAST, _MOST = 1000, (1 << 31) - 2  # engines accept 31 bits


def reserve(run_dir: Path) -> int:
    """A uid (and gid) for the sandbox of this run directory, which must exist."""
    first, last = allowed()
    count = last - first + 1
    start = int.from_bytes(os.urandom(8)) % count
    lent = _lent_ranges()
    registry = _registry(run_dir)
    with resources.locked(registry / "lock"):
        taken: set[int] | None = None
        for n in range(count):
            uid = first + (start + n) % count
            if os.path.lexists(registry / str(uid)):
                taken = _living(registry) if taken is None else taken
                if uid in taken:
                    continue
            if not any(low <= uid <= high for low, high in lent) and not has_account(
                uid
            ):
                os.symlink(os.path.abspath(run_dir), registry / str(uid))
                return uid
    raise ProtectionMissing(
        f"no user id is free in {SETTING}={first}-{last}: each belongs to an account, to /etc/subuid or to a sandbox"
    )


def allowed() -> tuple[int, int]:
    text = environment.value(SETTING, DEFAULT)
    match = _RANGE.fullmatch(text.strip())
    first, last = (int(match[1]), int(match[2])) if match else (0, -1)
    if not _LEAST <= first <= last <= _MOST:
        raise UsageError(
            f"{SETTING}={text!r} is not a range of user ids such as {DEFAULT} ({_LEAST} to {_MOST})"
        )
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
    """The ranges in /etc/subuid and /etc/subgid: their users can become any of these ids."""
    ranges = []
    for path in ("/etc/subuid", "/etc/subgid"):
        try:
            lines = Path(path).read_text(errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            _, _, numbers = line.partition(":")
            first, _, count = numbers.partition(":")
            if first.isdigit() and count.isdigit():
                ranges.append((int(first), int(first) + int(count) - 1))
    return ranges


def _registry(run_dir: Path) -> Path:
    """The machine's registry; if that is not possible, one beside the run directory."""
    for path in (_REGISTRY, run_dir.parent / "uids"):
        try:
            for directory in (path.parent, path):
                directory.mkdir(mode=0o700, exist_ok=True)
        except OSError:
            continue
        if os.access(path, os.W_OK):
            return path
    raise ProtectionMissing(
        f"user ids cannot be reserved: neither {_REGISTRY} nor {run_dir.parent} can be written"
    )


def _living(registry: Path) -> set[int]:
    """The ids in use; removes the reservations of sandboxes that are gone."""
    used = set()
    for entry in registry.iterdir():
        if not entry.name.isdigit():
            continue
        if entry.exists():  # follows the link to the run directory
            used.add(int(entry.name))
        else:
            entry.unlink(missing_ok=True)
    return used
