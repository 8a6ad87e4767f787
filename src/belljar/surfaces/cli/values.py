"""Parses values of options: times, numbers of lines, variables and files of variables."""

from __future__ import annotations

import argparse
import os
import stat

from belljar.options import parse_seconds

_LONGEST_ENV_FILE = 1 << 20


def seconds(text: str) -> float:
    try:
        return parse_seconds(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of lines, such as 20")
    return int(text)


def named(text: str) -> str:
    """A session. An empty name is a variable of the caller's that was never set: nothing may run elsewhere instead."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the session's name is empty; `belljar ps` lists the sessions")
    return text


def variable(text: str) -> tuple[str, str]:
    """`NAME=value`. NAME alone takes the value of our own environment, so that it is not in the list of processes."""
    name, equals, value = text.partition("=")
    if not equals and name.isidentifier() and name not in os.environ:
        raise argparse.ArgumentTypeError(f"{name} is not set here, so there is no value to take; write {name}=value")
    if not name or (not equals and name not in os.environ):
        raise argparse.ArgumentTypeError(f"{text!r} is not a variable; write NAME=value")
    return name, value if equals else os.environ[name]


def env_file(path: str) -> list[tuple[str, str]]:
    """Read as by Docker, but each line needs a value: the file may come from a repository, which must not choose which
    of our own variables a command gets."""
    try:
        if stat.S_ISFIFO(os.stat(path).st_mode) and not path.startswith("/dev/fd/"):  # opening it could wait for ever
            raise argparse.ArgumentTypeError(f"{path} is a named pipe; give a file, or write <(…)")
        with open(path, encoding="utf-8") as file:
            text = file.read(_LONGEST_ENV_FILE + 1)
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if len(text) > _LONGEST_ENV_FILE:
        raise argparse.ArgumentTypeError(f"{path} is larger than 1 MiB")
    pairs = []
    for number, line in enumerate(text.splitlines(), 1):
        name, equals, value = line.lstrip().partition("=")
        if not name or name.startswith("#"):
            continue
        if not equals and name.isidentifier():
            raise argparse.ArgumentTypeError(
                f"{path}, line {number}: {name} has no value; `-e {name}` takes that of your own environment"
            )
        if name != name.strip() or not equals:
            raise argparse.ArgumentTypeError(f"{path}, line {number}: {line!r} is not a variable; write NAME=value")
        pairs.append((name, value))
    return pairs
