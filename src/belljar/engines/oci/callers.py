"""How a sandbox's root file system is mounted and where its control group is depends on the caller.

Root: mounted in a thread's own mount namespace, with id-mapped layers; groups at the top. An ordinary user: mounted in
his own user namespace (belljar.user_namespace) by a small program that then becomes the runtime. His layers were
unpacked in that namespace, so their owners are right already. His groups are below the one delegated to him.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from belljar import user_namespace
from belljar.engines.oci import cgroups, rootfs
from belljar.engines.oci.runtime import ROOT, Runtime, Starting
from belljar.engines.spec import DOES_WITHOUT_THIS_KERNEL, IdMap, SandboxSpec, User
from belljar.errors import EngineError, EngineUnavailable

LAST_ID = rootfs.LAST_ID
SPARE_IDS = 0x70000000
"""The first id of this machine that ids inside are mapped to. Nobody has such ids: accounts, subordinate ids and
systemd's containers (up to 0x6fffffff) are below."""
SPARE_RANGES = 4096
"""Each sandbox has a range of its own, as long as there are so many: the kernel keeps quotas for each id (of root
inside: 200 keys, one of which the runtime makes for each sandbox)."""
Maps = tuple[tuple[IdMap, ...], tuple[IdMap, ...]]


class Superuser:
    rootless = False
    missing: tuple[str, ...] = ()
    """Features that this caller's sandboxes lack, as sentences for people."""

    def __init__(self) -> None:
        self.groups = cgroups.Place()

    def user(self, uid: int, gid: int, *, root: bool) -> User:
        """That user (with `root`: root) is `uid` outside; all others are ids that nobody has, nor another sandbox."""
        own = (0, 0) if root else (uid, gid)
        spare = SPARE_IDS + uid % SPARE_RANGES * (LAST_ID + 1)
        return User(
            *own,
            _spared(own[0], uid, spare),
            _spared(own[1], gid, spare),
            root_inside=root,
        )

    def bounds(self) -> dict[str, int]:
        """What else bounds the number of his sandboxes: `Description.bounds`."""
        return {}

    def maps(self, user: User) -> Maps:
        """The user's maps, in ids as the runtime sees them."""
        return user.uid_map, user.gid_map

    def namespace(self, at: str) -> dict[str, Any]:
        """The user namespace as the runtime's config describes it; empty: none."""
        return {"type": "user", "path": f"{at}/{rootfs.USER_NAMESPACE}"}

    def start(
        self,
        runtime: Runtime,
        name: str,
        bundle: Path,
        spec: SandboxSpec,
        root: rootfs.Root,
        at: str,
    ) -> Starting:
        """Mount its root file system and have the runtime start it."""

        def work() -> Starting:
            rootfs.assemble(root, at)
            return runtime.begin(name, bundle, spec.ulimits)

        return rootfs.in_own_namespace(work)


