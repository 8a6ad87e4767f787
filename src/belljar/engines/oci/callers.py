"""Who calls decides how a sandbox's root file system is put together, and where its control group may be.

Root: in a thread's own mount namespace, layers id-mapped, groups at the top. An ordinary user: in a user namespace of
his own (belljar.user_namespace), by a small program that then becomes the runtime; his layers were unpacked there, so
their ids on disk are right as they are. His groups are below what was delegated to him.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

from belljar import user_namespace
from belljar.engines.oci import cgroups, rootfs
from belljar.engines.oci.runtime import ROOT, Runtime, Starting
from belljar.engines.spec import DOES_WITHOUT_THIS_KERNEL, IdMap, SandboxSpec, User
from belljar.errors import EngineError, EngineUnavailable

LAST_ID = rootfs.LAST_ID
SPARE_IDS = 0x70000000
"""Ids of this machine that stand for those inside. Nobody has them: accounts, subordinate ids and systemd's containers
(which end at 0x6fffffff) are below."""
SPARE_RANGES = 4096
Maps = tuple[tuple[IdMap, ...], tuple[IdMap, ...]]


class Caller(Protocol):
    rootless: bool
    groups: cgroups.Place
    missing: tuple[str, ...]
    """What sandboxes of this caller do without, for people."""

    def user(self, uid: int, gid: int, *, root: bool) -> User: ...

    def maps(self, user: User) -> Maps:
        """The user's maps, in ids that the runtime knows."""
        ...

    def namespace(self, at: str) -> dict[str, Any]:
        """The user namespace, in the runtime's words; empty: none."""
        ...

    def start(
        self, runtime: Runtime, name: str, bundle: Path, spec: SandboxSpec, root: rootfs.Root, at: str
    ) -> Starting:
        """Put its root file system together and have the runtime start it."""
        ...


def current(*, own_kernel: bool = False) -> Caller:
    if own_kernel:
        return KernelOwner()
    return Superuser() if os.geteuid() == 0 else OrdinaryUser()


class Superuser:
    rootless = False
    missing: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.groups = cgroups.Place()

    def user(self, uid: int, gid: int, *, root: bool) -> User:
        """That user, or root, is `uid` outside; all others are nobody's ids."""
        own = (0, 0) if root else (uid, gid)
        spare = SPARE_IDS + (1 + uid % (SPARE_RANGES - 1) if root else 0) * (LAST_ID + 1)
        return User(*own, _spared(own[0], uid, spare), _spared(own[1], gid, spare), root_inside=root)

    def maps(self, user: User) -> Maps:
        return user.uid_map, user.gid_map

    def namespace(self, at: str) -> dict[str, Any]:
        return {"type": "user", "path": f"{at}/{rootfs.USER_NAMESPACE}"}

    def start(
        self, runtime: Runtime, name: str, bundle: Path, spec: SandboxSpec, root: rootfs.Root, at: str
    ) -> Starting:
        def work() -> Starting:
            rootfs.assemble(root, at)
            return runtime.begin(name, bundle, spec.ulimits)

        return rootfs.in_own_namespace(work)


class KernelOwner(Superuser):
    """Root, for a runtime with a kernel of its own: what keeps ids apart is that kernel, not a user namespace."""

    missing: tuple[str, ...] = DOES_WITHOUT_THIS_KERNEL

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise EngineUnavailable("a runtime with a kernel of its own needs root here; use runc or crun")
        super().__init__()

    def user(self, uid: int, gid: int, *, root: bool) -> User:
        if root:
            raise EngineError("--root needs a user namespace: use the runtime runc or crun")
        return User(uid, gid)

    def maps(self, user: User) -> Maps:
        everybody = (IdMap(0, 0, LAST_ID + 1),)
        return everybody, everybody

    def namespace(self, at: str) -> dict[str, Any]:
        return {}


