"""Is what was asked for really in force? The kernel's word where it can be had, the engine's for the rest.

Ask only once the init has said hello: until its exec the process is still the engine's, and the seccomp filter is the
last thing to be put on it. `missing` judges evidence and is pure; `verify` gathers it and stops the run.

For each item of `Protections` there is a witness. The kernel is one where /proc and the cgroups can be read; what it
cannot tell, or not from here, the engine must claim in the very words that were asked. Silence is no proof.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from belljar.engines.kernel_facts import KernelFacts, executable, gather, place_of
from belljar.engines.spec import ROOT_CAPABILITIES, Protections, SandboxSpec
from belljar.errors import ProtectionMissing
from belljar.layout import WORKSPACE
from belljar.patience import stretched
from belljar.records import record

EXEC_SECONDS = 5.0  # from the engine's answer to the exec of the init; takes about a millisecond
CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")
_LIMIT_NAMES = {
    "core": "Max core file size",
    "nofile": "Max open files",
    "fsize": "Max file size",
    "memlock": "Max locked memory",
}


@record
class Evidence:
    claims: Protections
    """The engine's word."""
    kernel: KernelFacts | None = None
    """The kernel's; None where it cannot be asked."""
    init: tuple[int, int] | None = None
    """Device and inode of our init's file, where its process can be seen."""
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What of the host must be mounted where: target → device and place in its file system."""


def verify(spec: SandboxSpec, claims: Protections, pid: int | None, init: Path | None = None) -> None:
    """Raise ProtectionMissing that names each protection which is not in force. `init` is our file on this host."""
    identity = _identity(init) if init is not None and pid else None
    if pid and identity:
        _await_exec(pid, identity)
    kernel = gather(pid) if pid else None
    places = _places(spec, init) if init is not None and pid else {}
    if lacking := missing(spec, Evidence(claims, kernel, identity, places)):
        raise ProtectionMissing("not in force, so nothing was run: " + "; ".join(lacking))


def verify_workspace(path: str, pid: int | None) -> None:
    """For a session that runs already. Root has compared the directories themselves, nobody else can look inside."""
    place = place_of(path) if pid and os.geteuid() != 0 else None
    kernel = gather(pid) if pid and place else None
    if place and kernel and (wrong := list(_mounted(kernel, {WORKSPACE: place}))):
        raise ProtectionMissing(f"workspace: the session has another one than {wrong[0]}")


def _identity(path: Path) -> tuple[int, int]:
    found = os.stat(path)
    return found.st_dev, found.st_ino


def _places(spec: SandboxSpec, init: Path) -> dict[str, tuple[str, str]]:
    """Also a caller who is not root can see what was mounted: a path that was swapped, and swapped back, shows there.

    A workspace that was mapped or staged is not there any more by now; `Workspace.check_mounted` looks at that one.
    """
    direct = {each.target: each.source for each in spec.mounts if each.kind == "bind" and each.source == spec.workspace}
    wanted = {f"{spec.private}/init": str(init.resolve()), **direct}
    return {target: place for target, path in wanted.items() if (place := place_of(path)) is not None}


def _await_exec(pid: int, init: tuple[int, int]) -> None:
    deadline = time.monotonic() + stretched(EXEC_SECONDS)
    while executable(pid) not in (None, init) and time.monotonic() < deadline:
        time.sleep(0.001)


def missing(spec: SandboxSpec, evidence: Evidence) -> list[str]:
    kernel = evidence.kernel
    lacking = [*_processes(kernel, evidence.init), *_mounted(kernel, evidence.places)] if kernel is not None else []
    asked = spec.protections
    for item in fields(Protections):
        witness = _WITNESSES.get(item.name)
        said = witness(spec, kernel) if witness and kernel is not None else None
        if said is None:
            said = _compared(item.name, getattr(asked, item.name), getattr(evidence.claims, item.name))
        lacking += said
    return lacking


def _compared(name: str, asked: Any, claimed: Any) -> list[str]:
    if asked == claimed:
        return []
    said = "does not say" if claimed is None else f"has {_brief(claimed)}"
    return [f"{name.replace('_', ' ')} (asked {_brief(asked)}, the engine {said})"]


# What the kernel testifies to. None: it cannot be read here, so the engine's word is asked for.
Witness = Callable[[SandboxSpec, KernelFacts], list[str] | None]


def _user(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    status = facts.status
    if "Uid" not in status:
        return None
    uid, gid = (str(id) for id in spec.user.outside)
    groups = set((status.get("Gid", "") + " " + status.get("Groups", "")).split())
    lacking = []
    if set(status["Uid"].split()) != {uid}:
        lacking.append(f"user id (asked {uid}, the kernel has {status['Uid']})")
    if "0" in status["Uid"].split():
        lacking.append("a user id other than 0")
    if not groups <= {gid}:
        lacking.append(f"group id (asked {gid}, the kernel has {status.get('Gid')} and {status.get('Groups')})")
    return lacking


def _capabilities(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    """For a sandbox whose root is root inside: no more than it was given, and only in its own user namespace."""
    if "CapBnd" not in facts.status:
        return None
    allowed = sum(1 << ROOT_CAPABILITIES[name] for name in spec.capabilities)
    if allowed and (facts.shared is None or "user" in facts.shared):
        return ["a user namespace of its own"]
    wanted = "no capabilities" if not allowed else "no other capabilities"
    return [
        f"{wanted} ({name} is {facts.status.get(name)})"
        for name in CAPABILITY_SETS
        if int(facts.status.get(name, "1"), 16) & ~allowed
    ]


def _no_new_privileges(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    found = facts.status.get("NoNewPrivs")
    return None if found is None else [] if found == "1" else ["no-new-privileges"]


def _ulimits(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if not facts.limits:
        return None
    found = {name: facts.limits.get(_LIMIT_NAMES[name], "") for name in spec.ulimits}
    return [
        f"ulimit {name} (asked {asked}, the kernel has {found[name] or 'none'})"
        for name, asked in spec.ulimits.items()
        if not _at_most(found[name], asked)
    ]


def _memory(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    return _bounded("memory limit", facts.cgroup.get("memory"), spec.limits.memory)


def _swap(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if not facts.host_swap:
        return []
    if not facts.cgroup:
        return None
    allowed = 0 if facts.unified else spec.limits.memory
    fine = _at_most(facts.cgroup.get("swap", "none"), allowed)
    return [] if fine else ["no swap (the kernel does not account for it or allows it)"]


def _pids(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    return _bounded("process limit", facts.cgroup.get("pids"), spec.limits.pids)


def _cpus(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    quota, period = facts.cgroup.get("quota"), facts.cgroup.get("period")
    if not quota or not period:
        return None
    if _at_most(quota, round(spec.limits.cpus * int(period)) + 1):
        return []
    return [f"cpu limit (asked {spec.limits.cpus} cores, the kernel has {quota}/{period})"]


def _network(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if facts.shared is None or facts.routes is None:
        return None
    lacking = ["a net namespace of its own"] if "net" in facts.shared else []
    if spec.network == "none" and facts.routes:
        lacking.append("no network (there are routes)")
    return lacking


def _own_namespaces(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if facts.shared is None:
        return None
    return [f"a {name} namespace of its own" for name in sorted(facts.shared & (spec.own_namespaces | {"mnt"}))]


def _read_only_root(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if spec.writable_root:
        return []
    root = facts.mounts.get("/")
    return None if root is None else [] if root.read_only else ["a read-only root file system"]


def _masked_paths(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    """A runtime leaves out what this kernel does not have; all else must have something of its own mounted over it."""
    if not facts.mounts:
        return None
    return [f"{path} masked" for path in spec.masked_paths if path not in facts.mounts and _is_there(path)]


def _readonly_paths(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if not facts.mounts:
        return None
    return [
        f"{path} read-only"
        for path in spec.readonly_paths
        if _is_there(path) and not (path in facts.mounts and facts.mounts[path].read_only)
    ]


_WITNESSES: dict[str, Witness] = {
    "user": _user, "memory": _memory, "swap": _swap, "cpus": _cpus, "pids": _pids, "ulimits": _ulimits,
    "read_only_root": _read_only_root, "capabilities": _capabilities, "no_new_privileges": _no_new_privileges,
    "network": _network, "own_namespaces": _own_namespaces, "masked_paths": _masked_paths,
    "readonly_paths": _readonly_paths,
}  # fmt: skip


def _processes(facts: KernelFacts, init: tuple[int, int] | None) -> Iterator[str]:
    """What no engine is asked: which program PID 1 is, and that a filter is on it."""
    numbers = facts.status.get("NSpid", "").split()
    if len(numbers) < 2 or numbers[-1] != "1":
        yield "a process namespace of its own"
    if facts.status.get("Seccomp") != "2":
        yield "the seccomp filter"
    if init is not None and facts.executable is not None and facts.executable != init:
        yield "Belljar's init as PID 1 (another program runs)"


def _mounted(facts: KernelFacts, places: Mapping[str, tuple[str, str]]) -> Iterator[str]:
    for target, place in places.items() if facts.mounts else ():
        found = facts.mounts.get(target)
        if found is None or (found.device, found.root) != place:
            yield f"{place[1]} at {target} (something else is mounted there)"


def _is_there(path: str) -> bool:
    return os.path.lexists(path)


def _bounded(name: str, found: str | None, asked: int) -> list[str] | None:
    if found is None:
        return None
    return [] if _at_most(found, asked) else [f"{name} (asked {asked}, the kernel has {found})"]


def _at_most(value: str, bound: int) -> bool:
    return value.isdigit() and int(value) <= bound


def _brief(value: Any) -> str:
    text = ", ".join(sorted(map(str, value))) or "none" if isinstance(value, frozenset) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