class KernelOwner(Superuser):
    """Root, for a runtime with its own kernel. That kernel separates ids, so there is no user namespace."""

    missing: tuple[str, ...] = DOES_WITHOUT_THIS_KERNEL

    def __init__(self) -> None:
        if os.geteuid() != 0:
            raise EngineUnavailable(
                "a runtime with its own kernel needs root here; use runc or crun"
            )
        super().__init__()

    def user(self, uid: int, gid: int, *, root: bool) -> User:
        if root:
            raise EngineError(
                "--root needs a user namespace: use the runtime runc or crun"
            )
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
        missing = user_namespace.missing_requirements()
        reasons = (
            [f"the engine oci cannot run for an ordinary user here: {missing}"]
            if missing
            else []
        )
        try:
            self.groups = cgroups.delegated(os.getuid())
        except EngineUnavailable as error:
            reasons.append(str(error))
        if reasons:  # name all of them, so that they can be fixed at once
            raise EngineUnavailable("; ".join(reasons))
        self._ids = user_namespace.subordinate_ids()

    def bounds(self) -> dict[str, int]:
        """In all his sandboxes root is the same id outside, for which the runtime makes a key each time."""
        with suppress(OSError, ValueError):
            most = int(Path("/proc/sys/kernel/keys/maxkeys").read_text())
            return {"keys of your user (kernel.keys.maxkeys)": most}
        return {}

    def user(self, uid: int, gid: int, *, root: bool) -> User:
        """That user (with `root`: root) is the caller outside; all others are his subordinate ids."""
        own = (0, 0) if root else (uid, gid)
        return User(
            *own,
            _shifted(own[0], uid, self._ids.uid),
            _shifted(own[1], gid, self._ids.gid),
            root_inside=root,
        )

    def maps(self, user: User) -> Maps:
        def translated(
            maps: tuple[IdMap, ...], own: int, first: int
        ) -> tuple[IdMap, ...]:
            return tuple(
                IdMap(
                    span.inside,
                    user_namespace.id_inside(span.outside, own, first),
                    span.count,
                )
                for span in maps
            )

        ids = self._ids
        return translated(user.uid_map, os.getuid(), ids.uid), translated(
            user.gid_map, os.getgid(), ids.gid
        )

    def namespace(self, at: str) -> dict[str, Any]:
        return {"type": "user"}

    def start(
        self,
        runtime: Runtime,
        name: str,
        bundle: Path,
        spec: SandboxSpec,
        root: rootfs.Root,
        at: str,
    ) -> Starting:
        """Our program (rootless.py) enters the namespace, mounts, and then becomes the runtime."""
        (bundle / ROOT).write_text(json.dumps(asdict(root), default=str))
        program = [sys.executable, "-P", "-S", "-c", _PROGRAM, json.dumps(sys.path), at]
        return runtime.begin(
            name, bundle, spec.ulimits, user_namespace.command(program)
        )


Caller = Superuser | OrdinaryUser


def current(*, own_kernel: bool = False) -> Caller:
    if own_kernel:
        return KernelOwner()
    return Superuser() if os.geteuid() == 0 else OrdinaryUser()


# Runs without `site`, which takes as long to load as all the rest; the module path is an argument instead.
_PROGRAM = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from belljar.engines.oci import rootless"


def _spared(inside: int, outside: int, spare: int) -> tuple[IdMap, ...]:
    """Maps `inside` to `outside`, and every other id that an image may use to a spare one."""
    if inside > LAST_ID:
        return (IdMap(0, spare, LAST_ID + 1), IdMap(inside, outside))
    before = (IdMap(0, spare, inside),) if inside else ()
    return (
        *before,
        IdMap(inside, outside),
        IdMap(inside + 1, spare + inside + 1, LAST_ID - inside),
    )


def _shifted(inside: int, own: int, first: int) -> tuple[IdMap, ...]:
    """Maps `inside` to the caller, and other ids to the owners of the image's files on disk (1 is the first subordinate
    id). Root's files belong to the caller on disk; so if `inside` is not root, root inside gets the last id.
    """
    if inside == 0:
        return (IdMap(0, own), IdMap(1, first, LAST_ID))
    root = IdMap(0, first + LAST_ID)
    if inside > LAST_ID:
        return (root, IdMap(1, first, LAST_ID), IdMap(inside, own))
    spans = (
        root,
        IdMap(1, first, inside - 1),
        IdMap(inside, own),
        IdMap(inside + 1, first + inside, LAST_ID - inside),
    )
    return tuple(span for span in spans if span.count)


def workspace_overlay(spec: SandboxSpec) -> rootfs.Overlay | None:
    overlay = next((mount for mount in spec.mounts if mount.kind == "overlay"), None)
    return (
        rootfs.Overlay(overlay.source.split(":"), overlay.upper, overlay.work)
        if overlay
        else None
    )


def sources(spec: SandboxSpec) -> Sequence[str]:
    """Paths of this machine that must stay visible while the root file system is mounted."""
    paths = [
        path
        for mount in spec.mounts
        for path in (*mount.source.split(":"), mount.upper, mount.work)
    ]
    return [path for path in paths if path.startswith("/")]
