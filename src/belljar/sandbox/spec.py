"""Builds the `SandboxSpec` of a sandbox from limits, image and workspace. All protections are decided here, as data.

An image keeps its environment variables (PATH, JAVA_HOME, LANG …), so that a user's image works unchanged; but not
those for user and home, nor the hooks of the loader and the shell. Its entrypoint, command, user, health check, ports
and volumes are all replaced.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import PurePosixPath
from typing import get_args

from belljar import environment
from belljar.engines.capabilities import Capabilities
from belljar.engines.seccomp import Profile
from belljar.engines.spec import (
    NETWORKS,
    ROOT_CAPABILITIES,
    Image,
    LinkKind,
    Mount,
    Network,
    SandboxSpec,
    User,
    ulimits,
)
from belljar.errors import UsageError
from belljar.layout import HOME, HOSTNAME, PRIVATE, WORKSPACE
from belljar.limits import Limits
from belljar.network import client_settings
from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.sandbox.scratch import Scratch
from belljar.workspace.accounts import AccountFiles
from belljar.workspace.pinned import Workspace

BASE_ENVIRONMENT: Mapping[str, str] = {
    "PATH": f"{HOME}/.local/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": HOME,
    "USER": "sandbox",
    "LOGNAME": "sandbox",
    "SHELL": "/bin/bash",
    "LC_CTYPE": "C.UTF-8",  # as good as LANG=C.UTF-8, but saves each program from opening twelve more files
    "TERM": "dumb",
}
# pip refuses to install into Debian's own directories by default; in a throwaway root that is fine.
ROOT_ENVIRONMENT = {
    "HOME": "/root",
    "USER": "root",
    "LOGNAME": "root",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_BREAK_SYSTEM_PACKAGES": "1",
    "PIP_ROOT_USER_ACTION": "ignore",
}
IMAGE_MAY_SET = {"PATH", "LANG"}
HOOK_VARIABLE = lazy_pattern(
    r"LD_.*|BASH_.*|ENV|PROMPT_COMMAND|SHELLOPTS|BASHOPTS|IFS|PS4|BELLJAR_.*|GLIBC_.*"
)

# The first group is Docker's own list, which ours replaces. The second hides facts about the host: addresses of the
# kernel, its modules, command line and configuration, the machine's identity and load.
MASKED_PATHS = (
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
    "/proc/cmdline",
    "/proc/config.gz",
    "/proc/diskstats",
    "/proc/iomem",
    "/proc/ioports",
    "/proc/kallsyms",
    "/proc/key-users",
    "/proc/locks",
    "/proc/modules",
    "/proc/partitions",
    "/proc/swaps",
    "/proc/vmallocinfo",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/pressure",
    "/sys/class/dmi",
    "/sys/devices/virtual/dmi",
    "/sys/fs/bpf",
    "/sys/kernel/debug",
    "/sys/kernel/notes",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
    "/sys/kernel/vmcoreinfo",
    "/sys/module",
)
READONLY_PATHS = (
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
)
SMALL_TMPFS = 16 << 20
CAN = Capabilities()


@record
class LinkPlan:
    """How the host reaches the init, and where our files in the sandbox come from.

    socket: `init` is the init's file on the host; `hosts`, `hostname` and `accounts` are files for the container's
    /etc; `directory` is where the host puts its sockets.
    exec: `init` is a volume that holds the init; a bridge to it must send `token`.
    """

    kind: LinkKind
    init: str
    directory: str = ""
    hosts: str = ""
    hostname: str = ""
    accounts: AccountFiles | None = None
    token: str = field(default="", repr=False)


def private_directory() -> str:
    """A random name for each sandbox, so that no image can have a link or program there."""
    return f"{PRIVATE}-{os.urandom(8).hex()}"


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
    place: Mount | None = None,
    machine: str | None = None,
    user: User | None = None,
    can: Capabilities = CAN,
    root: bool = False,
    scratch: Scratch | None = None,
    extras: Sequence[Mount] = (),
    door: bool = False,
    account: str = "sandbox",
    timezone: str = "",
    runtime: str = "",
) -> SandboxSpec:
    """`place`: what is mounted at /workspace (staging.py). `machine`: the engine's architecture, if it is not ours."""
    if network not in NETWORKS:
        raise UsageError(
            f"network {network!r} is unknown; it is one of {', '.join(NETWORKS)}"
        )
    if seccomp not in get_args(Profile):
        raise UsageError(
            f"seccomp profile {seccomp!r} is unknown; it is one of {', '.join(get_args(Profile))}"
        )
    image = Image(image) if isinstance(image, str) else image
    runs_as = user or User(workspace.identity.uid, workspace.identity.gid)
    private = private_directory()
    home = f"/home/{account}"
    brings_hosts = network == "none" and bool(link.hosts)
    if root and seccomp == "default":
        seccomp = "root"
    return SandboxSpec(
        image=image,
        user=runs_as,
        argv=tuple(_entrypoint(link, private, lease_seconds, limits, can)),
        cwd=WORKSPACE,
        env=_environment(image.env, account)
        | (ROOT_ENVIRONMENT if root else {})
        | (client_settings.environment() if door else {})
        | ({"TZ": timezone} if timezone else {}),
        mounts=(
            place or Mount("bind", WORKSPACE, workspace.path, read_only=False),
            *_our_files(link, private, brings_hosts),
            *_volume_covers(image.volumes, home),
            *_scratch(limits, runs_as, scratch, home),
            *(_settings_cover(runs_as) if door and home != HOME else ()),
            *_parents(extras, limits, runs_as, scratch, home),
            *extras,
        ),
        limits=limits,
        network=network,
        link=link.kind,
        hostname=HOSTNAME,
        masked_paths=tuple(
            path for path in MASKED_PATHS if can.masks is None or path in can.masks
        ),
        readonly_paths=READONLY_PATHS,
        seccomp=seccomp,
        machine=machine,
        capabilities=frozenset(ROOT_CAPABILITIES) if root else frozenset(),
        writable_root=root,
        root_changes=scratch.directory("root", 0o755, runs_as.outside)
        if root and scratch
        else "",
        runtime=runtime,
        security_label=environment.value("BELLJAR_SELINUX"),
        own_namespaces=can.own_namespaces,
        init_limits=not can.limits_processes,
        brings_hosts=brings_hosts,
        workspace=workspace.path,
        private=private,
        labels=dict(labels or {}),
        secrets={"BELLJAR_TOKEN": link.token} if link.token else {},
    )


