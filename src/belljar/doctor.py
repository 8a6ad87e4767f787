"""What this machine's engine can and cannot enforce, item by item, and how to mend it.

Most items are read off the engine's own description; the last ones are tried for real: an idmapped mount, and a
sandbox that is launched, verified against the kernel and taken away again.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio

from belljar import engines, resources
from belljar import host as hosts
from belljar.errors import BelljarError
from belljar.images import catalog
from belljar.sandbox import rundir
from belljar.workspace import idmap, uids

if TYPE_CHECKING:
    from belljar.engines.base import Description, Engine

LOW_DISK = 1 << 30
INSTALL_ENGINE = "install and start Docker 20.10 or newer (`make engine` does it on Debian), or set DOCKER_HOST"


@dataclass(frozen=True)
class Check:
    name: str
    ok: bool
    detail: str
    fix: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(engine: Engine | None = None, workspace: str = ".") -> list[Check]:
    """Every check there is, in the order a person would mend things. Blocking."""
    checks = [*_host(workspace)]
    try:
        engine = engine or engines.connect()
        about = engine.describe()
    except BelljarError as error:
        return [Check("engine", False, str(error), INSTALL_ENGINE), *checks]
    checks = [_engine(engine, about), _link(engine), *judge(about, _host_has_swap()), *checks, *_parts(engine)]
    if all(check.ok for check in checks if check.name in ("init", "image base", "run directory")):
        checks.append(_probe())
    return checks


def judge(about: Description, host_has_swap: bool) -> list[Check]:
    """What the engine's description of itself means for us."""
    return [
        *_limits(about, host_has_swap),
        Check(
            "seccomp",
            bool(about.seccomp),
            "the engine can filter system calls" if about.seccomp else "the engine cannot filter system calls",
            "use a kernel with CONFIG_SECCOMP_FILTER and an engine built with seccomp",
        ),
        Check("rootless engine", True, "yes: its root is an ordinary user outside" if about.rootless else "no"),
        Check(
            "user remapping",
            not about.user_remapping,
            "userns-remap is on: files in the workspace would belong to the remapped users"
            if about.user_remapping
            else "off; commands run unprivileged anyway",
            "remove userns-remap from the engine's configuration",
        ),
        Check("apparmor or selinux", True, about.access_control or "none; the other walls stand without it"),
        _storage(about),
    ]


def _limits(about: Description, host_has_swap: bool) -> Iterator[Check]:
    detail = f"version {about.cgroup_version}, driver {about.cgroup_driver}"
    yield Check("cgroups", about.cgroup_driver != "none", detail, "mount cgroups and restart the engine")
    for name, key in (("memory limit", "memory"), ("process limit", "pids"), ("cpu limit", "cpus")):
        fine = bool(about.can_limit.get(key))
        yield Check(name, fine, "enforceable" if fine else "not supported", "enable the cgroup controller")
    if about.can_limit.get("swap"):
        yield Check("swap limit", True, "enforceable")
    else:
        detail = "not accounted for" + (", and this machine has swap" if host_has_swap else ", but there is no swap")
        yield Check("swap limit", not host_has_swap, detail, "boot with swapaccount=1 or turn swap off")


def _storage(about: Description) -> Check:
    fine = about.storage != "vfs"
    detail = about.storage if fine else "vfs copies the whole image for each sandbox, so every start is slow"
    return Check("storage", fine, detail, "use the overlay2 driver on a file system that supports it")


def _engine(engine: Engine, about: Description) -> Check:
    return Check("engine", True, f"{engine.name} {about.version}, {engine.machine}, at {engine.host}")


def _link(engine: Engine) -> Check:
    way = (
        "socket: the engine shares this machine's files" if engine.shares_files else "bridged through the engine's exec"
    )
    return Check("link", True, way)


def _host(workspace: str) -> Iterator[Check]:
    yield _run_directory()
    yield _owner_mapping(workspace)
    yield _user_ids()
    yield _own_files(workspace)
    yield _disk()
    yield _crash_handler()


def _run_directory() -> Check:
    root = rundir.run_root()
    try:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=root):
            return Check("run directory", True, str(root))
    except OSError as error:
        return Check("run directory", False, f"{root}: {error.strerror}", "set BELLJAR_RUN to a directory of your own")


