"""Engines: what runs the containers, each in a folder of its own behind the verbs of `base.Engine`.

May import: images, link, workspace, policy, audit and what is below them; never sandbox or session.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING

from belljar.errors import EngineRefused, EngineUnavailable, NamedEngineUnavailable, UsageError

if TYPE_CHECKING:
    from belljar.engines.base import Engine

# Name → the module whose `find()` gives it, in the order in which `auto` asks.
KNOWN = {
    "docker": "belljar.engines.docker",
    "podman": "belljar.engines.podman",
    "oci": "belljar.engines.oci",
}
VARIABLE = "BELLJAR_ENGINE"


def connect(name: str = "auto") -> Engine:
    """The engine of that name, looked for anew (a `Host` keeps what it found). Blocking: call it from a thread.

    `auto`: the one that BELLJAR_ENGINE names, else the first that answers.
    """
    wanted = os.environ.get(VARIABLE) or "auto" if name == "auto" else name
    if wanted == "auto":
        return _first_that_answers()
    if wanted not in KNOWN:
        raise UsageError(f"there is no engine {wanted!r}; choose from auto, {', '.join(KNOWN)}")
    found: Engine = import_module(KNOWN[wanted]).find()
    return found


def _first_that_answers() -> Engine:
    tried: list[EngineUnavailable] = []
    for name in KNOWN:
        try:
            return connect(name)
        except NamedEngineUnavailable:
            raise
        except EngineUnavailable as error:
            tried.append(error)
    if refused := [error for error in tried if isinstance(error, EngineRefused)]:
        # The shortest way for a person; the doctor tells of the others.
        told = EngineRefused(f"{refused[0]}; `belljar doctor` shows what else there is")
        told.others = tuple(str(error) for error in tried if error is not refused[0])
        raise told
    raise EngineUnavailable(" ".join(dict.fromkeys(map(str, tried))))
