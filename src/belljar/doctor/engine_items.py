"""Checks of the engine, from its description of itself."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from belljar.doctor.check import Check, first_line
from belljar.engines.base import Description, Engine
from belljar.engines.capabilities import Capabilities
from belljar.engines.docker.hosts import podman_start
from belljar.engines.spec import OWN_NAMESPACES
from belljar.errors import BelljarError

INSTALL = "install and start Docker 20.10 or newer (`make engine` does it on Debian) or Podman, or set DOCKER_HOST"
INSTALL_PODMAN = f"install Podman 4 or newer and start its service (`{podman_start()}`), or set DOCKER_HOST"
# Pattern of an error message → what to do.
REMEDIES = (
    (r"^no container engine", "do one of the two; each engine's own reason is below"),
    (
        r"you may not use \S*podman",
        f"`{podman_start()}` starts one of your own; or use sudo",
    ),
    (
        r"you may not use",
        "`sudo usermod -aG docker $USER`, then log in again; or use sudo",
    ),
    (
        r"speaks api|runs \w+ containers",
        "update the engine: Docker 20.10, Podman 4 or newer, with Linux containers",
    ),
    (
        r"did not answer in time",
        "is the machine overloaded? BELLJAR_PATIENCE=5 waits longer; else restart the engine",
    ),
    (r"context", "`docker context use default`, or set DOCKER_HOST"),
    (
        r"certificates|tls|ssl",
        "check DOCKER_CERT_PATH: it must hold ca.pem, cert.pem and key.pem",
    ),
    (r"no engine is called", "set BELLJAR_ENGINE to one of those named"),
    (
        r"init.*permission denied|noexec",
        "set BELLJAR_RUN to a directory whose file system may execute programs",
    ),
    (
        r"ordinary user",
        "do once what the message says, or use rootless Podman or Docker",
    ),
    (
        r"hybrid mode not supported",
        'crun refuses control groups of both versions: use runc (leave --runtime out; Podman: runtime="runc" in '
        "containers.conf, [engine]), or --engine oci, which hides one of them from it",
    ),
    (
        r"unknown.*runtime",
        "leave --runtime out, or name it to Docker: `runtimes` in /etc/docker/daemon.json",
    ),
    (
        r"cgroup|memory limit|cpu limit|process limit|swap",
        "see which limits `belljar doctor` finds",
    ),
    (r"range of cpus", "give --cpus no more than that"),
    (
        r"bind source path does not exist|something else than \S+ was mounted",
        "the engine does not see this process's mounts (is it in a container, or under systemd's PrivateMounts=?): run "
        "both in one mount namespace, or use BELLJAR_ENGINE=oci",
    ),
    (r"no space left", "make room on the disk"),
    (
        r"selinux|label",
        "BELLJAR_SELINUX=type:container_t (or =disable) sets the label of sandboxes",
    ),
)
DOCTOR_HINT = r"[;.] (?:is it running\? )?`belljar doctor` [a-z]+(?: [a-z]+)*"  # superfluous in the doctor's own report
USER_DELEGATION = (
    "let systemd give you the controllers: `systemctl edit user@.service` with [Service] Delegate=cpu cpuset io memory "
    "pids, then log in again"
)


def remedy(error: BelljarError) -> str:
    return known_remedy(error) or "fix what the message names; nothing runs until then"


def known_remedy(error: BelljarError) -> str | None:
    text = str(error).lower()
    return next((fix for pattern, fix in REMEDIES if re.search(pattern, text)), None)


def unavailable(error: BelljarError, engine_name: str = "auto") -> list[Check]:
    """Why the engine cannot be used, and why the others cannot."""
    text = str(error).lower()
    install = INSTALL_PODMAN if engine_name == "podman" else INSTALL
    fix = (
        install
        if "cannot be reached" in text and "you may not" not in text
        else remedy(error)
    )
    others = [
        re.sub(DOCTOR_HINT, "", message) for message in getattr(error, "others", ())
    ]
    return [
        Check("engine", False, re.sub(DOCTOR_HINT, "", str(error)), fix),
        *(
            Check(
                "another engine",
                True,
                message,
                "to use this engine instead, do what it says",
            )
            for message in others
        ),
    ]


def checks(engine: Engine, about: Description) -> list[Check]:
    return [
        Check(
            "engine",
            True,
            f"{engine.name} {about.version}, {engine.machine}, at {engine.host}",
        ),
        _link(engine),
        _staged(engine, root=os.geteuid() == 0),
        *judge(about, _host_has_swap(), engine.capabilities),
        _namespaces(engine),
    ]


def judge(about: Description, host_has_swap: bool, can: Capabilities) -> list[Check]:
    """Checks that need only what the engine says of itself."""
    return [
        *_limits(about, host_has_swap),
        _seccomp(about),
        _users(about, can),
        _access_control(about),
        _storage(about),
        *(Check(each.name, each.ok, each.detail, each.fix) for each in about.findings),
        *(Check("does without", True, feature) for feature in about.does_without),
    ]


def _link(engine: Engine) -> Check:
    socket = "socket: the engine shares this machine's files"
    return Check(
        "link",
        True,
        socket
        if engine.capabilities.link == "socket"
        else "bridged through the engine's exec",
    )


def _staged(engine: Engine, *, root: bool) -> Check:
    if not engine.capabilities.overlays:
        return Check(
            "staged workspaces",
            True,
            "copied into the sandbox's memory and out again, within a bound",
        )
    mounted = (
        "an overlay that Belljar mounts"
        if root
        else "an overlay that the engine mounts; checkpoints are copies"
    )
    return Check("staged workspaces", True, mounted)


def _limits(about: Description, host_has_swap: bool) -> Iterator[Check]:
    detail = f"version {about.cgroup_version}, driver {about.cgroup_driver}"
    ok = about.cgroup_driver != "none"
    yield Check("cgroups", ok, detail, "" if ok else _limits_fix(about))
    for name, key in (
        ("memory limit", "memory"),
        ("process limit", "pids"),
        ("cpu limit", "cpus"),
    ):
        ok = bool(about.can_limit.get(key))
        yield Check(
            name,
            ok,
            "enforceable" if ok else "not supported",
            "" if ok else _limits_fix(about),
        )
    if about.can_limit.get("swap"):
        yield Check("swap limit", True, "enforceable")
    elif host_has_swap:
        fix = "boot with swapaccount=1 or turn swap off"
        yield Check(
            "swap limit", False, "not accounted for, and this machine has swap", fix
        )
    else:
        yield Check("swap limit", True, "not accounted for, but there is no swap")


def _limits_fix(about: Description) -> str:
    if not about.rootless:
        return "enable the cgroup controllers (mount cgroups, or boot with cgroup_enable=memory) and restart the engine"
    if about.cgroup_version == "1":
        return "a rootless engine needs cgroup v2 for limits: boot with systemd.unified_cgroup_hierarchy=1"
    return USER_DELEGATION


def _seccomp(about: Description) -> Check:
    if about.seccomp:
        return Check("seccomp", True, "the engine can filter system calls")
    fix = "use a kernel with CONFIG_SECCOMP_FILTER and an engine built with seccomp"
    return Check("seccomp", False, "the engine cannot filter system calls", fix)


def _users(about: Description, can: Capabilities) -> Check:
    if about.user_remapping:
        detail = "userns-remap is on: files in the workspace would belong to the remapped users"
        return Check(
            "users",
            False,
            detail,
            "remove userns-remap from the engine's configuration",
        )
    detail = {
        (
            True,
            True,
        ): "each sandbox has a user namespace: you are you outside, others your subordinate ids",
        (
            True,
            False,
        ): "each sandbox has its own user namespace: its users have no rights outside",
        (False, True): "rootless: root inside is your ordinary user outside",
        (
            False,
            False,
        ): "user ids inside are this machine's; commands never run as root",
    }[can.user_namespaces, about.rootless]
    return Check("users", True, detail)


def _access_control(about: Description) -> Check:
    name = "apparmor or selinux"
    if (
        about.access_control == "selinux"
        or first_line("/sys/fs/selinux/enforce") == "1"
    ):
        fix = "if the workspace cannot be read inside: BELLJAR_SELINUX=disable, or label it container_file_t"
        return Check(name, True, "selinux, enforcing", fix)
    if about.access_control_gap:
        detail = f"unconfined: {about.access_control_gap}; the other protections do not need it"
        fix = "for AppArmor beside them use Docker, or disable the profile /etc/apparmor.d/crun"
        return Check(name, True, detail, fix)
    return Check(
        name, True, about.access_control or "none; the other protections do not need it"
    )


def _storage(about: Description) -> Check:
    if about.storage != "vfs":
        return Check("storage", True, about.storage)
    detail = "vfs copies the whole image for each sandbox, so every start is slow"
    return Check(
        "storage",
        False,
        detail,
        "use the overlay2 driver on a file system that supports it",
    )


def _namespaces(engine: Engine) -> Check:
    missing = ", ".join(sorted(OWN_NAMESPACES - engine.capabilities.own_namespaces))
    if not missing:
        return Check("namespaces", True, "each sandbox has its own")
    detail = f"{engine.name} shares this machine's {missing} namespace here; names of control groups can be seen inside"
    return Check(
        "namespaces",
        True,
        detail,
        "boot with cgroup v2 (systemd.unified_cgroup_hierarchy=1), or use Docker",
    )


def _host_has_swap() -> bool:
    try:
        return len(Path("/proc/swaps").read_text().splitlines()) > 1
    except OSError:
        return True