def _entrypoint(
    link: LinkPlan,
    private: str,
    lease_seconds: float,
    limits: Limits,
    can: Capabilities,
) -> list[str]:
    way = ["--dial", f"{private}/link"] if link.kind == "socket" else ["--listen"]
    way += [] if can.gives_user else ["--same-user"]
    own = {} if can.limits_processes else {**ulimits(limits), "nproc": limits.pids}
    bounds = [
        word for name, value in own.items() for word in ("--limit", f"{name}={value}")
    ]
    return [
        f"{private}/init",
        *way,
        "--lease",
        str(round(lease_seconds * 1000)),
        *bounds,
    ]


def _environment(image_env: Sequence[str], account: str) -> dict[str, str]:
    """Our own settings over the image's, without its hooks."""
    ours = {
        name: value.replace("sandbox", account)
        for name, value in BASE_ENVIRONMENT.items()
    }
    image = dict(entry.split("=", 1) for entry in image_env if "=" in entry)
    kept = {
        name: value
        for name, value in image.items()
        if not HOOK_VARIABLE.fullmatch(name)
    }
    may_set = {
        name: image[name] for name in IMAGE_MAY_SET & image.keys() if image[name]
    }
    return {
        **ours,
        **kept,
        **ours,
        **may_set,
    }  # ours first: the init passes on only so many


def _our_files(link: LinkPlan, private: str, brings_hosts: bool) -> list[Mount]:
    if link.kind == "exec":
        return [Mount("volume", private, link.init)]
    etc = [
        Mount("bind", "/etc/hosts", link.hosts),
        Mount("bind", "/etc/hostname", link.hostname),
    ]
    ours = [
        Mount("bind", f"{private}/init", link.init),
        Mount("bind", f"{private}/link", link.directory),
    ]
    files = link.accounts.targets if link.accounts else {}
    who = [Mount("bind", target, source) for target, source in files.items()]
    return [*ours, *who, *(etc if brings_hosts else [])]


