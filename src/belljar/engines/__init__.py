"""Container engines, each in its own folder behind the verbs of `base.Engine`."""

from __future__ import annotations

import os
import pwd
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from belljar import environment
from belljar.errors import (
    EngineError,
    EngineRefused,
    EngineUnavailable,
    NamedEngineUnavailable,
    UsageError,
)

if TYPE_CHECKING:
    from belljar.engines.base import Engine
    from belljar.images.image_store import ImageStore

Known = Literal["docker", "podman", "oci", "kubernetes"]
KNOWN: tuple[Known, ...] = get_args(Known)
"""Folders here whose `find()` returns the engine."""
AUTO = KNOWN[:3]
"""In this order `auto` tries them. A cluster is used only by name: it is no part of this machine."""
VARIABLE, RUNTIME = "BELLJAR_ENGINE", "BELLJAR_RUNTIME"


def connect(
    name: str = "auto", runtime: str | None = None, state: Path | None = None
) -> Engine:
    """Connect to the engine of that name; nothing is cached here. Blocking: call it from a thread.

    `auto`: the one that BELLJAR_ENGINE names, else the first that answers. `runtime`: which of its runtimes, empty for
    the one that it takes by itself; else the one that BELLJAR_RUNTIME names. `state`: the directory for what the engine
    keeps of its own, else the user's; images are in a store that all share.
    """
    chosen = environment.value(VARIABLE, "auto") if name == "auto" else name
    if chosen == "auto":
        return _first_that_answers(runtime, state)
    if chosen not in KNOWN:
        raise UsageError(
            f"there is no engine {chosen!r}; choose from auto, {', '.join(KNOWN)}"
        )
    asked = environment.value(RUNTIME) if runtime is None else runtime
    engine: Engine = import_module(f"belljar.engines.{chosen}").find(asked, state)
    return engine


def image_stores_beside(engine: Engine) -> Iterator[ImageStore]:
    """Where else on this machine an image may be, which `engine` could have a copy of."""
    if engine.images is None or not engine.images.holds_imports:
        return  # Belljar's own store is where it looks
    for name in ("docker", "podman"):
        with suppress(EngineError):
            other = connect(name, "")
            with closing(other):
                if other.capabilities.binds and other.images is not None:
                    yield other.images


def _first_that_answers(runtime: str | None, state: Path | None) -> Engine:
    errors: list[EngineUnavailable] = []
    for name in AUTO:
        try:
            return connect(name, runtime, state)
        except NamedEngineUnavailable:
            raise
        except EngineUnavailable as error:
            errors.append(error)
    refused = [error for error in errors if isinstance(error, EngineRefused)]
    kind = EngineRefused if refused else EngineUnavailable
    none = kind(
        f"no container engine can be used here: {_ways(refused)}. `belljar doctor` says why each cannot"
    )
    none.others = tuple(dict.fromkeys(map(str, errors)))
    raise none


def _ways(refused: Sequence[EngineUnavailable]) -> str:
    """The two ways there are, with the one command of each."""
    if os.geteuid() == 0:
        if refused:
            return str(refused[0])
        return "install Docker (`apt-get install docker.io`), or just its runtime (`apt-get install runc`)"
    who = _caller()
    own = f"`sudo {_program()} setup-user {who}`, once, gives you sandboxes of your own, without a daemon"
    other = (
        f"`sudo usermod -aG docker {who}` lets you use Docker after the next login, which is as good as root"
        if refused
        else "`sudo apt-get install podman` installs an engine"
    )
    return f"{own}; or {other}"


def _program() -> str:
    """As sudo finds it: its search path has no directories of a user's."""
    here = os.path.abspath(sys.argv[0])
    usual = ("/usr/local/bin", "/usr/bin", "/bin")
    found = os.path.basename(here) == "belljar" and os.path.dirname(here) not in usual
    return here if found else "belljar"


def _caller() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