class OrdinaryUser:
    rootless = True
    missing: tuple[str, ...] = (
        "devices are kept out by the user namespace and nodev, not by a control group",
        "the image's own root files belong to your uid inside (they are read-only)",
        "checkpoints are copies of what changed; root's are layers",
    )

    def __init__(self) -> None:
        lacking = user_namespace.missing_requirements()
        reasons = [f"the engine oci cannot run for an ordinary user here: {lacking}"] if lacking else []
        try:
            self.groups = cgroups.delegated(os.getuid())
        except EngineUnavailable as error:
            reasons.append(str(error))
        if reasons:  # all that is missing, so that it can be got in one go
            raise EngineUnavailable("; ".join(reasons))
        self._ids = user_namespace.subordinate_ids()

    def user(self, uid: int, gid: int, *, root: bool) -> User:
        """The caller himself, or root, is the caller outside; all others are his subordinate ids."""
        own = (0, 0) if root else (uid, gid)
        return User(*own, _shifted(own[0], uid, self._ids.uid), _shifted(own[1], gid, self._ids.gid), root_inside=root)

    def maps(self, user: User) -> Maps:
        def called(maps: tuple[IdMap, ...], own: int, first: int) -> tuple[IdMap, ...]:
            return tuple(
                IdMap(each.inside, user_namespace.id_inside(each.outside, own, first), each.count) for each in maps
            )

        ids = self._ids
        return called(user.uid_map, os.getuid(), ids.uid), called(user.gid_map, os.getgid(), ids.gid)

    def namespace(self, at: str) -> dict[str, Any]:
        return {"type": "user"}

    def start(
        self, runtime: Runtime, name: str, bundle: Path, spec: SandboxSpec, root: rootfs.Root, at: str
    ) -> Starting:
        """The namespace is entered by a program of ours (rootless.py), which mounts and then becomes the runtime."""
        (bundle / ROOT).write_text(json.dumps(asdict(root), default=str))
        program = [sys.executable, "-P", "-S", "-c", _PROGRAM, json.dumps(sys.path), at]
        return runtime.begin(name, bundle, spec.ulimits, user_namespace.command(program))


# Without `site`, which takes as long to load as all the rest: the path it would find is handed over.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from belljar.engines.oci import rootless"


def _spared(inside: int, outside: int, spare: int) -> tuple[IdMap, ...]:
    """`inside` is `outside`; every other id that an image may know is a spare one."""
    if inside > LAST_ID:
        return (IdMap(0, spare, LAST_ID + 1), IdMap(inside, outside))
    before = (IdMap(0, spare, inside),) if inside else ()
    return (*before, IdMap(inside, outside), IdMap(inside + 1, spare + inside + 1, LAST_ID - inside))


def _shifted(inside: int, own: int, first: int) -> tuple[IdMap, ...]:
    """`inside` is the caller; others are what the image's files belong to on disk, where 1 is the first subordinate id.

    Root's files are the caller's own on disk, so root inside, if that is somebody else, gets the last id of all.
    """
    if inside == 0:
        return (IdMap(0, own), IdMap(1, first, LAST_ID))
    root = IdMap(0, first + LAST_ID)
    if inside > LAST_ID:
        return (root, IdMap(1, first, LAST_ID), IdMap(inside, own))
    spans = (root, IdMap(1, first, inside - 1), IdMap(inside, own), IdMap(inside + 1, first + inside, LAST_ID - inside))
    return tuple(each for each in spans if each.count)


def workspace_overlay(spec: SandboxSpec) -> rootfs.Overlay | None:
    found = next((each for each in spec.mounts if each.kind == "overlay"), None)
    return rootfs.Overlay(found.source.split(":"), found.upper, found.work) if found else None


def sources(spec: SandboxSpec) -> Sequence[str]:
    """Paths of this machine that must stay visible while all is put together."""
    paths = [path for each in spec.mounts for path in (*each.source.split(":"), each.upper, each.work)]
    return [path for path in paths if path.startswith("/")]
