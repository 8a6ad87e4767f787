"""Settings: defaults of options from files that the user or the operator wrote, never from a workspace.

    /etc/belljar/config.toml           the operator's; what stands in its [enforce] cannot be changed by anybody else
    ~/.config/belljar/config.toml      the user's ($BELLJAR_CONFIG names another)
    options on the command line

A file that others could have written is refused, not read.
"""

from __future__ import annotations

import argparse
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from belljar.errors import UsageError, meant
from belljar.records import record
from belljar.surfaces.cli.values import seconds

OPERATOR = Path("/etc/belljar/config.toml")
SETTABLE = (
    "image", "policy", "network", "engine", "memory", "cpus", "pids", "disk", "tmp", "home", "shm", "fsize", "runtime",
    "timeout", "lease",
)  # fmt: skip


@record
class Setting:
    value: str
    source: str
    enforced: bool = False


def user_file() -> Path:
    if given := os.environ.get("BELLJAR_CONFIG"):
        return Path(given)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "belljar" / "config.toml"


def load(workspace: str | None = None) -> dict[str, Setting]:
    """All that is set. The user's file counts only if no command can write it: not from inside `workspace`."""
    operator = _read(OPERATOR)
    enforced = operator.pop("enforce", {})
    if not isinstance(enforced, dict):
        raise UsageError(f"{OPERATOR}: enforce is not a table")
    user = user_file()
    mine = {} if workspace is not None and _is_below(user, workspace) else _read(user)
    found = _checked(operator, OPERATOR) | _checked(mine, user)
    return found | _checked(enforced, OPERATOR, enforced=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        status = path.stat()
    except OSError:
        return {}
    if not stat.S_ISREG(status.st_mode):  # /dev/null: none
        return {}
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise UsageError(f"{path} can be written by other users, so it is not read; run chmod go-w on it, and own it")
    import tomllib

    try:
        return tomllib.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path}: {error}") from None


def _checked(given: dict[str, Any], path: Path, *, enforced: bool = False) -> dict[str, Setting]:
    for name, value in given.items():
        if name not in SETTABLE:
            raise UsageError(f"{path}: there is no setting {name!r}; {meant(name, SETTABLE)}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(f"{path}: {name} must be text or a number")
    return {name: Setting(str(value), str(path), enforced) for name, value in given.items()}


def apply(parser: argparse.ArgumentParser, settings: dict[str, Setting]) -> None:
    """As the options' defaults."""
    for action in _actions(parser) if settings else ():
        setting = settings.get(action.dest) if action.option_strings else None
        if setting is None:
            continue
        if action.choices is not None and setting.value not in action.choices:
            listed = ", ".join(map(str, action.choices))
            raise UsageError(f"{setting.source}: {action.dest} is {setting.value!r}; choose from {listed}")
        action.default = setting.value


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
        else:
            yield action


def enforce(args: argparse.Namespace, settings: dict[str, Setting]) -> None:
    for name, setting in settings.items():
        if setting.enforced and hasattr(args, name) and str(getattr(args, name)) != _as_parsed(name, setting.value):
            raise UsageError(f"--{name} must be {setting.value} on this machine ({setting.source} enforces it)")


def _as_parsed(name: str, value: str) -> str:
    return str(seconds(value)) if name in ("timeout", "lease") else value


def _is_below(path: Path, workspace: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(workspace))
