"""Removes the remains of sandboxes whose process died.

A sandbox without a host ends when its lease runs out, and its container removes itself. The reaper removes the rest:
containers that were created and never started, directories and mounts on the host.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from belljar import resources
from belljar.engines.base import Engine, Listed
from belljar.engines.spec import LABEL
from belljar.errors import EngineError
from belljar.sandbox import pausing, rundir

log = logging.getLogger("belljar.reaper")


def reap(engine: Engine, root: Path | None = None) -> list[str]:
    """The ids of the sessions whose remains were removed. Blocking.

    The directories are checked before the engine lists its containers: a directory that nobody owns and whose container
    is not in the later list is dead. In the other order, a session that became kept in between would look dead.
    """
    unowned = [
        path
        for path in rundir.run_dirs(root)
        if not rundir.owned(path) and _made_here(path, engine)
    ]
    listed = engine.list()
    gone = [each for each in listed if _ownerless(each) or _is_forgotten(each, root)]
    for each in gone:
        with suppress(EngineError):
            engine.destroy(each.id)
    living = {each.labels.get(LABEL + "session") for each in listed if each not in gone}
    reaped = {each.labels[LABEL + "session"] for each in gone}
    for path in unowned:
        if path.name not in living and not rundir.owned(path):
            _destroy_unlisted(engine, path)
            rundir.remove_run_dir(path)
            reaped.add(path.name)
    for path in rundir.unborn_dirs(root):
        rundir.remove_run_dir(path)
    if reaped:
        log.info("reaped %s", ", ".join(sorted(reaped)))
    return sorted(reaped)


def _destroy_unlisted(engine: Engine, path: Path) -> None:
    """Destroy a sandbox that the engine has forgotten: it may run on, unreachable, until its lease ends."""
    facts = rundir.read_session(path)
    if facts is not None and (id := facts.get("container")):
        with suppress(EngineError):
            engine.destroy(str(id))


def _made_here(path: Path, engine: Engine) -> bool:
    """Whether a directory belongs to this engine; the container of another engine is not in its list.

    Without a session file the sandbox never started, so any engine may remove the directory.
    """
    facts = rundir.read_session(path)
    return facts is None or facts.get("engine", engine.identity) == engine.identity


def _is_forgotten(listed: Listed, root: Path | None) -> bool:
    """Whether it is paused, and its lease is over."""
    path = (root or resources.run_root()) / listed.labels.get(LABEL + "session", "")
    return listed.state == "paused" and pausing.is_over(path)


def _ownerless(listed: Listed) -> bool:
    if not rundir.owner_is_gone(listed.labels.get(LABEL + "owner", "")):
        return False
    # A kept session outlives its maker, but only if it was started.
    return listed.labels.get(LABEL + "keep") != "true" or listed.state in (
        "created",
        "exited",
        "dead",
    )
