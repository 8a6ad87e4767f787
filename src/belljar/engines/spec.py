"""One sandbox in words that no engine owns: who runs in it, what is mounted, what it may use.

`sandbox.spec.build_spec` fills it in; an engine translates it (Docker: `docker/create_body.py`). `protections` is what
must be in force once it runs. The engine reports what is (`Launched.claims`), and `sandbox.verification` compares the
two with each other and with the kernel.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Any, Literal

from belljar.engines.seccomp import Profile
from belljar.limits import Limits
from belljar.records import record

Network = Literal["none", "full"]
NETWORKS = ("none", "full")
LinkKind = Literal["socket", "exec"]

LABEL = "org.belljar."
SPEC_LABEL = LABEL + "spec"
# What root inside needs to install packages, with the kernel's numbers. Each works only within its own namespaces.
# Not CAP_SETFCAP: root's workspace is mapped, so a capability on a file there would be valid on the host.
ROOT_CAPABILITIES = {
    "CAP_CHOWN": 0,
    "CAP_DAC_OVERRIDE": 1,
    "CAP_FOWNER": 3,
    "CAP_FSETID": 4,
    "CAP_KILL": 5,
    "CAP_SETGID": 6,
    "CAP_SETUID": 7,
    "CAP_SETPCAP": 8,
    "CAP_NET_BIND_SERVICE": 10,
}
OWN_NAMESPACES = frozenset({"cgroup", "ipc", "pid", "uts"})
TERMINALS = 128
"""Pseudo terminals that a sandbox may have open."""
SOCKET_MEMORY, SOCKET_MEMORY_SHARE = 64 << 20, 16
"""What the buffers of a sandbox's internet sockets may take: this share of its memory, and never more than so much."""
OWN_KERNELS = ("runsc",)
KERNEL_BYTES, KERNEL_THREADS = 32 << 20, 64
"""What such a kernel itself takes of its sandbox's limits (measured with gVisor: 25 MiB and 31 threads)."""

DOES_WITHOUT_THIS_KERNEL = (
    "what is in force inside is the runtime's word; limits of the control group are the kernel's",
    "commands of one sandbox see each other's processes: there is no Landlock",
    "no --root, --disk, --mount, --cache, --network full; staged workspaces and checkpoints are copies",
)


def has_own_kernel(runtime: str) -> bool:
    """Whether this runtime brings its own kernel: this machine sees neither its processes nor their sockets."""
    return runtime.rpartition("/")[2] in OWN_KERNELS


@record
class Image:
    """An image's reference (preferably its id), environment and declared volumes."""

    ref: str
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()


@record
class IdMap:
    """Maps `count` ids that start at `inside` to those that start at `outside` on the host."""

    inside: int
    outside: int
    count: int = 1


@record
class User:
    uid: int
    gid: int
    uid_map: tuple[IdMap, ...] = ()
    """Empty: no user namespace, so ids inside are the host's."""
    gid_map: tuple[IdMap, ...] = ()
    root_inside: bool = False
    """Whether uid 0 inside is accepted. Only where the maps make it an unprivileged id outside."""

    @property
    def outside(self) -> tuple[int, int]:
        """The uid and gid on the host."""
        return outside(self.uid, self.uid_map), outside(self.gid, self.gid_map)

    def __str__(self) -> str:
        return f"{self.uid}:{self.gid}"


BRIDGE_USER = User(
    65533, 65533
)  # an id that no command has, so no command can signal the bridge


def outside(id: int, maps: tuple[IdMap, ...]) -> int:
    for span in maps:
        if span.inside <= id < span.inside + span.count:
            return span.outside + id - span.inside
    return id


@record
class Mount:
    """A mount in the sandbox. Always nosuid and nodev, never shared or recursive."""

    kind: Literal["bind", "tmpfs", "volume", "overlay"]
    target: str
    source: str = ""
    """bind: a path of the host; volume: its name at the engine; overlay: the lower directory."""
    read_only: bool = True
    size: int = 0
    """tmpfs: bytes."""
    inodes: int = 0
    """tmpfs: how many files and directories it may hold."""
    mode: int = 0o755
    """tmpfs: mode of its top directory."""
    owner: tuple[int, int] | None = None
    """tmpfs: uid and gid inside of its top directory; None: root."""
    executable: bool = True
    upper: str = ""
    """overlay: the directory that takes the changes."""
    work: str = ""
    """overlay: its working directory, on the same file system as `upper`."""

    def tmpfs_options(self) -> list[str]:
        """In the form of mount(8)."""
        options = ["nosuid", "nodev", f"size={self.size}", f"mode={self.mode:o}"]
        options += [f"nr_inodes={self.inodes}"] if self.inodes else []
        options += (
            [f"uid={self.owner[0]}", f"gid={self.owner[1]}"]
            if self.owner is not None
            else []
        )
        return options if self.executable else [*options, "noexec"]


