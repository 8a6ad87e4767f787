"""Turns a `SandboxSpec` into the runtime's config.json, and such a document back into `Protections`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from belljar.engines import seccomp
from belljar.engines.oci.rootfs import STAGED
from belljar.engines.spec import (
    OWN_NAMESPACES,
    TERMINALS,
    IdMap,
    Mount,
    Protections,
    SandboxSpec,
)

OOM_SCORE = 500
CPU_PERIOD = 100_000
NAMESPACES = ("pid", "network", "ipc", "uts", "mount", "cgroup")
LOCKED = {
    "ro": os.ST_RDONLY,
    "noexec": os.ST_NOEXEC,
    "noatime": os.ST_NOATIME,
    "nodiratime": os.ST_NODIRATIME,
}
CAPABILITY_SETS = ("bounding", "effective", "permitted", "inheritable", "ambient")
_BASE_MOUNTS: tuple[dict[str, Any], ...] = (
    {
        "destination": "/proc",
        "type": "proc",
        "source": "proc",
        "options": ["nosuid", "noexec", "nodev"],
    },
    {
        "destination": "/dev",
        "type": "tmpfs",
        "source": "dev",
        "options": ["nosuid", "noexec", "mode=755", "size=64k"],
    },
    {
        "destination": "/dev/pts",
        "type": "devpts",
        "source": "devpts",
        "options": [
            "nosuid",
            "noexec",
            "newinstance",
            "ptmxmode=0666",
            "mode=0620",
            f"max={TERMINALS}",
        ],
    },
    {
        "destination": "/dev/mqueue",
        "type": "mqueue",
        "source": "mqueue",
        "options": ["nosuid", "noexec", "nodev"],
    },
    {
        "destination": "/sys",
        "type": "sysfs",
        "source": "sysfs",
        "options": ["nosuid", "noexec", "nodev", "ro"],
    },
    {
        "destination": "/sys/fs/cgroup",
        "type": "cgroup",
        "source": "cgroup",
        "options": ["nosuid", "noexec", "nodev", "relatime", "ro"],
    },
)


def document(
    spec: SandboxSpec,
    at: str,
    user_namespace: Mapping[str, Any],
    maps: Sequence[tuple[IdMap, ...]],
    cgroup: str,
) -> dict[str, Any]:
    """The root file system is mounted below `at` (rootfs.py); `maps` has ids as the runtime sees them."""
    uid_map, gid_map = maps
    return {
        "ociVersion": "1.0.2",
        "process": _process(spec),
        "root": {"path": f"{at}/root", "readonly": not spec.writable_root},
        "hostname": spec.hostname,
        "mounts": [
            *_BASE_MOUNTS,
            *(_mount(each, f"{at}/{STAGED}") for each in spec.mounts),
        ],
        "linux": {
            "namespaces": [
                *filter(None, [user_namespace]),
                *({"type": name} for name in NAMESPACES),
            ],
            **(
                {"uidMappings": _mappings(uid_map), "gidMappings": _mappings(gid_map)}
                if user_namespace
                else {}
            ),
            "cgroupsPath": cgroup,
            "resources": _resources(spec),
            "seccomp": seccomp.profile(spec.seccomp, spec.machine),
            "maskedPaths": list(spec.masked_paths),
            "readonlyPaths": list(spec.readonly_paths),
            "sysctl": {"net.ipv4.ip_unprivileged_port_start": "0"},
            "rootfsPropagation": "private",
        },
    }


def claims(config: Mapping[str, Any]) -> Protections:
    """What is in force if the runtime followed this document."""
    process, linux = config["process"], config["linux"]
    resources, user = linux["resources"], process["user"]
    memory, cpu = resources["memory"], resources["cpu"]
    given = {name for each in CAPABILITY_SETS for name in process["capabilities"][each]}
    return Protections(
        user=f"{user['uid']}:{user['gid']}",
        memory=memory["limit"],
        swap=memory["swap"] - memory["limit"],
        cpus=cpu["quota"] / cpu["period"],
        pids=resources["pids"]["limit"],
        ulimits=_ulimits(process["rlimits"]) if "rlimits" in process else None,
        read_only_root=config["root"]["readonly"],
        capabilities=frozenset(given),
        no_new_privileges=process["noNewPrivileges"],
        seccomp=_profile_name(linux["seccomp"]),
        network="none",
        own_namespaces=frozenset(each["type"] for each in linux["namespaces"])
        & OWN_NAMESPACES,
        masked_paths=frozenset(linux["maskedPaths"]),
        readonly_paths=frozenset(linux["readonlyPaths"]),
        extras=frozenset(),
        removes_itself=True,
    )


def _profile_name(found: Any) -> str | None:
    return next(
        (kind for kind in get_args(seccomp.Profile) if seccomp.profile(kind) == found),
        None,
    )


def _process(spec: SandboxSpec) -> dict[str, Any]:
    sets: dict[str, list[str]] = dict.fromkeys(
        CAPABILITY_SETS, sorted(spec.capabilities)
    )
    sets["inheritable"] = sets["ambient"] = []
    return {
        "terminal": False,
        "user": {"uid": spec.user.uid, "gid": spec.user.gid},
        "args": list(spec.argv),
        "env": [
            f"{name}={value}" for name, value in {**spec.env, **spec.secrets}.items()
        ],
        "cwd": spec.cwd,
        "capabilities": sets,
        "noNewPrivileges": True,
        "oomScoreAdj": OOM_SCORE,
        **({} if spec.link == "socket" else {"rlimits": _rlimits(spec)}),
    }


def _rlimits(spec: SandboxSpec) -> list[dict[str, Any]]:
    """For a runtime with its own kernel, where PID 1 inherits no limits from the runtime (runtime.py `_limited`)."""
    return [
        {"type": f"RLIMIT_{name.upper()}", "soft": value, "hard": value}
        for name, value in spec.ulimits.items()
    ]


def _ulimits(rlimits: list[dict[str, Any]]) -> frozenset[tuple[str, int]]:
    return frozenset(
        (each["type"].removeprefix("RLIMIT_").lower(), each["hard"]) for each in rlimits
    )


def _mappings(maps: tuple[IdMap, ...]) -> list[dict[str, int]]:
    return [
        {"containerID": each.inside, "hostID": each.outside, "size": each.count}
        for each in maps
    ]


def _mount(mount: Mount, staged: str) -> dict[str, Any]:
    mode = "ro" if mount.read_only else "rw"
    if mount.kind == "tmpfs":
        options = [mode, *mount.tmpfs_options()]
        return {
            "destination": mount.target,
            "type": "tmpfs",
            "source": "tmpfs",
            "options": options,
        }
    source = staged if mount.kind == "overlay" else mount.source
    options = ["bind", "rprivate", "nosuid", "nodev", mode, *_locked(source)]
    return {
        "destination": mount.target,
        "type": "bind",
        "source": source,
        "options": options,
    }


def _locked(source: str) -> list[str]:
    """The source's mount flags that no user namespace may remove: /run is noexec on Debian 13 and Ubuntu."""
    try:
        flags = os.statvfs(source).f_flag
    except OSError:  # a staged workspace is mounted later, by us
        return []
    return [name for name, flag in LOCKED.items() if flags & flag]


def _resources(spec: SandboxSpec) -> dict[str, Any]:
    return {
        "memory": {"limit": spec.memory, "swap": spec.memory},
        "cpu": {"quota": round(spec.limits.cpus * CPU_PERIOD), "period": CPU_PERIOD},
        "pids": {"limit": spec.pids},
        "devices": [{"allow": False, "access": "rwm"}],
    }
