"""The engine's inspect document as `Protections`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belljar.engines.docker.dialect import Dialect
from belljar.engines.spec import Protections

_NETWORKS = {"none": "none", "bridge": "full", "default": "full"}


def claims(document: Mapping[str, Any], dialect: Dialect, machine: str) -> Protections:
    config = document.get("HostConfig") or {}
    options = [str(option) for option in config.get("SecurityOpt") or []]
    memory, swap = int(config.get("Memory") or 0), int(config.get("MemorySwap") or 0)
    return Protections(
        user=str((document.get("Config") or {}).get("User") or ""),
        memory=memory or None,
        swap=swap - memory if swap > 0 else None,
        cpus=int(config.get("NanoCpus") or 0) / 1e9 or None,
        pids=config.get("PidsLimit") or None,
        ulimits=_ulimits(config.get("Ulimits")),
        read_only_root=config.get("ReadonlyRootfs"),
        capabilities=_capabilities(config),
        no_new_privileges=any(
            option in ("no-new-privileges", "no-new-privileges:true")
            for option in options
        ),
        seccomp=_seccomp(options, dialect, machine),
        network=_NETWORKS.get(
            config.get("NetworkMode") or "", config.get("NetworkMode")
        ),
        own_namespaces=dialect.claimed_namespaces(config),
        masked_paths=_paths(config.get("MaskedPaths")),
        readonly_paths=_paths(config.get("ReadonlyPaths")),
        extras=frozenset(name for name in dialect.extras if config.get(name))
        if config
        else None,
        removes_itself=config.get("AutoRemove"),
    )


def _capabilities(config: Mapping[str, Any]) -> frozenset[str] | None:
    if [str(name).upper() for name in config.get("CapDrop") or []] != ["ALL"]:
        return None
    return frozenset(str(name) for name in config.get("CapAdd") or [])


def _seccomp(options: list[str], dialect: Dialect, machine: str) -> str | None:
    profiles = [
        option.removeprefix("seccomp=")
        for option in options
        if option.startswith("seccomp=")
    ]
    return dialect.profile_name(profiles[0], machine) if len(profiles) == 1 else None


def _ulimits(limits: Any) -> frozenset[tuple[str, int]] | None:
    if not limits:
        return None
    return frozenset(
        (str(limit["Name"]), max(int(limit["Soft"]), int(limit["Hard"])))
        for limit in limits
    )


def _paths(paths: Any) -> frozenset[str] | None:
    return None if paths is None else frozenset(str(path) for path in paths)
