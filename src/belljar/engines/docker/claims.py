"""What the engine's inspect document claims, in the neutral words of `Protections`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belljar.engines.docker.dialect import Dialect
from belljar.engines.spec import Protections

_NETWORKS = {"none": "none", "bridge": "full", "default": "full"}


def claims(document: Mapping[str, Any], dialect: Dialect, machine: str) -> Protections:
    config = document.get("HostConfig") or {}
    options = [str(each) for each in config.get("SecurityOpt") or []]
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
        no_new_privileges=any(each in ("no-new-privileges", "no-new-privileges:true") for each in options),
        seccomp=_seccomp(options, dialect, machine),
        network=_NETWORKS.get(config.get("NetworkMode") or "", config.get("NetworkMode")),
        own_namespaces=dialect.claimed_namespaces(config),
        masked_paths=_paths(config.get("MaskedPaths")),
        readonly_paths=_paths(config.get("ReadonlyPaths")),
        extras=frozenset(name for name in dialect.extras if config.get(name)) if config else None,
        removes_itself=config.get("AutoRemove"),
    )


def _capabilities(config: Mapping[str, Any]) -> frozenset[str] | None:
    if [str(each).upper() for each in config.get("CapDrop") or []] != ["ALL"]:
        return None
    return frozenset(str(each) for each in config.get("CapAdd") or [])


def _seccomp(options: list[str], dialect: Dialect, machine: str) -> str | None:
    given = [each.removeprefix("seccomp=") for each in options if each.startswith("seccomp=")]
    return dialect.profile_name(given[0], machine) if len(given) == 1 else None


def _ulimits(given: Any) -> frozenset[tuple[str, int]] | None:
    if not given:
        return None
    return frozenset((str(each["Name"]), max(int(each["Soft"]), int(each["Hard"]))) for each in given)


def _paths(given: Any) -> frozenset[str] | None:
    return None if given is None else frozenset(str(each) for each in given)
