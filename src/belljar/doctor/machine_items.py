"""Checks of this machine: directories, workspace ownership, kernel features, disk space."""

from __future__ import annotations

import ctypes
import os
import shutil
import tempfile
from pathlib import Path

from belljar import resources
from belljar.doctor.check import Check, first_line
from belljar.errors import BelljarError
from belljar.host import Host
from belljar.limits import Limits
from belljar.patience import patience
from belljar.sandbox import scratch
from belljar.sandbox.init_file import files_root, forbids_execution
from belljar.syscalls import LANDLOCK_CREATE_RULESET, syscall
from belljar.workspace import idmap, uids

LOW_DISK = 1 << 30
LOW_RUN = 16 << 20
LEAST_STATE = 1 << 20  # the least room for an audit trail and staged changes
_LANDLOCK_VERSION = 1  # the flag that asks for the version
_KEEPS_APART = 2  # the init does not use version 1: it forbids commands to move files between directories
_SIGNALS_ARE_SCOPED = 6  # from this version on commands cannot signal each other

LANDLOCK = "landlock"
RUN_DIRECTORY, OTHER_RUN_DIRECTORY = (
    "run directory",
    "set BELLJAR_RUN to a directory of your own",
)


def checks(run_root: Path, workspace: str) -> list[Check]:
    return [
        run_directory(run_root),
        owner_mapping(run_root, workspace),
        user_ids(run_root),
        own_files(workspace),
        landlock(),
        user_namespaces(),
        crash_handler(),
        default_limits(),
    ]


def run_directory(root: Path) -> Check:
    name, fix = RUN_DIRECTORY, OTHER_RUN_DIRECTORY
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root):
            pass
        files = files_root(root)
    except OSError as error:
        return Check(name, False, f"{root}: {error.strerror}", fix)
    if forbids_execution(files):
        detail = f"{root} and {files} are mounted noexec, so no sandbox can start"
        return Check(
            name,
            False,
            detail,
            "set BELLJAR_RUN to a directory whose file system may execute programs",
        )
    if files != root:
        return Check(name, True, f"{root} (noexec: the init is in {files})")
    return Check(name, True, str(root))


def state_directory(host: Host) -> Check:
    """Writes a file: on a full disk directories can still be created."""
    name = "state directory"
    fix = "make it writable and give it room, or set BELLJAR_STATE to a directory of your own"
    try:
        root = host.state_root
        with tempfile.TemporaryFile(dir=root) as file:
            file.write(bytes(LEAST_STATE))
            os.fsync(file.fileno())
    except BelljarError as error:
        return Check(name, False, str(error), fix)
    except OSError as error:
        detail = f"{root}: {error.strerror}: no audit trail is written, and changes cannot be staged"
        return Check(name, False, detail, fix)
    return Check(name, True, str(root))


def trail_places(host: Host) -> list[Check]:
    """The places besides its file that the trail's records go to. They are asked, and get no record."""
    name = "trail"
    try:
        audit = host.audit
    except BelljarError as error:
        return [
            Check(
                name,
                False,
                str(error),
                "set BELLJAR_AUDIT and BELLJAR_TRAIL so, or leave them unset",
            )
        ]
    found = []
    for place in audit.to:
        try:
            place.send([])
            found.append(Check(name, True, f"{place.name} takes its records"))
        except OSError as error:
            fix = "start it (the collector: `belljar audit collect`)"
            found.append(Check(name, not audit.required, str(error), fix))
    return found


def owner_mapping(run_root: Path, workspace: str) -> Check:
    name = "workspace ownership"
    if os.geteuid() != 0:
        return Check(name, True, f"commands run as you (uid {os.geteuid()})")
    try:
        _try_idmap(run_root, workspace)
    except OSError as error:
        detail = f"root's files in {os.path.abspath(workspace)} cannot be mapped to another user: {error.strerror}"
        fix = "use Linux 5.12 or newer and ext4, xfs, btrfs or tmpfs; or a workspace that does not belong to root"
        return Check(name, False, detail, fix)
    return Check(
        name, True, "root's files are mapped to an unprivileged user (idmapped mount)"
    )


def _try_idmap(run_root: Path, workspace: str) -> None:
    run_root.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # Not a TemporaryDirectory: if unmounting fails it would delete the mounted files.
    target = Path(tempfile.mkdtemp(dir=run_root, prefix="doctor-"))
    try:
        idmap.mount_exchanged(descriptor, target, (0, 1000), (0, 1000))
    finally:
        idmap.unmount(target)
        target.rmdir()
        os.close(descriptor)


