"""What Belljar needs of a container engine: a handful of verbs and a byte stream. All of them block.

An engine is a folder with a `find() -> Engine` and a line in `engines.KNOWN`. It translates a `SandboxSpec`, answers in
the words of `Protections`, and raises nothing but `EngineError`. `tests/engines/test_contract.py` is what it must pass.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from belljar.engines.spec import Image, Protections, SandboxSpec, User
from belljar.images.catalog import ImageStore
from belljar.records import record

if TYPE_CHECKING:
    from belljar.link.transport import Transport


@record
class Launched:
    """A container that runs."""

    id: str
    pid: int
    """Of its PID 1, in the engine's PID namespace."""
    claims: Protections
    """What the engine says is in force."""


@record
class Listed:
    id: str
    state: str
    """created, running, paused, exited, dead …"""
    labels: Mapping[str, str]
    image: str
    created: int


@record
class Description:
    """What an engine says of itself, for `doctor`. None: it does not say."""

    version: str
    cgroup_version: str | None = None
    cgroup_driver: str | None = None
    can_limit: Mapping[str, bool | None] = field(default_factory=dict)
    """memory, swap, pids, cpus."""
    seccomp: bool | None = None
    rootless: bool = False
    does_without: tuple[str, ...] = ()
    """What its sandboxes lack here that others have, each in words for people."""
    user_remapping: bool = False
    user_namespaces: bool = False
    """Whether each sandbox has one of its own, in which nobody is anybody outside."""
    access_control: str = ""
    """apparmor, selinux or none."""
    access_control_gap: str = ""
    """Why sandboxes do without it all the same."""
    storage: str = ""
    data_root: str = ""


class Engine(ImageStore, Protocol):
    name: str
    """docker, podman, oci …: what `BELLJAR_ENGINE` calls it."""
    host: str
    """Where it answers, for people."""
    identity: str
    """Which engine this is: a session is only looked for, or reaped, at the engine that made it."""
    machine: str
    """Its architecture, as `uname -m` says it."""
    shares_files: bool
    """Whether a directory of this machine can be mounted with its sockets working, and its processes seen."""

    leaves_remains: bool
    """Whether a sandbox that ended by itself leaves something behind that only `destroy` takes away."""
    own_namespaces: frozenset[str]
    """Those that it gives each sandbox (of `spec.OWN_NAMESPACES`)."""

    def user(self, uid: int, gid: int, *, root: bool = False) -> User:
        """How this engine has a process run that is this user on the host; `root`: and root inside."""
        ...

    def create(self, spec: SandboxSpec, name: str) -> str:
        """Its id. Repeated with the same name it is the same container."""
        ...

    def start(self, id: str) -> Launched: ...

    def inspect(self, id: str) -> Launched: ...

    def state(self, id: str) -> str | None:
        """running, paused, exited, ...; None: it does not exist."""
        ...

    def destroy(self, id: str) -> None:
        """By id or name. Gone when this returns; a container that is gone already is fine."""
        ...

    def list(self) -> list[Listed]:
        """The sandboxes of Belljar, whoever made them."""
        ...

    def bridge(self, id: str, argv: Sequence[str]) -> Transport:
        """A byte stream to `argv`, run in a container whose files we do not share."""
        ...

    def install_init(self, binary: Path, image: str) -> str:
        """Where files are not shared: the name of a volume that holds the init."""
        ...

    def image(self, reference: str) -> Image | None:
        """None: it has no such image."""
        ...

    def describe(self) -> Description: ...

    def close(self) -> None: ...
