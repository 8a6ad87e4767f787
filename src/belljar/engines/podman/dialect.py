"""Where Podman differs from Docker's API (seen with 4.3 and 5.x).

It takes the seccomp profile as a file and masked paths as an option, refuses tmpfs options that it does not know, and
describes namespaces and mounts differently: those are checked in the kernel.
"""

from __future__ import annotations

import hashlib
import os
import resource
import tempfile
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar import resources
from belljar.engines.docker.dialect import Dialect
from belljar.engines.kernel_facts import read
from belljar.engines.seccomp import profile_text
from belljar.engines.spec import OWN_NAMESPACES, IdMap, Mount, SandboxSpec, User

if TYPE_CHECKING:
    from belljar.engines.docker.client import Client

PROCESSES = 1 << 15  # the cgroup's limit is lower


class PodmanDialect(Dialect):
    name = "podman"
    name_prefixes = ("localhost/", "docker.io/library/", "docker.io/")
    works_remotely = False
    copies_links = False
    extras = tuple(name for name in Dialect.extras if name != "Binds")

    def security_options(self, spec: SandboxSpec) -> list[str]:
        apparmor = ["apparmor=unconfined"] if _stacked_profiles() else []
        return [
            *super().security_options(spec),
            f"mask={':'.join(spec.masked_paths)}",
            *apparmor,
        ]

    def access_control_gap(self) -> str:
        return (
            "crun's own AppArmor profile forbids every signal inside"
            if _stacked_profiles()
            else ""
        )

    def can_limit(
        self, client: Client, info: Mapping[str, Any]
    ) -> dict[str, bool | None]:
        """Podman's Docker API is wrong: with cgroup v2 it denies limits that work (5.4), and with v1 it promises an
        ordinary user limits that do not (4.3). Podman's own API lists the controllers."""
        rootless = "name=rootless" in (info.get("SecurityOptions") or [])
        if str(info.get("CgroupVersion")) != "2" and not rootless:
            return super().can_limit(client, info)
        own = client.ask("asking the engine about itself", "GET", "/v4.0.0/libpod/info")
        controllers = set(own["host"].get("cgroupControllers") or ())
        needed = {"memory": "memory", "swap": "memory", "pids": "pids", "cpus": "cpu"}
        return {
            limit: controller in controllers for limit, controller in needed.items()
        }

    def seccomp(self, spec: SandboxSpec) -> str:
        _write_profile(profile_text(spec.seccomp, spec.machine))
        return super().seccomp(spec)

    def profile_option(self, text: str) -> str:
        return str(_profile_path(text))

    def tmpfs_options(self, mount: Mount) -> str:
        mode = (
            0o1777 if mount.owner is not None else mount.mode
        )  # Podman cannot set the owner
        return super().tmpfs_options(replace(mount, mode=mode, inodes=0, owner=None))

    def ignores_ulimits(self, rootless: bool) -> bool:
        """A rootless Podman uses its own limits, whatever the request says (5.4)."""
        return rootless

    def ulimits(self, spec: SandboxSpec) -> dict[str, int]:
        """By default Podman 4 asks for a million processes, and fails if its own limit is lower."""
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        return {
            **spec.ulimits,
            "nproc": PROCESSES
            if hard == resource.RLIM_INFINITY
            else min(hard, PROCESSES),
        }

    def user_namespace(self, spec: SandboxSpec) -> str:
        return "keep-id" if spec.user.uid_map else ""

    def creating(self, spec: SandboxSpec) -> AbstractContextManager[None]:
        """One at a time: for `keep-id` Podman calls a library that is not safe in threads (shadow's libsubid), and two
        creates at once can leave a container without root's id, which then does not start (seen with 5.4)."""
        if self.user_namespace(spec):
            return resources.locked(_own_files() / "podman-create.lock")
        return nullcontext()

    def rootless_user(self, uid: int, gid: int) -> User:
        """With `keep-id` the caller has the same id inside; all other ids are subordinate ones."""
        return User(uid, gid, (IdMap(uid, uid),), (IdMap(gid, gid),))

    def own_namespaces(self) -> frozenset[str]:
        """On cgroup v1 every container stays in the host's cgroup namespace, whatever the request says (4.3, 5.4)."""
        return OWN_NAMESPACES if _unified() else OWN_NAMESPACES - {"cgroup"}

    def claimed_namespaces(self, config: Mapping[str, Any]) -> frozenset[str] | None:
        own = {
            "ipc": config.get("IpcMode") in ("private", "shareable"),
            "pid": config.get("PidMode") == "private",
            "uts": config.get("UTSMode") == "private",
            "cgroup": config.get("CgroupnsMode") in ("private", "")
            and _unified(),  # empty: its default
        }
        return frozenset(name for name, private in own.items() if private)


def _stacked_profiles(loaded: str = "/sys/kernel/security/apparmor/profiles") -> bool:
    """Where crun has its own AppArmor profile (Debian 13, Ubuntu 24.04), Podman's is stacked on it. Then no process of
    a container may signal another, so nothing inside could be killed, not even at a deadline. What Podman's profile
    forbids, a sandbox cannot do anyway: it lacks the capabilities and system calls."""
    return any(line.startswith("crun ") for line in (read(loaded) or "").splitlines())


def _unified() -> bool:
    return os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def _own_files() -> Path:
    try:
        return resources.cache_dir()
    except OSError:  # the home directory is not writable
        return resources.own_directory(
            Path(tempfile.gettempdir(), f"belljar-{os.geteuid()}")
        )


def _profile_path(text: str) -> Path:
    return (
        _own_files() / f"seccomp-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"
    )


def _write_profile(text: str) -> None:
    """Renamed into place once complete: Podman reads it when the container starts."""
    path = _profile_path(text)
    if not path.is_file() or path.read_text() != text:
        resources.write_whole(path, text)
