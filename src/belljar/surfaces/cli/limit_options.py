"""`--memory`, `--cpus`, `--pids`, `--disk`, `--tmp`, `--home` and `--shm` as limits."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, _ArgumentGroup

from belljar.errors import UsageError
from belljar.limits import Limits, LimitsError

_HELP = {
    "memory": "of all processes together; here {memory}",
    "cpus": "processor time, in cores; here {cpus:g}",
    "pids": "processes and threads at once; {pids}",
    "disk": "a volume on disk for /tmp and home; 4g where one can be had",
    "tmp": "/tmp, held in memory also beside a volume; without one {tmp}",
    "home": "the home directory, held in memory also beside a volume; without one {home}",
    "shm": "/dev/shm, held in memory; an eighth of it, here {shm}",
}


def add_limits(parser: ArgumentParser | _ArgumentGroup) -> None:
    """The options, each with what it is on this machine when it is not given."""
    shown = described(Limits())
    for name, text in _HELP.items():
        unit = "N" if name in ("cpus", "pids") else "SIZE"
        parser.add_argument(f"--{name}", metavar=unit, help=text.format(**shown))


def described(limits: Limits) -> dict[str, object]:
    sizes = {name: f"{getattr(limits, name) >> 20}m" for name in ("memory", "tmp", "home", "shm")}
    return {"cpus": limits.cpus, "pids": limits.pids, **sizes}


def limits(args: Namespace) -> Limits:
    given = {name: value for name in _HELP if (value := getattr(args, name, None)) is not None}
    try:
        return Limits(**given)
    except LimitsError as error:
        raise UsageError(f"--{error}") from None
