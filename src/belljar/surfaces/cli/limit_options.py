"""`--memory`, `--cpus` and `--pids` as limits."""

from __future__ import annotations

from argparse import Namespace

from belljar.errors import UsageError
from belljar.limits import Limits, LimitsError


def limits(args: Namespace) -> Limits:
    given = {name: value for name in ("memory", "cpus", "pids") if (value := getattr(args, name, None)) is not None}
    try:
        return Limits(**given)
    except LimitsError as error:
        raise UsageError(f"--{error}") from None
