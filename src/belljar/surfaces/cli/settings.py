"""Settings: files of the user and the operator that change the options' defaults. They are never read from a workspace.

    /etc/belljar/config.toml           the operator's; nobody can override its [enforce] table
    ~/.config/belljar/config.toml      the user's ($BELLJAR_CONFIG names another file)
    options on the command line        override both

An enforced size, count or time is a maximum; other enforced values are exact. An enforced `network = "none"` also
forbids to allow single hosts. Paths are relative to the file they are in. A file that other users can write is refused.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from belljar import enforcement, limits
from belljar.errors import UsageError, suggestion
from belljar.records import record
from belljar.surfaces.cli.arguments import ENGINES, NETWORKS

SIZES = ("memory", "cpus", "pids", "disk", "tmp", "home", "shm", "fsize")
_OPTIONS = (
    "image",
    "policy",
    "network",
    "engine",
    *SIZES,
    "runtime",
    *enforcement.TIMES,
)
RESIDENT = "resident"
"""`auto`: the first `belljar run` starts the local server."""
SETTABLE = (*_OPTIONS, RESIDENT)
DEFAULTS = (*_OPTIONS, "changes")
_ELSEWHERE = ("mounts", "cache", "yes")
"""Looked at below, or by the session."""
_CHOICES = {"network": NETWORKS, "engine": ENGINES, RESIDENT: ("auto", "off")}
_DOOR = {
    "allow": "--allow",
    "allow_preset": "--allow-preset",
    "ask_hosts": "--ask-hosts",
}


@record
class Setting:
    value: str
    source: str
    enforced: bool = False
    bound: tuple[str, ...] = ()
    """The enforced values: one of these. A size, a count or a time may be less."""

    @property
    def described_source(self) -> str:
        if not self.enforced:
            return self.source
        limit = "of" if len(self.bound) > 1 else "at most"
        others = (
            ""
            if (self.value,) == self.bound
            else f"{limit} {enforcement.either(self.bound)}, "
        )
        return f"{self.source} ({others}enforced)"


def user_file() -> Path:
    if path := os.environ.get("BELLJAR_CONFIG"):
        if not os.path.lexists(path):
            raise UsageError(
                f"BELLJAR_CONFIG names {path}, which does not exist; create it, or unset BELLJAR_CONFIG"
            )
        return Path(path)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "belljar" / "config.toml"


def load(workspace: str | None = None) -> dict[str, Setting]:
    """All settings. The user's file is not read if it is inside `workspace`, where commands can write it."""
    operator = enforcement.read_trusted(enforcement.OPERATOR)
    for table in enforcement.TABLES:
        operator.pop(table, None)
    user = user_file()
    inside = workspace is not None and Path(os.path.realpath(user)).is_relative_to(
        os.path.realpath(workspace)
    )
    mine = {} if inside else enforcement.read_trusted(user)
    found = _checked(operator, enforcement.OPERATOR, *enforcement.TABLES) | _checked(
        mine, user
    )
    for name, allowed in enforcement.table().items():
        bound = tuple(map(_shown, allowed))
        setting = found.get(name)
        if setting is None or not enforcement.within(name, setting.value, allowed):
            setting = Setting(bound[0] if bound else "", str(enforcement.OPERATOR))
        found[name] = Setting(setting.value, setting.source, enforced=True, bound=bound)
    return found | _quota()


def _quota() -> dict[str, Setting]:
    """What all sandboxes of this user together may take."""
    texts = {
        name: limits.amount_text(name, most)
        for name, most in enforcement.quota(os.geteuid()).items()
    }
    return {
        f"{enforcement.QUOTA}.{name}": Setting(
            text, str(enforcement.OPERATOR), enforced=True, bound=(text,)
        )
        for name, text in texts.items()
    }


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _checked(given: dict[str, Any], path: Path, *tables: str) -> dict[str, Setting]:
    for name, value in given.items():
        if name not in SETTABLE:
            raise UsageError(
                f"{path}: there is no setting {name!r}; {suggestion(name, [*SETTABLE, *tables])}"
            )
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(f"{path}: {name} must be text or a number")
    return {
        name: Setting(_value(name, str(value), path), str(path))
        for name, value in given.items()
    }


def _value(name: str, text: str, path: Path) -> str:
    """A valid value, with paths that do not depend on the current directory."""
    try:
        enforcement.amount(name, text)
    except ValueError as error:
        raise UsageError(
            f"{path}: {error if name in enforcement.SIZES else f'{name}: {error}'}"
        ) from None
    if text not in _CHOICES.get(name, (text,)):
        raise UsageError(
            f"{path}: {name} is {text!r}; choose from {', '.join(_CHOICES[name])}"
        )
    if name == "policy":
        return enforcement.policy_file(text, path)
    return enforcement.beside(text, path) if name == "runtime" and "/" in text else text


def apply(parser: argparse.ArgumentParser, settings: dict[str, Setting]) -> None:
    """Use the settings as the options' defaults."""
    for action in _actions(parser) if settings else ():
        if (
            action.option_strings
            and action.dest in settings
            and action.dest in DEFAULTS
        ):
            action.default = settings[action.dest].value


def remove_defaults(parser: argparse.ArgumentParser) -> None:
    """Remove all defaults, so that a parse yields only the options that are given."""
    for action in _actions(parser):
        if action.option_strings:
            action.default = argparse.SUPPRESS


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _actions(sub)
        else:
            yield action


def enforce(args: argparse.Namespace, settings: dict[str, Setting]) -> None:
    """Refuse options that the operator does not allow. Sessions and hosts look again, also at the rest."""
    for name, setting in settings.items():
        allowed = enforcement.table().get(name)
        if (
            not setting.enforced
            or allowed is None
            or not hasattr(args, name)
            or name in _ELSEWHERE
        ):
            continue
        try:
            is_allowed = enforcement.within(name, getattr(args, name), allowed)
        except limits.LimitsError as error:
            raise UsageError(f"--{error}") from None
        if not is_allowed:
            raise UsageError(
                f"--{enforcement.refusal(name, allowed)}".replace(
                    "--changes", "--staged"
                )
            )
    network = settings.get("network")
    for name, flag in (
        _DOOR.items() if network is not None and network.bound == ("none",) else ()
    ):
        if getattr(args, name, None):
            raise UsageError(
                f"{flag}: there is no network on this machine ({enforcement.OPERATOR} enforces it)"
            )
    yes = enforcement.table().get("yes")
    if (
        yes is not None
        and hasattr(args, "policy")
        and getattr(args, "yes", False)
        and not yes[0]
    ):
        raise UsageError(f"--{enforcement.refusal('yes', yes)}")
