"""Removes what dead processes left behind, and never anything of a living one.

A sandbox ends by itself when its lease runs out with no host connected, and its container removes itself then. The
reaper is for what that cannot reach: containers created and never started, directories and mounts on the host.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

from belljar.engines.base import Engine, Listed
from belljar.engines.spec import LABEL
from belljar.errors import EngineError
from belljar.sandbox import rundir

log = logging.getLogger("belljar.reaper")


def reap(engine: Engine, root: Path | None = None) -> list[str]:
    """Blocking. The ids of the sessions whose remains were removed.

    The directories are looked at before the engine is asked: one that nobody holds by then, and whose container is not
    in the later list, is a dead one's. The other way round a session that was kept in between would be taken for dead.
    """
    unowned = [path for path in rundir.run_dirs(root) if not rundir.owned(path) and _made_here(path, engine)]
    listed = engine.list()
    gone = [each for each in listed if _ownerless(each)]
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
    """What an engine lost its notes of may run on until its lease ends, where nobody can reach it."""
    facts = rundir.read_session(path)
    if facts is not None and (id := facts.get("container")):
        with suppress(EngineError):
            engine.destroy(str(id))


def _made_here(path: Path, engine: Engine) -> bool:
    """Whether a directory is for this engine to judge: another one's container is not in its list.

    Without a session file its sandbox never came to be, or nobody could come back to it: that is anybody's to remove.
    """
    facts = rundir.read_session(path)
    return facts is None or facts.get("engine", engine.identity) == engine.identity


def _ownerless(listed: Listed) -> bool:
    if not rundir.owner_is_gone(listed.labels.get(LABEL + "owner", "")):
        return False
    # A kept session lives on without its maker, but only if it ever began to live.
    return listed.labels.get(LABEL + "keep") != "true" or listed.state in ("created", "exited", "dead")