def _volume_covers(volumes: Sequence[str], home: str) -> list[Mount]:
    """Covers the volumes that an image declares with a tmpfs: they would be writable space on the host's disk."""
    taken = (WORKSPACE, home, "/tmp", "/run", "/var/tmp", "/dev/shm")
    return [_cover(path) for path in volumes if _plain(path) not in taken]


def _plain(path: str) -> str:
    """Normalized as an engine does it; Python would keep two slashes at the beginning."""
    return os.path.normpath(f"/{path.lstrip('/')}" if path.startswith("/") else path)


NOT_THE_IMAGES = (WORKSPACE + "/", PRIVATE, "/proc", "/sys", "/dev")


def _cover(path: str) -> Mount:
    plain = _plain(path)
    if not plain.startswith("/") or plain == "/" or plain.startswith(NOT_THE_IMAGES):
        raise UsageError(
            f"the image declares a volume at {path!r}, which Belljar needs; use an image without it"
        )
    return Mount("tmpfs", path, read_only=False, size=SMALL_TMPFS, mode=0o1777)


def _settings_cover(user: User) -> tuple[Mount]:
    """Where the door's clients find their certificates, if that is not home."""
    return (
        Mount(
            "tmpfs",
            HOME,
            read_only=False,
            size=SMALL_TMPFS,
            mode=0o700,
            owner=(user.uid, user.gid),
        ),
    )


def _scratch(
    limits: Limits, user: User, disk: Scratch | None, home: str
) -> list[Mount]:
    few = limits.inodes // 16
    small = min(SMALL_TMPFS, limits.memory // 32)
    owner = (user.uid, user.gid)
    in_memory = {
        "tmp": Mount(
            "tmpfs",
            "/tmp",
            read_only=False,
            size=limits.tmp,
            inodes=limits.inodes,
            mode=0o1777,
        ),
        "var-tmp": Mount(
            "tmpfs", "/var/tmp", read_only=False, size=small, inodes=few, mode=0o1777
        ),
        "home": Mount(
            "tmpfs",
            home,
            read_only=False,
            size=limits.home,
            inodes=limits.inodes,
            mode=0o700,
            owner=owner,
        ),
    }
    return [
        *(
            _on_disk(mount, name, limits, user, disk) if disk else mount
            for name, mount in in_memory.items()
        ),
        Mount(
            "tmpfs",
            "/run",
            read_only=False,
            size=small,
            inodes=few,
            mode=0o755,
            owner=owner,
        ),
        # Replaces the engine's, which has no limit on the number of files.
        Mount(
            "tmpfs",
            "/dev/shm",
            read_only=False,
            size=limits.shm,
            inodes=few,
            mode=0o1777,
            executable=False,
        ),
    ]


def _on_disk(
    mount: Mount, name: str, limits: Limits, user: User, disk: Scratch
) -> Mount:
    """/tmp, /var/tmp and home share the volume, except one that has a size of its own."""
    if name in ("tmp", "home") and not limits.on_volume(name):
        return mount
    return Mount(
        "bind",
        mount.target,
        disk.directory(name, mount.mode, user.outside),
        read_only=False,
    )


def _parents(
    extras: Sequence[Mount], limits: Limits, user: User, disk: Scratch | None, home: str
) -> list[Mount]:
    """The directories between home and the mounts below it: an engine would make them as root's."""
    above = {
        str(parent)
        for extra in extras
        for parent in PurePosixPath(extra.target).parents
    }
    few = limits.inodes // 16
    return [
        Mount(
            "bind",
            path,
            disk.directory(f"home-{n}", 0o755, user.outside),
            read_only=False,
        )
        if disk
        else Mount(
            "tmpfs",
            path,
            read_only=False,
            size=limits.home,
            inodes=few,
            owner=(user.uid, user.gid),
        )
        for n, path in enumerate(
            sorted(path for path in above if path.startswith(f"{home}/"))
        )
    ]
