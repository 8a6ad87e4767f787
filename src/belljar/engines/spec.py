"""One sandbox's container, as data: built without an engine, printed, compared, hashed, then carried out.

`build_spec` holds every protection there is. `create_body` is the exact document for the engine's
POST /containers/create; `verification.verify` later asks the engine and the kernel whether it came true.

What an image may still say: its own environment (PATH, JAVA_HOME, LANG …), because a user's image should work
unchanged, but neither who the user is nor where home is, nor the hooks of the loader and the shell. Its
entrypoint, command, user, health check, ports and volumes are all replaced.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from belljar.engines.seccomp import Profile, profile_text
from belljar.layout import HOME, HOSTNAME, INIT, LINK, WORKSPACE
from belljar.limits import Limits
from belljar.workspace.pinned import Workspace

Network = Literal["none", "full"]

SPEC_LABEL = "org.belljar.spec"

BASE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/bash",
    "LC_CTYPE": "C.UTF-8",  # all of LANG=C.UTF-8 that matters; the rest is twelve more files to open in each program
    "TERM": "dumb",
}
IMAGE_MAY_SET = {"PATH", "LANG"}
HOOK_VARIABLE = re.compile(r"LD_.*|BASH_.*|ENV|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|IFS|PS4|BELLJAR_.*|GLIBC_.*")

# The first group is Docker's own list (a list given to the API replaces it); the second is what a command has
# no business to know of the host: addresses of the kernel, its modules and configuration, the machine's
# identity.
MASKED_PATHS = (
    "/proc/asound", "/proc/acpi", "/proc/interrupts", "/proc/kcore", "/proc/keys", "/proc/latency_stats",
    "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug", "/proc/scsi", "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/proc/config.gz", "/proc/diskstats", "/proc/iomem", "/proc/ioports", "/proc/kallsyms", "/proc/modules",
    "/proc/partitions", "/proc/swaps", "/proc/vmallocinfo", "/proc/kpagecount",
    "/proc/kpageflags", "/sys/class/dmi", "/sys/devices/virtual/dmi", "/sys/fs/bpf", "/sys/kernel/debug",
    "/sys/kernel/security", "/sys/kernel/tracing", "/sys/module",
)  # fmt: skip
READONLY_PATHS = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")

SMALL_TMPFS = 16 << 20
STOP_SECONDS = 2
OOM_SCORE = 500


@dataclass(frozen=True)
class LinkPlan:
    """How the host will reach the init.

    socket: `init` is the init's file on the host, `hosts` the container's /etc/hosts, `directory` the
    directory the host puts its sockets in.
    exec: `init` is a volume that holds the init; whoever bridges a stream to it must know `token`.
    """

    kind: Literal["socket", "exec"]
    init: str
    directory: str = ""
    hosts: str = ""
    token: str = field(default="", repr=False)


@dataclass(frozen=True)
class Image:
    """What of an image matters here: its reference (best its id), environment and declared volumes."""

    ref: str
    env: tuple[str, ...] = ()
    volumes: tuple[str, ...] = ()

    @classmethod
    def from_inspect(cls, document: Mapping[str, Any]) -> Image:
        config = document.get("Config") or {}
        return cls(str(document["Id"]), tuple(config.get("Env") or ()), tuple(sorted(config.get("Volumes") or ())))


@dataclass(frozen=True)
class ContainerSpec:
    image: Image
    user: str
    workspace: str
    source: str
    limits: Limits
    network: Network
    link: LinkPlan
    lease_seconds: float
    seccomp: Profile
    machine: str | None
    userns: str
    labels: Mapping[str, str]

    def create_body(self) -> dict[str, Any]:
        """The document for POST /containers/create."""
        body = self._body(self.source, self.link)
        body["Labels"] = {**self.labels, SPEC_LABEL: self.digest}
        return body

    @cached_property
    def digest(self) -> str:
        """The same for two sandboxes that differ only in whose they are; the pool's key."""
        anonymous = LinkPlan(self.link.kind, "", hosts="/etc/hosts" if self.link.hosts else "")
        text = json.dumps(self._body(self.workspace, anonymous), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:32]

    def as_dict(self) -> dict[str, Any]:
        """For people: the same document, with the seccomp profile by name and no secret."""
        body = self.create_body()
        body["HostConfig"]["SecurityOpt"] = ["no-new-privileges:true", f"seccomp={self.seccomp}"]
        body["Env"] = [entry for entry in body["Env"] if not entry.startswith("BELLJAR_TOKEN=")]
        return body

    def _body(self, source: str, link: LinkPlan) -> dict[str, Any]:
        return {
            "Image": self.image.ref,
            "Entrypoint": _entrypoint(link, self.lease_seconds),
            "Cmd": [],
            "User": self.user,
            "WorkingDir": WORKSPACE,
            "Env": _environment(self.image.env, link),
            "Hostname": HOSTNAME,
            "Domainname": "",
            "Tty": False,
            "OpenStdin": False,
            "AttachStdin": False,
            "AttachStdout": False,
            "AttachStderr": False,
            "NetworkDisabled": _brings_hosts(self.network, link),
            "Healthcheck": {"Test": ["NONE"]},
            "StopSignal": "SIGTERM",
            "StopTimeout": STOP_SECONDS,
            "HostConfig": {
                **self._isolation(),
                **_resources(self.limits),
                "Mounts": [*_mounts(source, link, self.network), *_volume_covers(self.image.volumes)],
                "Tmpfs": _tmpfs(self.limits, self.user),
            },
        }

    def _isolation(self) -> dict[str, Any]:
        dns = {"Dns": ["127.0.0.1"]} if self.network == "none" else {}
        return {
            "NetworkMode": "none" if self.network == "none" else "bridge",
            "ReadonlyRootfs": True,
            "Privileged": False,
            "CapAdd": [],
            "CapDrop": ["ALL"],
            "SecurityOpt": ["no-new-privileges:true", f"seccomp={profile_text(self.seccomp, self.machine)}"],
            "IpcMode": "private",
            "PidMode": "",
            "UTSMode": "",
            "CgroupnsMode": "private",
            "UsernsMode": self.userns,
            "MaskedPaths": list(MASKED_PATHS),
            "ReadonlyPaths": list(READONLY_PATHS),
            "Devices": [],
            "GroupAdd": [],
            "PortBindings": {},
            "PublishAllPorts": False,
            "Init": False,
            "AutoRemove": True,
            "RestartPolicy": {"Name": "no"},
            "LogConfig": {"Type": "none", "Config": {}},
            **dns,
        }


