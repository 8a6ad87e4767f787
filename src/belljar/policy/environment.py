"""Settings that make programs run something: LD_PRELOAD, BASH_ENV, PAGER, a line in .npmrc."""

import functools
from typing import Any

from . import expressions
from .interpreter import Interpreter
from .marks import drop_unset, known
from .quoting import is_plain_editor
from .shellstate import ShellState
from .toml_files import tables


@functools.lru_cache(maxsize=1000)
def setting(table: str, name: str) -> dict[str, Any] | None:
    """What [setting.TABLE] in settings.toml says of this name."""
    settings = tables()["setting"][table].items()
    return next(
        (one for pattern, one in settings if expressions.fullmatch(pattern, name)), None
    )


def check_settings_file(machine: Interpreter, path: str, text: str) -> None:
    """Emit an effect if text that is written to a settings file makes a program run something."""
    harmful = (setting("file", path) or {}).get("harmful")
    if harmful and expressions.search(harmful, text):
        machine.emit("persist.env", path)
    for line in (
        text.splitlines() if path.endswith("/github_env") else []
    ):  # variables of the next steps of a GitHub job
        check_variable(
            machine, line.partition("=")[0], line.partition("=")[2], ShellState()
        )


def check_variable(
    machine: Interpreter, name: str, value: str, state: ShellState, program: str = ""
) -> None:
    """Emit an effect if this value of a variable makes later programs run something."""
    text = drop_unset(value).strip()
    one = (text and name.isidentifier() and setting("environment", name)) or {}
    risky = text.startswith("() {") or (
        name == "LD_LIBRARY_PATH" and program in ("sudo", "su") and text[:5] == "/tmp/"
    )
    if "harmful" in one:
        risky = risky or expressions.search(one["harmful"], text) is not None
    elif "harmless" in one:
        risky = risky or not expressions.fullmatch(one["harmless"], text)
    elif one.get("editor") and known(text) and not is_plain_editor(text):
        risky = True
        machine.run_text(text, state.fork())
    if risky:
        machine.emit("persist.env", f"{name}={text}")
