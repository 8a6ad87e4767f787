"""Docker's own form of its API, with a method for each point where another engine with that API differs."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

from belljar.engines.seccomp import profile_text
from belljar.engines.spec import OWN_NAMESPACES, IdMap, Mount, SandboxSpec, User

if TYPE_CHECKING:
    from belljar.engines.docker.client import Client


class Dialect:
    name = "docker"
    name_prefixes: tuple[str, ...] = ()
    """What the engine puts before the names of images without a registry."""
    works_remotely = True
    """Whether its own report suffices on another machine, whose kernel cannot be checked."""
    copies_links = True
    """Whether it copies a link out of a container as a link, not as its target."""
    # These fields of the HostConfig must be empty: we ask for none of them.
    extras: tuple[str, ...] = (
        "Privileged",
        "CapAdd",
        "Devices",
        "DeviceRequests",
        "DeviceCgroupRules",
        "GroupAdd",
        "Binds",
        "VolumesFrom",
        "PortBindings",
        "PublishAllPorts",
        "ExtraHosts",
        "Sysctls",
        "OomKillDisable",
    )

    def security_options(self, spec: SandboxSpec) -> list[str]:
        label = [f"label={spec.security_label}"] if spec.security_label else []
        return ["no-new-privileges", f"seccomp={self.seccomp(spec)}", *label]

    def access_control_gap(self) -> str:
        """Why sandboxes cannot use AppArmor although the engine has it."""
        return ""

    def can_limit(
        self, client: Client, info: Mapping[str, Any]
    ) -> dict[str, bool | None]:
        keys = {
            "memory": "MemoryLimit",
            "swap": "SwapLimit",
            "pids": "PidsLimit",
            "cpus": "CpuCfsQuota",
        }
        return {name: info.get(key) for name, key in keys.items()}

    def seccomp(self, spec: SandboxSpec) -> str:
        return self.profile_option(profile_text(spec.seccomp, spec.machine))

    def profile_option(self, text: str) -> str:
        """The form in which the engine takes a profile."""
        return text

    def profile_name(self, option: str, machine: str) -> str:
        """Which of our profiles this security option holds."""
        names = (
            name
            for name in ("default", "debug")
            if option == self.profile_option(profile_text(name, machine))
        )
        return next(names, "another profile")

    def tmpfs_options(self, mount: Mount) -> str:
        return ",".join(
            ["rw", *(["exec"] if mount.executable else []), *mount.tmpfs_options()]
        )

    def ignores_ulimits(self, rootless: bool) -> bool:
        return False

    def ulimits(self, spec: SandboxSpec) -> dict[str, int]:
        return spec.ulimits

    def user_namespace(self, spec: SandboxSpec) -> str:
        return ""

    def creating(self, spec: SandboxSpec) -> AbstractContextManager[None]:
        """Held while the engine creates a container."""
        return nullcontext()

    def rootless_user(self, uid: int, gid: int) -> User:
        """Its user namespace maps root inside to the caller, and all other ids to subordinate ones."""
        return User(0, 0, (IdMap(0, uid),), (IdMap(0, gid),), root_inside=True)

    def own_namespaces(self) -> frozenset[str]:
        return OWN_NAMESPACES

    def claimed_namespaces(self, config: Mapping[str, Any]) -> frozenset[str] | None:
        own = {
            "ipc": config.get("IpcMode") == "private",
            "pid": config.get("PidMode") == "",
            "uts": config.get("UTSMode") == "",
            "cgroup": config.get("CgroupnsMode") == "private",
        }
        return frozenset(name for name, private in own.items() if private)
