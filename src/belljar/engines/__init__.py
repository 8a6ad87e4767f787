"""Engines: what runs the containers. Docker (and what speaks its API) today."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belljar.engines.docker import DockerEngine

_lock = threading.Lock()
_engine: DockerEngine | None = None


def connect() -> DockerEngine:
    """The engine that answers, found once per process. Blocking: call it from a thread."""
    global _engine
    with _lock:
        if _engine is None:
            from belljar.engines.docker import DockerEngine

            _engine = DockerEngine.find()
        return _engine


def forget() -> None:
    """Look again at the next `connect` (another DOCKER_HOST, a restarted engine)."""
    global _engine
    with _lock:
        _engine = None
