"""What Belljar needs from a container engine: a handful of verbs and a byte stream. All verbs block.

An engine is a folder with a `find(runtime, state) -> Engine` and a name in `engines.Known`. It translates a
`SandboxSpec`, reports what is in force as `Protections`, and raises `EngineError`, or `UsageError` for what it can never
do. It must pass `tests/engines/test_contract.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from belljar.engines.capabilities import Capabilities
from belljar.engines.spec import Image, Protections, SandboxSpec, User
from belljar.errors import UsageError
from belljar.records import record

if TYPE_CHECKING:
    from belljar.images.image_store import ImageStore
    from belljar.link.transport import Transport


@record
class Launched:
    """A running container."""

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


@record
class Finding:
    """What an engine itself found out about where it runs, for `doctor`."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


@record
class Description:
    """What an engine reports about itself, for `doctor`. None: unknown."""

    version: str
    cgroup_version: str | None = None
    cgroup_driver: str | None = None
    can_limit: Mapping[str, bool | None] = field(default_factory=dict)
    """memory, swap, pids, cpus."""
    seccomp: bool | None = None
    rootless: bool = False
    does_without: tuple[str, ...] = ()
    """Features that its sandboxes lack on this machine, each as a sentence for people."""
    user_remapping: bool = False
    access_control: str = ""
    """apparmor, selinux or none."""
    access_control_gap: str = ""
    """Why sandboxes cannot use it all the same."""
    storage: str = ""
    data_root: str = ""
    findings: tuple[Finding, ...] = ()
    idle_bytes: int = 5 << 20
    """Memory of this machine that an idle sandbox takes, the engine's own included."""
    bounds: Mapping[str, int] = field(default_factory=dict)
    """What else bounds the number of sandboxes here, in words → how many more there may be."""


class Engine(Protocol):
    name: str
    """Its name in `BELLJAR_ENGINE`: docker, podman, oci …"""
    host: str
    """Its address, for people."""
    identity: str
    """Identifies this engine: a session is found and reaped only through the engine that made it."""
    machine: str
    """Its architecture, as in `uname -m`."""
    runtime: str
    """The one that its sandboxes are made with; empty: the one that it takes by itself."""
    capabilities: Capabilities
    """What it can do: callers ask this, never the name."""
    images: ImageStore | None
    """Where images are listed and made; None: somebody else's registry has them."""

    def user(self, uid: int, gid: int, *, root: bool = False) -> User:
        """The `User` of a sandbox whose processes are this uid and gid on the host; `root`: they are root inside."""

    def create(self, spec: SandboxSpec, name: str) -> str:
        """Returns the container's id. A second call with the same name returns the same container."""

    def start(self, id: str) -> Launched: ...

    def inspect(self, id: str) -> Launched: ...

    def state(self, id: str) -> str | None:
        """running, paused, exited …; None: it does not exist."""

    def pause(self, id: str) -> None:
        """Freeze all its processes. It is no error if they are."""

    def resume(self, id: str) -> None:
        """Let them go on. It is no error if they do."""

    def destroy(self, id: str) -> None:
        """Remove a container by id or name, and wait until it is gone. It is no error if it does not exist."""

    def list(self) -> list[Listed]:
        """All of Belljar's sandboxes, whoever made them."""

    def bridge(self, id: str, argv: Sequence[str]) -> Transport:
        """Run `argv` in a container that shares no files with us, and return a byte stream to it."""

    def install_init(self, binary: Path, image: str) -> str:
        """For engines that share no files: put the init into a volume and return the volume's name."""

    def image(self, reference: str) -> Image | None:
        """None: there is no such image."""

    def describe(self) -> Description: ...

    def close(self) -> None: ...


class Taken(Protocol):
    """A sandbox that waited."""

    @property
    def id(self) -> str: ...

    @property
    def spec(self) -> SandboxSpec:
        """What was asked for, with what the sandbox has of its own: user, private directory, token."""


@runtime_checkable
class Shares(Protocol):
    """An engine on which hosts share sandboxes that wait for their first use."""

    takes: bool
    """Whether a launch looks for one."""

    def take(self, spec: SandboxSpec) -> Taken | None:
        """Make one ours; of several who want it one gets it. None: none of this kind waits, or `takes` is false."""

    def offer(self, id: str, spec: SandboxSpec) -> str:
        """Give one that is proved, and that nobody uses, to whoever takes it first. Returns its kind."""

    def count_waiting(self, kind: str) -> int: ...


def image_store(engine: Engine) -> ImageStore:
    """UsageError if it has none."""
    if engine.images is None:
        raise UsageError(
            f"the engine {engine.name} keeps no images: they come from a registry"
        )
    return engine.images
