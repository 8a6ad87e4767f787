"""Resource limits for a sandbox whose engine does not set them: set from outside on PID 1 and the processes it has
forked, before any command runs. Lowering the limits of one's own processes needs no privilege."""

from __future__ import annotations

import resource
from collections.abc import Mapping

from belljar.engines.kernel_facts import read
from belljar.errors import EngineError


def impose(pid: int, limits: Mapping[str, int]) -> None:
    """The parent first: children that it forks later inherit the limits, earlier ones are in its list of children."""
    try:
        for name, value in limits.items():
            number = getattr(resource, f"RLIMIT_{name.upper()}")
            _, hard = resource.prlimit(pid, number)
            limit = value if hard == resource.RLIM_INFINITY else min(value, hard)
            resource.prlimit(pid, number, (limit, limit))
    except ProcessLookupError:
        return
    except (OSError, ValueError) as error:
        raise EngineError(f"limiting the sandbox: {error}") from error
    for child in (read(f"/proc/{pid}/task/{pid}/children") or "").split():
        impose(int(child), limits)
