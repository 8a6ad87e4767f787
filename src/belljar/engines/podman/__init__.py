"""Podman, through its service with Docker's API; `dialect.py` holds the differences."""

from __future__ import annotations

from pathlib import Path

from belljar.engines.docker import first_that_answers, hosts
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.podman.dialect import PodmanDialect


def find(runtime: str = "", state: Path | None = None) -> DockerEngine:
    user_socket = f"unix://{hosts.runtime_directory()}/podman/podman.sock"
    return first_that_answers(
        (user_socket, "unix:///run/podman/podman.sock"), PodmanDialect(), runtime
    )