def _owner_mapping(workspace: str) -> Check:
    name = "workspace ownership"
    if os.geteuid() != 0:
        return Check(name, True, f"commands run as you (uid {os.geteuid()})")
    try:
        _try_idmap(workspace)
    except OSError as error:
        detail = f"root's files in {os.path.abspath(workspace)} cannot be mapped to another user: {error.strerror}"
        return Check(
            name, False, detail, "use Linux 5.12 or newer and ext4, xfs, btrfs or tmpfs; or a workspace not of root's"
        )
    return Check(name, True, "root's files are mapped to an unprivileged user (idmapped mount)")


def _user_ids() -> Check:
    name = "user ids"
    if os.geteuid() != 0:
        return Check(name, True, "your sandboxes share your uid, and quotas that the kernel counts by user")
    try:
        with tempfile.TemporaryDirectory(dir=rundir.run_root(), prefix="doctor-") as directory:
            uids.reserve(Path(directory))
    except (BelljarError, OSError) as error:
        return Check(
            name, False, str(error), f"set {uids.SETTING} to a range that no account has, for example 70000-99999"
        )
    first, last = uids.allowed()
    return Check(name, True, f"each sandbox gets one of its own, of {first} to {last}, that no account has")


def _own_files(workspace: str) -> Check:
    """Nothing can stop a command from changing its workspace, and what is changed in our own files runs on the host."""
    own = {Path(__file__).resolve().parent, resources.directory("policies").resolve()}
    inside = sorted(str(path) for path in own if path.is_relative_to(os.path.realpath(workspace)))
    if not inside:
        return Check("belljar's own files", True, "outside the workspace")
    return Check(
        "belljar's own files", True, f"inside the workspace, where commands can change them: {', '.join(inside)}"
    )


def _try_idmap(workspace: str) -> None:
    rundir.run_root().mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    # Not a TemporaryDirectory, which would delete what is mounted there should the unmounting fail.
    target = Path(tempfile.mkdtemp(dir=rundir.run_root(), prefix="doctor-"))
    try:
        idmap.mount_exchanged(descriptor, target, (0, 1000), (0, 1000))
    finally:
        idmap.unmount(target)
        target.rmdir()
        os.close(descriptor)


def _disk() -> Check:
    free = shutil.disk_usage("/var/lib" if Path("/var/lib").is_dir() else "/").free
    return Check(
        "disk space",
        free > LOW_DISK,
        f"{free / (1 << 30):.1f} GiB free",
        "make room: `docker image prune` or more disk",
    )


def _crash_handler() -> Check:
    """A pattern with a pipe is run by the kernel, on the host, whatever limit a container has on core files."""
    pattern = _first_line("/proc/sys/kernel/core_pattern")
    if not pattern.startswith("|"):
        return Check("crash handler", True, "crashes inside leave nothing on the host")
    return Check("crash handler", True, f"crashes inside are seen by the host's handler ({pattern[1:].split()[0]})")


def _host_has_swap() -> bool:
    try:
        return len(Path("/proc/swaps").read_text().splitlines()) > 1
    except OSError:
        return True


def _first_line(path: str) -> str:
    try:
        return Path(path).read_text().partition("\n")[0]
    except OSError:
        return ""


def _parts(engine: Engine) -> Iterator[Check]:
    try:
        binary = resources.init_binary(engine.machine)
        yield Check("init", True, f"{binary.name}, {binary.stat().st_size >> 10} KiB")
    except BelljarError as error:
        yield Check("init", False, str(error), "run `make setup`, or install the wheel")
    reference = catalog.reference("base")
    there = engine.image(reference) is not None
    detail = reference if there else "not built yet; the first run builds it"
    yield Check("image base", there, detail, "run `belljar images build base`")


def _probe() -> Check:
    """A sandbox as every command gets it: launching it verifies each protection against the kernel."""
    name = "a real sandbox"
    with tempfile.TemporaryDirectory(prefix="belljar-doctor-") as workspace:
        try:
            anyio.run(_launch_and_destroy, workspace)
        except BelljarError as error:
            return Check(name, False, str(error), "mend what is named; nothing runs until then")
    return Check(name, True, "launched; user, capabilities, seccomp, limits, network and root file system verified")


async def _launch_and_destroy(workspace: str) -> None:
    from belljar.sandbox.sandbox import Plan, Sandbox

    sandbox = await Sandbox.launch(Plan(workspace), hosts.default())
    await sandbox.destroy()
