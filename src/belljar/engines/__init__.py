"""Engines: what runs the containers. Docker (and what speaks its API) today."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from belljar.errors import EngineUnavailable

if TYPE_CHECKING:
    from belljar.engines.docker.full_client import DockerEngine


def connect(name: str = "auto") -> DockerEngine:
    """The engine of that name, looked for anew; a `Host` keeps what it found. Blocking: call it from a thread."""
    if name not in ("auto", "docker"):
        raise EngineUnavailable(f"the engine {name!r} cannot be used yet; use docker")
    from belljar.engines.docker.socket_client import LocalDocker

    if (local := LocalDocker.find()) is not None:
        return cast("DockerEngine", local)  # it stands in for the full client, and loads it when there is need
    from belljar.engines.docker.full_client import DockerEngine

    return DockerEngine.find()
