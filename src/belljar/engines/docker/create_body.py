"""Turns a `SandboxSpec` into the document for POST /containers/create."""

from __future__ import annotations

from typing import Any

from belljar.engines.docker.dialect import Dialect
from belljar.engines.spec import Mount, SandboxSpec

STOP_SECONDS = 2
OOM_SCORE = 500


def create_body(spec: SandboxSpec, dialect: Dialect | None = None) -> dict[str, Any]:
    dialect = dialect or Dialect()
    return {
        "Image": spec.image.ref,
        "Entrypoint": list(spec.argv),
        "Cmd": [],
        "User": str(spec.user),
        "WorkingDir": spec.cwd,
        "Env": _environment(spec),
        "Labels": spec.all_labels,
        "Hostname": spec.hostname,
        "Domainname": "",
        "Tty": False,
        "OpenStdin": False,
        "AttachStdin": False,
        "AttachStdout": False,
        "AttachStderr": False,
        # Without the engine's network set-up a start takes half as long.
        "NetworkDisabled": spec.brings_hosts,
        "Healthcheck": {"Test": ["NONE"]},
        "StopSignal": "SIGTERM",
        "StopTimeout": STOP_SECONDS,
        "HostConfig": {
            **_isolation(spec, dialect),
            **_resources(spec, dialect),
            "Mounts": [
                _mount(mount) for mount in spec.mounts if not _belongs_in_tmpfs(mount)
            ],
            "Tmpfs": {
                mount.target: dialect.tmpfs_options(mount)
                for mount in spec.mounts
                if _belongs_in_tmpfs(mount)
            },
        },
    }


def _environment(spec: SandboxSpec) -> list[str]:
    """A name without a value makes the engine drop that variable of the image."""
    image = {entry.partition("=")[0] for entry in spec.image.env}
    ours = {**spec.env, **spec.secrets}
    return [
        *(f"{name}={value}" for name, value in ours.items()),
        *sorted(image - ours.keys()),
    ]


def _belongs_in_tmpfs(mount: Mount) -> bool:
    """`Tmpfs` takes every mount option. `Mounts` takes neither inodes nor owner, but it covers a declared volume."""
    return mount.kind == "tmpfs" and bool(mount.inodes)


def _mount(mount: Mount) -> dict[str, Any]:
    common = {"Target": mount.target, "ReadOnly": mount.read_only}
    if mount.kind == "bind":
        options = {"Propagation": "rprivate", "NonRecursive": True}
        return {
            "Type": "bind",
            "Source": mount.source,
            **common,
            "BindOptions": options,
        }
    if mount.kind == "volume":
        return {"Type": "volume", "Source": mount.source, **common}
    if mount.kind == "overlay":
        return {
            "Type": "volume",
            **common,
            "VolumeOptions": {"NoCopy": True, "DriverConfig": _overlay(mount)},
        }
    return {
        "Type": "tmpfs",
        "Target": mount.target,
        "TmpfsOptions": {"SizeBytes": mount.size, "Mode": mount.mode},
    }


def _overlay(mount: Mount) -> dict[str, Any]:
    """An unnamed volume: the engine's own driver mounts the overlay, and removes it with the container."""
    layers = (
        f"lowerdir={mount.source},upperdir={mount.upper},workdir={mount.work},userxattr"
    )
    return {
        "Name": "local",
        "Options": {"type": "overlay", "device": "overlay", "o": layers},
    }


def _isolation(spec: SandboxSpec, dialect: Dialect) -> dict[str, Any]:
    dns = {"Dns": ["127.0.0.1"]} if spec.network == "none" else {}
    runtime = {"Runtime": spec.runtime} if spec.runtime else {}
    return {
        "NetworkMode": "none" if spec.network == "none" else "bridge",
        "ReadonlyRootfs": not spec.writable_root,
        "Privileged": False,
        "CapAdd": [],
        "CapDrop": ["ALL"],
        "SecurityOpt": dialect.security_options(spec),
        "IpcMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "CgroupnsMode": "private",
        "UsernsMode": dialect.user_namespace(spec),
        "MaskedPaths": list(spec.masked_paths),
        "ReadonlyPaths": list(spec.readonly_paths),
        "Devices": [],
        "GroupAdd": [],
        "PortBindings": {},
        "PublishAllPorts": False,
        "Init": False,
        "AutoRemove": True,
        "RestartPolicy": {"Name": "no"},
        "LogConfig": {"Type": "none", "Config": {}},
        **dns,
        **runtime,
    }


def _resources(spec: SandboxSpec, dialect: Dialect) -> dict[str, Any]:
    limits = spec.limits
    return {
        "Memory": spec.memory,
        "MemorySwap": spec.memory,
        "NanoCpus": round(limits.cpus * 1_000_000_000),
        "PidsLimit": spec.pids,
        "ShmSize": limits.shm,
        "OomScoreAdj": OOM_SCORE,
        "OomKillDisable": False,
        "Ulimits": [
            {"Name": name, "Soft": value, "Hard": value}
            for name, value in dialect.ulimits(spec).items()
        ],
    }