@record
class Protections:
    """What protects the host from a sandbox. Used both for what is required and for what an engine reports.

    None: the engine does not report it. That is accepted only where the kernel shows it.
    """

    user: str | None = None
    memory: int | None = None
    swap: int | None = None
    """Bytes on top of memory."""
    cpus: float | None = None
    pids: int | None = None
    ulimits: frozenset[tuple[str, int]] | None = None
    read_only_root: bool | None = None
    capabilities: frozenset[str] | None = None
    """Those that are not dropped."""
    no_new_privileges: bool | None = None
    seccomp: str | None = None
    """The name of the profile."""
    network: str | None = None
    own_namespaces: frozenset[str] | None = None
    masked_paths: frozenset[str] | None = None
    readonly_paths: frozenset[str] | None = None
    extras: frozenset[str] | None = None
    """Anything that must not be there: devices, groups, ports, foreign mounts, privileged mode."""
    removes_itself: bool | None = None


@record
class SandboxSpec:
    image: Image
    user: User
    argv: tuple[str, ...]
    """PID 1: our init with its arguments."""
    cwd: str
    env: Mapping[str, str]
    """The whole environment: no variable of the image is added."""
    mounts: tuple[Mount, ...]
    limits: Limits
    network: Network
    link: LinkKind
    """socket: the init connects to a socket in a mounted directory; exec: the host runs a bridge to the init."""
    hostname: str
    masked_paths: tuple[str, ...]
    readonly_paths: tuple[str, ...]
    seccomp: Profile = "default"
    machine: str | None = None
    """The engine's architecture, if it differs from ours."""
    capabilities: frozenset[str] = frozenset()
    """Of PID 1; only within a user namespace."""
    writable_root: bool = False
    root_changes: str = ""
    """An empty directory of the host for the changes to a writable root; empty: they are kept in memory."""
    runtime: str = ""
    """A runtime that the engine knows by this name (runsc, kata …); empty: its default."""
    security_label: str = ""
    """For SELinux: the process label (`type:container_t`), or `disable`."""
    own_namespaces: frozenset[str] = OWN_NAMESPACES
    """Besides the mount and network namespaces, which every sandbox has."""
    init_limits: bool = False
    """The engine cannot set limits of processes: the init sets them on itself, and all commands inherit them."""
    brings_hosts: bool = False
    """/etc/hosts and /etc/hostname are mounted, so the engine need not set up a network to write them."""
    workspace: str = ""
    """The workspace's path on the host, for people."""
    private: str = ""
    """The directory inside that holds our own files; each sandbox has another name for it."""
    labels: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables of PID 1 that are never printed."""

    @property
    def memory(self) -> int:
        """The limit of the control group."""
        return self.limits.memory + KERNEL_BYTES * has_own_kernel(self.runtime)

    @property
    def socket_memory(self) -> int:
        """The control group's limit where that is one apart (version 1)."""
        return min(SOCKET_MEMORY, self.memory // SOCKET_MEMORY_SHARE)

    @property
    def pids(self) -> int:
        """The limit of the control group."""
        return self.limits.pids + KERNEL_THREADS * has_own_kernel(self.runtime)

    @property
    def protections(self) -> Protections:
        return Protections(
            user=str(self.user),
            memory=self.memory,
            swap=0,
            cpus=self.limits.cpus,
            pids=self.pids,
            ulimits=frozenset(self.ulimits.items()),
            read_only_root=not self.writable_root,
            capabilities=self.capabilities,
            no_new_privileges=True,
            seccomp=self.seccomp,
            network=self.network,
            own_namespaces=self.own_namespaces,
            masked_paths=frozenset(self.masked_paths),
            readonly_paths=frozenset(self.readonly_paths),
            extras=frozenset(),
            removes_itself=True,
        )

    @property
    def ulimits(self) -> dict[str, int]:
        """Soft and hard limits are the same."""
        return ulimits(self.limits)

    @property
    def all_labels(self) -> dict[str, str]:
        return {**self.labels, SPEC_LABEL: self.digest}

    @cached_property
    def digest(self) -> str:
        """Equal for two sandboxes that differ only in their user and host paths."""
        text = json.dumps(vars(self._anonymous()), sort_keys=True, default=_plain)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def as_dict(self) -> dict[str, Any]:
        """For people: without secrets."""
        document: dict[str, Any] = json.loads(
            json.dumps(vars(replace(self, secrets={})), default=_plain)
        )
        del document["secrets"]
        return document

    def _anonymous(self) -> SandboxSpec:
        def neutral(text: str) -> str:
            return text.replace(self.private, "/.belljar") if self.private else text

        blank: dict[str, Any] = {"source": "", "upper": "", "work": "", "owner": None}
        mounts = tuple(
            replace(mount, target=neutral(mount.target), **blank)
            for mount in self.mounts
        )
        argv = tuple(neutral(word) for word in self.argv)
        user = User(0, 0, root_inside=self.user.root_inside)
        return replace(
            self,
            user=user,
            mounts=mounts,
            argv=argv,
            private="",
            root_changes="",
            labels={},
            secrets={},
        )


def ulimits(limits: Limits) -> dict[str, int]:
    return {
        "core": 0,
        "nofile": limits.nofile,
        "fsize": limits.fsize,
        "memlock": limits.memlock,
    }


def _plain(value: Any) -> Any:
    """For JSON: `asdict` would copy everything first."""
    return sorted(value) if isinstance(value, frozenset) else vars(value)
