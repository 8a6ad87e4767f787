"""Where Podman's spelling of Docker's API differs (seen on 4.3 and 5.x).

It wants the seccomp profile as a file, masks by an option instead of a list, refuses tmpfs options that it does not
know, and describes namespaces and mounts in words of its own: there the kernel is the witness.
"""

from __future__ import annotations

import hashlib
import os
import resource
import tempfile
from collections.abc import Mapping
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

PROCESSES = 1 << 15  # the limit that counts is the one of the cgroup


class PodmanDialect(Dialect):
    name = "podman"
    names_begin = ("localhost/", "docker.io/library/", "docker.io/")
    reaches_far = False
    copies_links = False
    extras = tuple(name for name in Dialect.extras if name != "Binds")

    def security_options(self, spec: SandboxSpec) -> list[str]:
        apparmor = ["apparmor=unconfined"] if _stacked_profiles() else []
        return [*super().security_options(spec), f"mask={':'.join(spec.masked_paths)}", *apparmor]

    def access_control_gap(self) -> str:
        return "crun's own AppArmor profile forbids every signal inside" if _stacked_profiles() else ""

    def can_limit(self, client: Client, info: Mapping[str, Any]) -> dict[str, bool | None]:
        """Its Docker API denies what it does with cgroup v2 (5.4), and promises what it cannot do for an ordinary user
        with v1 (4.3); its own names the controllers."""
        rootless = "name=rootless" in (info.get("SecurityOptions") or [])
        if str(info.get("CgroupVersion")) != "2" and not rootless:
            return super().can_limit(client, info)
        about = client.ask("asking the engine about itself", "GET", "/v4.0.0/libpod/info")
        has = set(about["host"].get("cgroupControllers") or ())
        return {"memory": "memory" in has, "swap": "memory" in has, "pids": "pids" in has, "cpus": "cpu" in has}

    def seccomp(self, spec: SandboxSpec) -> str:
        _write_profile(profile_text(spec.seccomp, spec.machine))
        return super().seccomp(spec)

    def profile_option(self, text: str) -> str:
        return str(_profile_path(text))

    def tmpfs_options(self, mount: Mount) -> str:
        mode = 0o1777 if mount.owner is not None else mount.mode  # it cannot be given to the user inside
        return super().tmpfs_options(replace(mount, mode=mode, inodes=0, owner=None))

    def forgets_ulimits(self, rootless: bool) -> bool:
        """A rootless Podman has its own, whatever its API is given (5.4)."""
        return rootless

    def ulimits(self, spec: SandboxSpec) -> dict[str, int]:
        """Podman 4 asks for a million processes by itself, and fails where its own limit is lower."""
        hard = resource.getrlimit(resource.RLIMIT_NPROC)[1]
        return {**spec.ulimits, "nproc": PROCESSES if hard == resource.RLIM_INFINITY else min(hard, PROCESSES)}

    def user_namespace(self, spec: SandboxSpec) -> str:
        return "keep-id" if spec.user.uid_map else ""

    def rootless_user(self, uid: int, gid: int) -> User:
        """With `keep-id` the caller has the same id inside, and everybody else a subordinate one."""
        return User(uid, gid, (IdMap(uid, uid),), (IdMap(gid, gid),))

    def own_namespaces(self) -> frozenset[str]:
        """On cgroup v1 it leaves every container in the host's cgroup namespace, whatever is asked (4.3, 5.4)."""
        return OWN_NAMESPACES if _unified() else OWN_NAMESPACES - {"cgroup"}

    def claimed_namespaces(self, config: Mapping[str, Any]) -> frozenset[str] | None:
        own = {
            "ipc": config.get("IpcMode") in ("private", "shareable"),
            "pid": config.get("PidMode") == "private",
            "uts": config.get("UTSMode") == "private",
            "cgroup": config.get("CgroupnsMode") in ("private", "") and _unified(),  # not given: its default
        }
        return frozenset(name for name, private in own.items() if private)


def _stacked_profiles(loaded: str = "/sys/kernel/security/apparmor/profiles") -> bool:
    """Where crun has an AppArmor profile of its own (Debian 13, Ubuntu 24.04) Podman's is stacked upon it, and then
    no process of a container may signal another: nothing could be ended inside, not even by a deadline. What that
    profile forbids, a sandbox cannot do for want of capabilities and system calls."""
    return any(line.startswith("crun ") for line in (read(loaded) or "").splitlines())


def _unified() -> bool:
    return os.path.exists("/sys/fs/cgroup/cgroup.controllers")


def _profile_path(text: str) -> Path:
    try:
        place = resources.cache_dir()
    except OSError:  # a home that cannot be written to
        place = resources.own_directory(Path(tempfile.gettempdir(), f"belljar-{os.geteuid()}"))
    return place / f"seccomp-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _write_profile(text: str) -> None:
    """Written whole, by rename: Podman reads it when the container starts."""
    path = _profile_path(text)
    if not path.is_file() or path.read_text() != text:
        descriptor, new = tempfile.mkstemp(dir=path.parent, prefix=".seccomp-")
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.rename(new, path)
