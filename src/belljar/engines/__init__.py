"""Engines: what runs the containers. Docker (and what speaks its API) today."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from belljar.engines.docker.full_client import DockerEngine

_lock = threading.Lock()
_engine: DockerEngine | None = None


def connect() -> DockerEngine:
    """The engine that answers, found once per process. Blocking: call it from a thread."""
    global _engine
    with _lock:
        if _engine is None:
            _engine = _find()
        return _engine


def _find() -> DockerEngine:
    from belljar.engines.docker.socket_client import LocalDocker

    if (local := LocalDocker.find()) is not None:
        return cast("DockerEngine", local)  # it stands in for the full client, and loads it when there is need
    from belljar.engines.docker.full_client import DockerEngine

    return DockerEngine.find()


def forget() -> None:
    """Look again at the next `connect` (another DOCKER_HOST, a restarted engine)."""
    global _engine
    with _lock:
        if _engine is not None:
            _engine.close()
        _engine = None
