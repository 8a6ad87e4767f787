"""Podman, through its service with Docker's API; what it spells otherwise is in `dialect.py`."""

from __future__ import annotations

from belljar.engines.docker import first_that_answers, hosts
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.podman.dialect import PodmanDialect


def find() -> DockerEngine:
    own = f"unix://{hosts.runtime_directory()}/podman/podman.sock"
    return first_that_answers((own, "unix:///run/podman/podman.sock"), PodmanDialect())
