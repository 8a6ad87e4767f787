"""What Belljar needs of a container engine: a handful of verbs and a byte stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from belljar.engines.spec import ContainerSpec
    from belljar.link.transport import Transport


@dataclass(frozen=True, slots=True)
class Launched:
    """A container that runs."""

    id: str
    pid: int
    """Of its PID 1, in the engine's PID namespace."""
    facts: Mapping[str, Any]
    """What the engine says of it (Docker's inspect document)."""


@dataclass(frozen=True, slots=True)
class Listed:
    id: str
    state: str
    labels: Mapping[str, str]
    image: str
    created: int


class Engine(Protocol):
    shares_files: bool
    """Whether a directory of this machine can be mounted with its sockets working, and its processes seen."""

    def create(self, spec: ContainerSpec, name: str) -> str: ...

    def start(self, id: str) -> Launched: ...

    def bridge(self, id: str) -> Transport:
        """A byte stream to the init of a container whose files we do not share."""
        ...

    def destroy(self, id: str) -> None:
        """Gone when this returns; a container that is gone already is fine."""
        ...

    def state(self, id: str) -> str | None:
        """running, paused, exited, ...; None: it does not exist."""
        ...

    def inspect(self, id: str) -> Launched: ...

    def list(self) -> list[Listed]: ...

    def install_init(self, binary: Path, image: str) -> str:
        """Where files are not shared: the name of a volume that holds the init."""
        ...

    def image_facts(self, reference: str) -> dict[str, Any] | None: ...
