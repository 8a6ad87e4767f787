"""Checks that every protection of the spec is in force, and says by whose word.

Call it only once the init has connected: until its exec the process is still the engine's, and the seccomp filter is
applied last. `missing` compares and is pure; `verify` and `verify_inside` gather the evidence and raise.

Three witnesses, for each item of `Protections`:
 - the kernel of this machine, if the sandbox's processes are its own: /proc and the control groups decide;
 - else the init, which reads the same files inside, before any command runs (`Link.testify`). The engine must not
   contradict it;
 - for what neither shows, the engine: it must claim exactly what the spec says. A missing claim counts as a missing
   protection.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar.engines.kernel_facts import (
    KernelFacts,
    executable,
    gather,
    place_of,
    testified,
)
from belljar.engines.spec import (
    ROOT_CAPABILITIES,
    Protections,
    SandboxSpec,
    has_own_kernel,
)
from belljar.errors import ProtectionMissing
from belljar.layout import WORKSPACE
from belljar.patience import stretched
from belljar.records import record

if TYPE_CHECKING:
    from belljar.link.frames import Testimony

EXEC_SECONDS = (
    5.0  # from the engine's answer to the exec of the init; takes about a millisecond
)
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
    """By the engine."""
    kernel: KernelFacts | None = None
    """None if this machine's kernel cannot be asked."""
    init: tuple[int, int] | None = None
    """Device and inode of our init's file, if its process can be seen."""
    places: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """What must be mounted: target → device and path in its file system."""
    inside: KernelFacts | None = None
    """Reported by the init."""


Witnesses = Mapping[str, str]
"""Item of `Protections` → whose word stands for it: kernel, init, engine, or both of the latter."""


def verify(
    spec: SandboxSpec, claims: Protections, pid: int | None, init: Path | None = None
) -> Witnesses:
    """ProtectionMissing names each protection that is not in force. `init`: the init's file on this host."""
    identity = _identity(init) if init is not None and pid else None
    if pid and identity:
        _await_exec(pid, identity)
    kernel = gather(pid) if pid else None
    places = _places(spec, init) if init is not None and pid else {}
    return _required(spec, Evidence(claims, kernel, init=identity, places=places))


def asked_inside(spec: SandboxSpec) -> list[str]:
    """The paths of which the init must say whether something is there."""
    return [*spec.masked_paths, *spec.readonly_paths]


def verify_inside(
    spec: SandboxSpec, claims: Protections, testimony: Testimony
) -> Witnesses:
    """Like `verify`, for a sandbox that this machine cannot look into."""
    try:
        facts = testified(
            testimony.files, dict(zip(asked_inside(spec), testimony.there, strict=True))
        )
        facts = (
            replace(facts, cgroup={}, own_kernel=True)
            if has_own_kernel(spec.runtime)
            else facts
        )
        return _required(spec, Evidence(claims, inside=facts))
    except ValueError as error:
        raise ProtectionMissing(
            "the init's report has not the kernel's form, so nothing was run"
        ) from error


def _required(spec: SandboxSpec, evidence: Evidence) -> Witnesses:
    if lacking := missing(spec, evidence):
        raise ProtectionMissing(
            "not in force, so nothing was run: " + "; ".join(lacking)
        )
    return witnesses(spec, evidence)


def verify_workspace(path: str, pid: int | None) -> None:
    """For a running session. Root compares the directories themselves (`check_mounted`); others can compare mounts."""
    place = place_of(path) if pid and os.geteuid() != 0 else None
    kernel = gather(pid) if pid and place else None
    if place and kernel and (wrong := list(_mounted(kernel, {WORKSPACE: place}))):
        raise ProtectionMissing(
            f"workspace: the session has another one than {wrong[0]}"
        )


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def _places(spec: SandboxSpec, init: Path) -> dict[str, tuple[str, str]]:
    """The mount table shows, also to a caller who is not root, whether a path was swapped while it was mounted.

    The source of a mapped or staged workspace is gone by now; `Workspace.check_mounted` checks that one.
    """
    direct = {
        each.target: each.source
        for each in spec.mounts
        if each.kind == "bind" and each.source == spec.workspace
    }
    sources = {f"{spec.private}/init": str(init.resolve()), **direct}
    return {
        target: place
        for target, path in sources.items()
        if (place := place_of(path)) is not None
    }


def _await_exec(pid: int, init: tuple[int, int]) -> None:
    deadline = time.monotonic() + stretched(EXEC_SECONDS)
    while executable(pid) not in (None, init) and time.monotonic() < deadline:
        time.sleep(0.001)