def user_ids(run_root: Path) -> Check:
    name = "user ids"
    if os.geteuid() != 0:
        return Check(
            name, True, "sandboxes run with your user id and share your per-user quotas"
        )
    try:
        with tempfile.TemporaryDirectory(dir=run_root, prefix="doctor-") as directory:
            uids.reserve(Path(directory))
    except (BelljarError, OSError) as error:
        fix = f"set {uids.SETTING} to a range that no account has, for example 70000-99999"
        return Check(name, False, str(error), fix)
    first, last = uids.allowed()
    return Check(
        name,
        True,
        f"each sandbox gets its own user id from {first} to {last}, which no account has",
    )


def own_files(workspace: str) -> Check:
    """Commands can change their workspace. If Belljar's code is in it, they can change what runs on the host."""
    name = "belljar's own files"
    own = {
        Path(__file__).resolve().parent.parent,
        resources.directory("policies").resolve(),
    }
    inside = sorted(
        str(path) for path in own if path.is_relative_to(os.path.realpath(workspace))
    )
    if not inside:
        return Check(name, True, "outside the workspace")
    detail = (
        f"inside the workspace, where commands can change them: {', '.join(inside)}"
    )
    return Check(
        name, True, detail, "install Belljar elsewhere, or choose another workspace"
    )


def landlock() -> Check:
    name, version = LANDLOCK, landlock_version()
    if version >= _SIGNALS_ARE_SCOPED:
        return Check(
            name, True, f"version {version}: commands of one sandbox are kept apart"
        )
    if version >= _KEEPS_APART:
        fix = "Linux 6.12 or newer keeps their signals apart too"
        return Check(
            name,
            True,
            f"version {version}: commands of one sandbox are kept apart, except for signals",
            fix,
        )
    detail = "not available: commands in one sandbox can reach each other's processes (nothing outside it)"
    return Check(
        name, True, detail, "use Linux 5.19 or newer and boot with landlock among lsm=…"
    )


def landlock_version() -> int:
    if os.uname().machine not in ("x86_64", "aarch64"):
        return 0
    try:
        return syscall(
            LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), _LANDLOCK_VERSION
        )
    except OSError:
        return 0


def user_namespaces() -> Check:
    name = "user namespaces"
    restricted = (
        first_line("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1"
    )
    forbidden = first_line("/proc/sys/kernel/unprivileged_userns_clone") == "0"
    if os.geteuid() == 0 or not (restricted or forbidden):
        return Check(name, True, "available")
    setting = (
        "apparmor_restrict_unprivileged_userns=0"
        if restricted
        else "unprivileged_userns_clone=1"
    )
    detail = "restricted for ordinary users: a rootless engine may not start"
    return Check(name, True, detail, f"`sudo sysctl kernel.{setting}`")


def crash_handler() -> Check:
    """If the core pattern is a pipe, the kernel runs that program on the host, whatever a container's core limit is."""
    pattern = first_line("/proc/sys/kernel/core_pattern")
    detail = "crashes in a sandbox leave nothing on this machine"
    if pattern.startswith("|"):
        detail = f"crashes in a sandbox are passed to this machine's crash handler ({pattern[1:].split()[0]})"
    return Check("crash handler", True, detail)


def default_limits() -> Check:
    limits = Limits()
    sizes = ", ".join(
        f"{name} {getattr(limits, name) >> 20} MiB"
        for name in ("memory", "tmp", "home", "shm")
    )
    stretch = f"; deadlines × {patience():g}" if patience() != 1 else ""
    detail = f"{limits.cpus:g} cpus, {limits.pids} processes, {sizes}, files up to {limits.fsize >> 30} GiB{stretch}"
    return Check("limits by default", True, detail)


def scratch_volume(binds: bool) -> Check:
    reason = (
        scratch.possible()
        if binds
        else "the engine does not share this machine's files"
    )
    where = f"in memory: {reason}" if reason else "on a volume on disk (4 GiB; --disk)"
    return Check("scratch", True, f"/tmp and home are {where}")


def disk(run_root: Path, data_root: str) -> Check:
    """Free space for images and sandboxes, and in the run directory, which is often in memory."""
    images = (
        data_root
        if Path(data_root or "/none").is_dir()
        else "/var/lib"
        if Path("/var/lib").is_dir()
        else "/"
    )
    places = (
        (images, LOW_DISK, "`docker image prune`, `belljar prune`, or more disk"),
        (str(run_root), LOW_RUN, "or set BELLJAR_RUN to a place that has it"),
    )
    for path, least, fix in places:
        try:
            free, nodes = shutil.disk_usage(path).free, os.statvfs(path)
        except OSError:
            continue
        if free < least or (nodes.f_files and nodes.f_favail < 1000):
            detail = (
                f"{path}: {free / (1 << 20):.0f} MiB and {nodes.f_favail} files left"
            )
            return Check("disk space", False, detail, f"make room: {fix}")
    return Check(
        "disk space",
        True,
        f"{shutil.disk_usage(images).free / (1 << 30):.1f} GiB free in {images}",
    )
