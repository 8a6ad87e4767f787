"""Docker, spoken to over its API."""

from __future__ import annotations

from pathlib import Path

from belljar.engines.docker import hosts
from belljar.engines.docker.client import ADVICE
from belljar.engines.docker.dialect import Dialect
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import (
    EngineError,
    EngineRefused,
    EngineUnavailable,
    NamedEngineUnavailable,
)


def find(runtime: str = "", state: Path | None = None) -> DockerEngine:
    """`state` is not needed: the daemon keeps everything."""
    sockets = (hosts.DEFAULT, f"unix://{hosts.runtime_directory()}/docker.sock")
    return first_that_answers(sockets, Dialect(), runtime)


def first_that_answers(
    sockets: tuple[str, ...], dialect: Dialect, runtime: str = ""
) -> DockerEngine:
    """The engine that the settings name, or the first of `sockets` where an engine of this dialect answers."""
    reasons: list[str] = []
    refused, broken = "", False
    for endpoint in hosts.candidates(sockets):
        try:
            engine = DockerEngine(endpoint, dialect, runtime)
        except EngineUnavailable as error:
            if endpoint.named_by:
                raise NamedEngineUnavailable(
                    f"{error} ({endpoint.named_by} names it)"
                ) from error
            reasons.append(reason := str(error).partition(": ")[2].removesuffix(ADVICE))
            if isinstance(error.__cause__, PermissionError):
                refused = f"{dialect.name.capitalize()} is there, but {reason}"
            elif not isinstance(error.__cause__, FileNotFoundError):
                broken = True  # the user's own broken service matters more than one that refuses access
            continue
        except EngineError as error:
            raise (
                NamedEngineUnavailable(str(error)) if endpoint.named_by else error
            ) from None
        if _kind(engine) == dialect.name:
            return engine
        reasons.append(f"what answers at {endpoint.host} is {_kind(engine)}")
    if refused and not broken:
        raise EngineRefused(refused)
    start = (
        f"`{hosts.podman_start()}`"
        if dialect.name == "podman"
        else "`make engine` installs one"
    )
    raise EngineUnavailable(
        f"No {dialect.name.capitalize()} answers: {'; '.join(reasons)}. Start one ({start}), or set DOCKER_HOST."
    )


def _kind(engine: DockerEngine) -> str:
    parts = engine.about.get("Components") or []
    names = " ".join(str(part.get("Name")) for part in parts if isinstance(part, dict))
    return "podman" if "podman" in names.lower() else "docker"