def build_spec(
    *,
    image: Image | str,
    workspace: Workspace,
    limits: Limits,
    link: LinkPlan,
    lease_seconds: float,
    network: Network = "none",
    labels: Mapping[str, str] | None = None,
    seccomp: Profile = "default",
    source: str | None = None,
    machine: str | None = None,
    userns: str = "",
) -> ContainerSpec:
    """`source` comes from `workspace.staged()`; `machine` is the engine's architecture if it isn't ours."""
    return ContainerSpec(
        image=Image(image) if isinstance(image, str) else image,
        user=workspace.identity.user,
        workspace=workspace.path,
        source=source or workspace.path,
        limits=limits,
        network=network,
        link=link,
        lease_seconds=lease_seconds,
        seccomp=seccomp,
        machine=machine,
        userns=userns,
        labels=dict(labels or {}),
    )


def _entrypoint(link: LinkPlan, lease_seconds: float) -> list[str]:
    way = ["--dial", LINK] if link.kind == "socket" else ["--listen"]
    return [INIT, *way, "--lease", str(round(lease_seconds * 1000))]


def _environment(image_env: Sequence[str], link: LinkPlan) -> list[str]:
    """Our own settings over the image's; a bare name tells the engine to drop the image's variable."""
    image = dict(entry.split("=", 1) for entry in image_env if "=" in entry)
    ours = {**BASE_ENVIRONMENT, **{name: image[name] for name in IMAGE_MAY_SET & image.keys() if image[name]}}
    dropped = sorted(name for name in image if HOOK_VARIABLE.fullmatch(name))
    token = [f"BELLJAR_TOKEN={link.token}"] if link.token else []
    return [*(f"{name}={value}" for name, value in ours.items()), *dropped, *token]


def _brings_hosts(network: Network, link: LinkPlan) -> bool:
    """Without the engine's network set-up a start takes half the time; /etc/hosts is then ours to bring."""
    return network == "none" and bool(link.hosts)


def _mounts(source: str, link: LinkPlan, network: Network) -> list[dict[str, Any]]:
    workspace = _bind(source, WORKSPACE, read_only=False)
    hosts = [_bind(link.hosts, "/etc/hosts")] if _brings_hosts(network, link) else []
    if link.kind == "socket":
        return [workspace, _bind(link.init, INIT), _bind(link.directory, LINK), *hosts]
    return [workspace, {"Type": "volume", "Source": link.init, "Target": "/.belljar", "ReadOnly": True}]


def _bind(source: str, target: str, *, read_only: bool = True) -> dict[str, Any]:
    return {
        "Type": "bind",
        "Source": source,
        "Target": target,
        "ReadOnly": read_only,
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _volume_covers(volumes: Sequence[str]) -> list[dict[str, Any]]:
    """A volume that an image declares would be writable space on the host's disk; memory takes its place."""
    taken = (WORKSPACE, HOME, "/.belljar", "/tmp", "/run", "/var/tmp")
    wanted = [path for path in volumes if path.rstrip("/") not in taken]
    options = {"SizeBytes": SMALL_TMPFS, "Mode": 0o1777}
    return [{"Type": "tmpfs", "Target": path, "TmpfsOptions": options} for path in wanted]


def _tmpfs(limits: Limits, user: str) -> dict[str, str]:
    uid, gid = user.split(":")
    common = f"rw,exec,nosuid,nodev,nr_inodes={limits.inodes}"
    few = f"rw,nosuid,nodev,nr_inodes={limits.inodes // 16}"
    small = f"{few},exec,size={min(SMALL_TMPFS, limits.memory // 32)}"
    return {
        "/tmp": f"{common},size={limits.tmp},mode=1777",
        "/var/tmp": f"{small},mode=1777",
        "/run": f"{small},mode=0755,uid={uid},gid={gid}",
        # In place of the engine's, whose files are not counted.
        "/dev/shm": f"{few},noexec,size={limits.shm},mode=1777",
        HOME: f"{common},size={limits.home},mode=0700,uid={uid},gid={gid}",
    }


def _resources(limits: Limits) -> dict[str, Any]:
    hard = {"core": 0, "nofile": limits.nofile, "fsize": limits.fsize, "memlock": limits.memlock}
    return {
        "Memory": limits.memory,
        "MemorySwap": limits.memory,
        "NanoCpus": round(limits.cpus * 1_000_000_000),
        "PidsLimit": limits.pids,
        "ShmSize": limits.shm,
        "OomScoreAdj": OOM_SCORE,
        "OomKillDisable": False,
        "Ulimits": [{"Name": name, "Soft": value, "Hard": value} for name, value in hard.items()],
    }
