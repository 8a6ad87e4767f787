"""Keeps the sandboxes of one user within what the operator gives him ([quota], `enforcement.py`).

Each sandbox claims its limits before it starts, in a file whose place depends on the user alone: no variable (BELLJAR_RUN,
BELLJAR_STATE) leads around it. A claim counts while the sandbox's run directory is there, so nobody has to release it.
Claims are made one at a time, under a lock: two starts at once never take the same rest.

The files are the user's own. Whoever changes them, or starts containers without Belljar, is bound only by what root
gave his control groups (`belljar setup-user`): SECURITY.md.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from belljar import enforcement, resources
from belljar.enforcement import Amounts
from belljar.errors import BelljarError, QuotaExceeded
from belljar.limits import amount_text
from belljar.options import SandboxOptions
from belljar.records import record
from belljar.sandbox import rundir
from belljar.sandbox.scratch import DEFAULT_BYTES

_SHOWN = 5
"""Sandboxes that an error names."""
_ASK_LESS = {"memory": "--memory", "cpus": "--cpus", "disk": "--disk"}


@record
class Claim:
    id: str
    run_dir: str
    what: str
    started: float
    memory: float
    cpus: float
    disk: float
    sessions: float = 1

    @classmethod
    def of(cls, id: str, run_dir: Path, options: SandboxOptions) -> Claim:
        limits = options.limits
        disk = DEFAULT_BYTES if limits.disk is None else limits.disk
        what = options.name or os.path.abspath(options.workspace or "")
        return cls(
            id, str(run_dir), what, time.time(), limits.memory, limits.cpus, disk
        )


def claim(
    id: str, run_dir: Path, options: SandboxOptions, reap: Callable[[], None]
) -> None:
    """Count this sandbox, which is about to start; QuotaExceeded if it would be too much. `reap` removes what is left of
    dead ones."""
    most = enforcement.quota(os.geteuid())
    if not most:
        return
    mine = Claim.of(id, run_dir, options)
    if not _fits(mine, most):
        reap()
        if not _fits(mine, most):
            raise QuotaExceeded(_words(mine, _all_living(), most))


def place(uid: int) -> Path:
    return Path("/run/belljar-quota" if uid == 0 else f"/tmp/belljar-quota-{uid}")


def _place() -> Path:
    path = place(os.geteuid())
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        resources.own_directory(path, setting="nothing else: root must remove it")
    except OSError as error:
        raise BelljarError(
            f"{path}, where the operator's quota is counted: {error.strerror}"
        ) from error
    return path


def _fits(mine: Claim, most: Amounts) -> bool:
    at = _place()
    with resources.locked(at / "lock"):
        if _exceeded(mine, _living(at), most):
            return False
        resources.write_whole(at / f"{mine.id}.json", json.dumps(asdict(mine)))
        return True


def _all_living() -> list[Claim]:
    at = _place()
    with resources.locked(at / "lock"):
        return _living(at)


def _living(at: Path) -> list[Claim]:
    """Those whose sandboxes have a run directory. The others' claims are removed: the caller holds the lock."""
    found = []
    for path in at.glob("bj-*.json"):
        facts = resources.read_json(path)
        try:
            one = Claim(**facts or {})
        except TypeError:
            one = None
        if one is not None and os.path.isdir(one.run_dir):
            os.utime(path)  # else a machine that clears old files would forget it
            found.append(one)
        else:
            path.unlink(missing_ok=True)
    return sorted(found, key=lambda one: one.started)


def _exceeded(mine: Claim, others: list[Claim], most: Amounts) -> Amounts:
    """What it would be too much of → how much the others have."""
    used = {name: sum(getattr(one, name) for one in others) for name in most}
    return {
        name: has
        for name, has in used.items()
        if has + getattr(mine, name) > most[name] + 1e-9
    }


def _words(mine: Claim, others: list[Claim], most: Amounts) -> str:
    """One line: what is used, by what, and what to do."""
    over = _exceeded(mine, others, most)
    lacking = "; ".join(
        f"{name}: {amount_text(name, has)} of {amount_text(name, most[name])} taken, "
        f"and this needs {amount_text(name, getattr(mine, name))}"
        for name, has in over.items()
    )
    return (
        f"the quota of {enforcement.user_name(os.geteuid())} on this machine is used up ({lacking}). "
        f"{_remedy(others, over)}; {enforcement.OPERATOR} sets the quota"
    )


def _remedy(others: list[Claim], over: Amounts) -> str:
    by = [
        f"{one.id} ({_taken(one, over)}{_waits(one)}{one.what})"
        for one in others[:_SHOWN]
    ]
    more = f" and {len(others) - _SHOWN} more" if len(others) > _SHOWN else ""
    waiting = (
        "`belljar serve --stop` those that wait, " if any(map(_waits, others)) else ""
    )
    end = (
        f"Taken by {', '.join(by)}{more}: `belljar session stop ID` ends one, {waiting}"
        "`belljar prune` removes dead ones"
    )
    less = " ".join(_ASK_LESS[name] for name in over if name in _ASK_LESS)
    ask = f"ask for less with {less}" if less else ""
    return ", or ".join(filter(None, [end if by else "", ask])) or "None is allowed"


def _waits(one: Claim) -> str:
    facts = rundir.read_session(Path(one.run_dir)) or {}
    return "waits for the local server, " if facts.get("waits") else ""


def _taken(one: Claim, over: Amounts) -> str:
    sizes = [name for name in over if name != "sessions"]
    return "".join(
        f"{name} {amount_text(name, getattr(one, name))}, " for name in sizes
    )
