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
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from belljar import limits
from belljar.ancestry import untrusted
from belljar.errors import UsageError, suggestion
from belljar.records import record
from belljar.surfaces.cli.sandbox_options import ENGINES, NETWORKS
from belljar.surfaces.cli.values import seconds

OPERATOR = Path("/etc/belljar/config.toml")
ENFORCE = "enforce"
LIMITS = ("memory", "cpus", "pids", "disk", "tmp", "home", "shm", "fsize")
TIMES = ("timeout", "lease")
SETTABLE = ("image", "policy", "network", "engine", *LIMITS, "runtime", *TIMES)
LISTABLE = ("image", "engine", "runtime")
"""The operator may enforce a list of values for these. The first one is the default."""
_CHOICES = {"network": NETWORKS, "engine": ENGINES}
_DOOR = {"allow": "--allow", "allow_preset": "--allow-preset", "ask_hosts": "--ask-hosts"}


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
        return f"{self.source} ({'' if (self.value,) == self.bound else f'{limit} {_either(self.bound)}, '}enforced)"


def user_file() -> Path:
    if path := os.environ.get("BELLJAR_CONFIG"):
        if not os.path.lexists(path):
            raise UsageError(f"BELLJAR_CONFIG names {path}, which does not exist; create it, or unset BELLJAR_CONFIG")
        return Path(path)
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    return Path(base) / "belljar" / "config.toml"


def load(workspace: str | None = None) -> dict[str, Setting]:
    """All settings. The user's file is not read if it is inside `workspace`, where commands can write it."""
    operator = _read(OPERATOR)
    enforced = operator.pop(ENFORCE, {})
    if not isinstance(enforced, dict):
        raise UsageError(f"{OPERATOR}: {ENFORCE} is not a table")
    user = user_file()
    inside = workspace is not None and Path(os.path.realpath(user)).is_relative_to(os.path.realpath(workspace))
    mine = {} if inside else _read(user)
    found = _checked(operator, OPERATOR, ENFORCE) | _checked(mine, user)
    for name, value in enforced.items():
        listed = value if isinstance(value, list) and value and name in LISTABLE else [value]
        bounds = [_checked({name: item}, OPERATOR)[name] for item in listed]
        bound = tuple(setting.value for setting in bounds)
        setting = found.get(name, bounds[0])
        if not _within(name, setting.value, bound):
            setting = bounds[0]
        found[name] = Setting(setting.value, setting.source, enforced=True, bound=bound)
    return found


def _read(path: Path) -> dict[str, Any]:
    """What is judged is what is read: another user may swap the file meanwhile (`sudo` with the caller's HOME)."""
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))
    except OSError as error:
        if not os.path.lexists(path):  # also if a directory on the way cannot be searched
            return {}
        raise UsageError(f"{path}: {error.strerror}") from None
    with file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):  # such as BELLJAR_CONFIG=/dev/null
            return {}
        if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
            raise UsageError(
                f"{path} can be written by other users, so it is not read; run chmod go-w on it, and own it"
            )
        if found := untrusted(path):  # their link may lead to a file of ours, whose paths would be relative to theirs
            raise UsageError(f"{path} is not read: others own {found} or may write to it; BELLJAR_CONFIG names another")
        import tomllib

        try:
            return tomllib.loads(file.read())
        except (OSError, ValueError) as error:
            raise UsageError(f"{path}: {error}") from None


def _checked(given: dict[str, Any], path: Path, *tables: str) -> dict[str, Setting]:
    for name, value in given.items():
        if name not in SETTABLE:
            raise UsageError(f"{path}: there is no setting {name!r}; {suggestion(name, [*SETTABLE, *tables])}")
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise UsageError(f"{path}: {name} must be text or a number")
    return {name: Setting(_value(name, str(value), path), str(path)) for name, value in given.items()}


def _value(name: str, text: str, path: Path) -> str:
    """A valid value, with paths that do not depend on the current directory."""
    try:
        _amount(name, text)
    except (limits.LimitsError, argparse.ArgumentTypeError) as error:
        raise UsageError(f"{path}: {str(error) if name in LIMITS else f'{name}: {error}'}") from None
    if text not in _CHOICES.get(name, (text,)):
        raise UsageError(f"{path}: {name} is {text!r}; choose from {', '.join(_CHOICES[name])}")
    if name == "policy":
        return _policy(text, path)
    return _beside(text, path) if name == "runtime" and "/" in text else text


def _policy(text: str, path: Path) -> str:
    from belljar.policy import BUILT_IN

    if text in BUILT_IN:
        return text
    file = _beside(text, path)
    if not os.path.isfile(file):
        raise UsageError(f"{path}: no policy {file!r}: give a file, or one of {', '.join(BUILT_IN)}")
    return file


def _beside(text: str, path: Path) -> str:
    """Relative to the settings file: a repository could put its own file into the current directory."""
    return os.path.normpath(path.absolute().parent / Path(text).expanduser())


def _amount(name: str, value: Any) -> float | None:
    """The number of a size, a count or a time; None for other settings."""
    if name in LIMITS:
        return limits.checked(name, value)
    return seconds(str(value)) if name in TIMES else None


def _within(name: str, value: Any, bound: tuple[str, ...]) -> bool:
    most = _amount(name, bound[0])
    if value is None or most is None:
        return str(value) in bound
    return (_amount(name, value) or 0) <= most


def apply(parser: argparse.ArgumentParser, settings: dict[str, Setting]) -> None:
    """Use the settings as the options' defaults."""
    for action in _actions(parser) if settings else ():
        if action.option_strings and action.dest in settings:
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
    for name, setting in settings.items():
        if not setting.enforced or not hasattr(args, name):
            continue
        try:
            allowed = _within(name, getattr(args, name), setting.bound)
        except limits.LimitsError as error:
            raise UsageError(f"--{error}") from None
        if not allowed:
            must = "must be" if _amount(name, setting.bound[0]) is None else "may be at most"
            raise UsageError(f"--{name} {must} {_either(setting.bound)} on this machine ({OPERATOR} enforces it)")
    network = settings.get("network")
    args.no_hosts = network is not None and network.bound == ("none",)
    for name, flag in _DOOR.items() if args.no_hosts else ():
        if getattr(args, name, None):
            raise UsageError(f"{flag}: there is no network on this machine ({OPERATOR} enforces it)")


def _either(choices: tuple[str, ...]) -> str:
    return " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
