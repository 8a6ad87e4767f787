"""Settings that run something: LD_PRELOAD, BASH_ENV, a PAGER that is a command, a line in .npmrc."""

import functools
from typing import TYPE_CHECKING, Any

from . import expressions
from .knowledge import tables
from .marks import known, solid
from .quoting import quiet_command
from .shellstate import ShellState

if TYPE_CHECKING:
    from .machine import Machine


@functools.lru_cache(maxsize=1000)
def _setting(table: str, name: str) -> dict[str, Any]:
    settings = tables()["setting"][table].items()
    return next((one for pattern, one in settings if expressions.fullmatch(pattern, name)), {})


def planted(machine: "Machine", path: str, text: str) -> None:
    """Tell when text written to a file of settings makes a program run something."""
    harmful = _setting("file", path).get("harmful")
    if harmful and expressions.search(harmful, text):
        machine.emit("persist.env", path)
    for line in text.splitlines() if path.endswith("/github_env") else []:  # the environment of what runs next
        poisoned(machine, line.partition("=")[0], line.partition("=")[2], ShellState())


def poisoned(machine: "Machine", name: str, value: str, state: ShellState, program: str = "") -> None:
    """Tell when setting this variable makes later programs run something."""
    text = solid(value).strip()
    one = _setting("environment", name) if text and name.isidentifier() else {}
    risky = text.startswith("() {") or (name == "LD_LIBRARY_PATH" and program in ("sudo", "su") and text[:5] == "/tmp/")
    if "harmful" in one:
        risky = risky or expressions.search(one["harmful"], text) is not None
    elif "harmless" in one:
        risky = risky or not expressions.fullmatch(one["harmless"], text)
    elif one.get("editor") and known(text) and not quiet_command(text):
        risky = True
        machine.run_text(text, state.fork())
    if risky:
        machine.emit("persist.env", f"{name}={text}")
