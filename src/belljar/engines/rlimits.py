"""Resource limits put on a sandbox from outside, where its engine does not: before it runs anything, its PID 1 and all
that it has forked meanwhile are given them. Lowering the limits of a process of one's own needs no privilege."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from belljar.engines.kernel_facts import read
from belljar.errors import EngineError

_NUMBERS = {
    "core": resource.RLIMIT_CORE,
    "nofile": resource.RLIMIT_NOFILE,
    "fsize": resource.RLIMIT_FSIZE,
    "memlock": resource.RLIMIT_MEMLOCK,
}


def impose(pid: int, limits: Mapping[str, int]) -> None:
    """A parent first: what it forks from then on inherits them, and what it forked before is among its children."""
    try:
        for name, value in limits.items():
            _, hard = resource.prlimit(pid, _NUMBERS[name])
            most = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, _NUMBERS[name], (most, most))
    except ProcessLookupError:
        return
    except (OSError, ValueError) as error:
        raise EngineError(f"limiting the sandbox: {error}") from error
    for child in (read(f"/proc/{pid}/task/{pid}/children") or "").split():
        impose(int(child), limits)