def missing(spec: SandboxSpec, evidence: Evidence) -> list[str]:
    kernel, inside = evidence.kernel, evidence.inside
    lacking = (
        [*_processes(kernel, evidence.init), *_mounted(kernel, evidence.places)]
        if kernel is not None
        else []
    )
    lacking += (
        [*_processes_inside(inside), *_scratch_inside(spec, inside)]
        if inside is not None
        else []
    )
    for item in fields(Protections):
        shown = _shown(spec, item.name, evidence)
        claimed = getattr(evidence.claims, item.name)
        lacking += shown or []
        if shown is None or (inside is not None and claimed is not None):
            lacking += _compared(
                item.name, getattr(spec.protections, item.name), claimed
            )
    return lacking


def witnesses(spec: SandboxSpec, evidence: Evidence) -> Witnesses:
    found = {}
    for item in fields(Protections):
        shown = _shown(spec, item.name, evidence) is not None
        claimed = getattr(evidence.claims, item.name) is not None
        inner = "init, engine" if claimed else "init"
        found[item.name] = (
            "engine"
            if not shown
            else "kernel"
            if evidence.kernel is not None
            else inner
        )
    return found


def _shown(spec: SandboxSpec, name: str, evidence: Evidence) -> list[str] | None:
    """What the kernel, this machine's or the one inside, shows to be missing. None: it does not show this item."""
    facts = evidence.kernel or evidence.inside
    check = _CHECKS.get(name)
    return check(spec, facts) if check and facts is not None else None


def _compared(name: str, required: Any, claimed: Any) -> list[str]:
    if required == claimed:
        return []
    claim = "does not say" if claimed is None else f"has {_brief(claimed)}"
    return [f"{name.replace('_', ' ')} (asked {_brief(required)}, the engine {claim})"]


# What the kernel shows to be missing. None: it cannot be read here, so the engine's claim is compared.
Check = Callable[[SandboxSpec, KernelFacts], list[str] | None]


