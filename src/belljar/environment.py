"""The environment variables that Belljar follows. Below the surfaces only this module reads them.

A `Host` asks for ENGINE, RUNTIME, RUN, STATE and AUDIT where it is not told. The rest is of the machine or the user,
the same for all hosts of a process: where caches and images are, how long to wait, how Docker is reached.
"""

from __future__ import annotations

import os


def value(name: str, default: str = "") -> str:
    """The value of a variable; `default` if it is not set or empty."""
    return os.environ.get(name) or default


def for_program(**more: str) -> dict[str, str]:
    """The environment of a program that Belljar starts on the host."""
    return {**os.environ, **more}


def only(*names: str) -> dict[str, str]:
    """Those of these variables that are set."""
    return {name: os.environ[name] for name in names if name in os.environ}


def run_place() -> str:
    """Where the directories of running sandboxes are: $BELLJAR_RUN, else this user's own place, which ends with the
    machine or the login."""
    if setting := value("BELLJAR_RUN"):
        return setting
    if os.geteuid() == 0:
        return "/run/belljar"
    runtime = value("XDG_RUNTIME_DIR")
    return (
        os.path.join(runtime, "belljar") if runtime else f"/tmp/belljar-{os.geteuid()}"
    )