def _user(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    status = facts.status
    if "Uid" not in status:
        return None
    if facts.inside:
        uid, gid = str(spec.user.uid), str(spec.user.gid)
    else:
        uid, gid = (str(id) for id in spec.user.outside)
    groups = set((status.get("Gid", "") + " " + status.get("Groups", "")).split())
    lacking = []
    if set(status["Uid"].split()) != {uid}:
        lacking.append(f"user id (asked {uid}, the kernel has {status['Uid']})")
    if "0" in status["Uid"].split() and not (
        spec.user.root_inside and _root_is_mapped(facts)
    ):
        lacking.append("a user id other than 0")
    if not groups <= {gid}:
        lacking.append(
            f"group id (asked {gid}, the kernel has {status.get('Gid')} and {status.get('Groups')})"
        )
    return lacking


def _root_is_mapped(facts: KernelFacts) -> bool:
    """Whether root inside is shown to be somebody else outside: `inside outside count`, by line."""
    rows = [line.split() for line in facts.uid_map.splitlines()]
    return any(
        len(row) == 3 and row[0] == "0" and row[1] not in ("0", "") for row in rows
    )


def _capabilities(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    """None; a sandbox with `root` has those it was given, in its own user namespace."""
    if "CapBnd" not in facts.status:
        return None
    allowed = sum(1 << ROOT_CAPABILITIES[name] for name in spec.capabilities)
    if allowed and (facts.shared is None or "user" in facts.shared):
        return ["a user namespace of its own"]
    wanted = "no capabilities" if not allowed else "no other capabilities"
    return [
        f"{wanted} ({name} is {facts.status.get(name)})"
        for name in CAPABILITY_SETS
        if not (
            facts.own_kernel and name not in facts.status
        )  # gVisor shows no ambient set
        and int(facts.status.get(name, "1"), 16) & ~allowed
    ]


def _no_new_privileges(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    found = facts.status.get("NoNewPrivs")
    if found is None:
        return None
    return [] if found == "1" else ["no-new-privileges"]


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
    """The control group's; or, where the init sets limits on a user id that no other sandbox has, that user's."""
    if spec.init_limits and _at_most(
        facts.limits.get("Max processes", ""), spec.limits.pids
    ):
        return []
    return _bounded("process limit", facts.cgroup.get("pids"), spec.limits.pids)


def _cpus(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    quota, period = facts.cgroup.get("quota"), facts.cgroup.get("period")
    if not quota or not period:
        return None
    if _at_most(quota, round(spec.limits.cpus * int(period)) + 1):
        return []
    return [
        f"cpu limit (asked {spec.limits.cpus} cores, the kernel has {quota}/{period})"
    ]


def _network(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if facts.routes is None or (
        facts.shared is None and not (facts.inside and spec.network == "none")
    ):
        return None
    lacking = ["a net namespace of its own"] if "net" in (facts.shared or ()) else []
    if spec.network == "none" and facts.routes:
        lacking.append("no network (there are routes)")
    return lacking


def _own_namespaces(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if facts.shared is None:
        return None
    return [
        f"a {name} namespace of its own"
        for name in sorted(facts.shared & (spec.own_namespaces | {"mnt"}))
    ]


def _read_only_root(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if spec.writable_root:
        return []
    root = facts.mounts.get("/")
    if root is None:
        return None
    return [] if root.read_only else ["a read-only root file system"]


def _masked_paths(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    """Every masked path that this kernel has must have something mounted over it."""
    if not facts.mounts or facts.own_kernel:
        return None
    return [
        f"{path} masked"
        for path in spec.masked_paths
        if path not in facts.mounts and _is_there(path, facts)
    ]


def _readonly_paths(spec: SandboxSpec, facts: KernelFacts) -> list[str] | None:
    if not facts.mounts or facts.own_kernel:
        return None
    return [
        f"{path} read-only"
        for path in spec.readonly_paths
        if _is_there(path, facts)
        and not (path in facts.mounts and facts.mounts[path].read_only)
    ]


_CHECKS: dict[str, Check] = {
    "user": _user,
    "memory": _memory,
    "swap": _swap,
    "cpus": _cpus,
    "pids": _pids,
    "ulimits": _ulimits,
    "read_only_root": _read_only_root,
    "capabilities": _capabilities,
    "no_new_privileges": _no_new_privileges,
    "network": _network,
    "own_namespaces": _own_namespaces,
    "masked_paths": _masked_paths,
    "readonly_paths": _readonly_paths,
}


def _processes(facts: KernelFacts, init: tuple[int, int] | None) -> Iterator[str]:
    """What no engine claims: that PID 1 is our init, and that a seccomp filter is on it."""
    numbers = facts.status.get("NSpid", "").split()
    if len(numbers) < 2 or numbers[-1] != "1":
        yield "a process namespace of its own"
    if facts.status.get("Seccomp") != "2":
        yield "the seccomp filter"
    if init is not None and facts.executable is not None and facts.executable != init:
        yield "Belljar's init as PID 1 (another program runs)"


def _processes_inside(facts: KernelFacts) -> Iterator[str]:
    """That PID 1 is our init is proved by the token of its greeting. gVisor's kernel shows no seccomp mode."""
    if facts.status.get("Seccomp", "2") != "2":
        yield "the seccomp filter"


def _scratch_inside(spec: SandboxSpec, facts: KernelFacts) -> Iterator[str]:
    """Space in memory that has no size (a kubelet before 1.22)."""
    for mount in spec.mounts if facts.mounts and not facts.own_kernel else ():
        if mount.kind != "tmpfs" or not mount.size:
            continue
        options = (
            facts.mounts[mount.target].options if mount.target in facts.mounts else ""
        )
        size = next(
            (
                each.removeprefix("size=")
                for each in options.split(",")
                if each.startswith("size=")
            ),
            "",
        )
        if not size.endswith("k") or not _at_most(
            size.removesuffix("k"), mount.size >> 10
        ):
            yield f"the size of {mount.target} (asked {mount.size}, the kernel has {size or 'none'})"


def _mounted(
    facts: KernelFacts, places: Mapping[str, tuple[str, str]]
) -> Iterator[str]:
    for target, place in places.items() if facts.mounts else ():
        mount = facts.mounts.get(target)
        if mount is None or (mount.device, mount.root) != place:
            yield f"{place[1]} at {target} (something else is mounted there)"


def _is_there(path: str, facts: KernelFacts) -> bool:
    return (
        os.path.lexists(path)
        if facts.present is None
        else facts.present.get(path, True)
    )


def _bounded(name: str, actual: str | None, asked: int) -> list[str] | None:
    if actual is None:
        return None
    return (
        []
        if _at_most(actual, asked)
        else [f"{name} (asked {asked}, the kernel has {actual})"]
    )


def _at_most(value: str, bound: int) -> bool:
    return value.isdigit() and int(value) <= bound


def _brief(value: Any) -> str:
    text = (
        ", ".join(sorted(map(str, value))) or "none"
        if isinstance(value, frozenset)
        else str(value)
    )
    return text if len(text) <= 60 else text[:57] + "..."
