"""The program that makes containers: runc, or another that takes the same arguments (crun, runsc)."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path

from belljar import environment as variables
from belljar.engines.kernel_facts import read
from belljar.engines.oci import cgroups
from belljar.engines.spec import has_own_kernel
from belljar.errors import EngineError, EngineUnavailable
from belljar.patience import about_to_wait, stretched
from belljar.records import record
from belljar.syscalls import closing

DEFAULT = "runc"
QUICKER = "crun"
"""A third of runc's processor time for a start. For ordinary users runc is taken: crun was not tried there."""
CGROUPS = "/sys/fs/cgroup"
APPARMOR = "/sys/kernel/security/apparmor/profiles"
START_SECONDS = 60.0  # usually 30 to 90 ms; more on a loaded machine
ANSWER_SECONDS = 10.0
LOG = "runtime.log"
ROOT = "root.json"
"""What rootless.py is to mount. Not an argument, since one holds at most 128 KiB."""
LITTLE = (
    256 << 10
)  # bytes; a runtime's state needs a tenth of it, and not every runtime reports a full disk
INSTALL = "install runc (Debian, Ubuntu, Fedora: the package `runc`)"
# gVisor applies our seccomp profile only with this option, and would put its own overlay over our root file system,
# which is an overlay already.
OPTIONS = {"runsc": ("--network=none", "--oci-seccomp", "--overlay2=none")}
GVISOR_STATE = "_sandbox:"  # follows the container's name in the name of its state file
UNTRIED = ("kata", "kata-runtime")


Entry = tuple[list[str], tuple[int, ...]]
"""The command through which to run the runtime, and the descriptors that it needs."""
ULIMITS = {
    "core": ("c", 512),
    "fsize": ("f", 512),
    "memlock": ("l", 1024),
    "nofile": ("n", 1),
}
"""Limit → the letter of the shell's `ulimit`, and its unit in bytes."""


def preferred() -> str:
    """The runtime to take where nobody chose one. Not crun where it has an AppArmor profile of its own (Debian 13,
    Ubuntu 24.04), in which no process of a container could signal another."""
    if os.geteuid() != 0 or _program(QUICKER) is None:
        return DEFAULT
    profiles = (read(APPARMOR) or "").splitlines()
    has_profile = any(line.startswith(f"{QUICKER} ") for line in profiles)
    return DEFAULT if has_profile else QUICKER


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(
        name, path="/usr/sbin:/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin"
    )


class Runtime:
    def __init__(self, name: str, root: Path, *, systemd: bool = False) -> None:
        self.name, self._systemd = name, systemd
        self.root = root / Path(name).name
        if self.kind in UNTRIED:
            raise EngineUnavailable(
                f"the runtime {name} was never tried with Belljar; use runc, crun or runsc"
            )
        found = _program(name)
        if found is None:
            how = INSTALL if self.kind == DEFAULT else "install it, or use runc"
            raise EngineUnavailable(
                f"the engine oci needs {name}, which is not installed: {how}"
            )
        self.program = os.path.realpath(found)

    @property
    def kind(self) -> str:
        return Path(self.name).name

    @property
    def own_kernel(self) -> bool:
        return has_own_kernel(self.name)

    def version(self) -> str:
        done = subprocess.run(
            [self.program, "--version"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=stretched(ANSWER_SECONDS),
        )
        return (done.stdout.splitlines() or ["?"])[0].strip()

    def begin(
        self,
        name: str,
        bundle: Path,
        ulimits: Mapping[str, int],
        entry: Entry = ([], ()),
    ) -> Starting:
        """Create and start, from the calling thread's mount namespace or where `entry` leads."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        log, pid_file = bundle / LOG, bundle / "pid"
        limited = (
            [] if self.own_kernel else _limited(ulimits)
        )  # they would limit the runtime's own kernel
        command = [*entry[0], *limited, *self._command(), "--log", str(log)]
        # PID 1 inherits these three, so none may be a pipe that we wait on.
        process = subprocess.Popen(
            [
                *command,
                "run",
                "--detach",
                "--bundle",
                str(bundle),
                "--pid-file",
                str(pid_file),
                name,
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=bundle,
            env=environment(),
            pass_fds=entry[1],
        )
        return Starting(self.kind, process, log, pid_file)

    def hidden(self) -> tuple[str, ...]:
        """Mount points to hide from crun: it refuses to run with control groups of both versions, although all limits
        come from version 1, which it supports."""
        return cgroups.unified_beside_version_1() if self.kind == "crun" else ()

    def readonly_paths(self) -> tuple[str, ...]:
        """What must be made read-only besides: with control groups version 1 crun leaves the directory writable in
        which it mounts them. Any user can make files there."""
        return (CGROUPS,) if self.kind == "crun" and cgroups.version() != "2" else ()

    def beside(self, name: str, process: Path) -> list[str]:
        """The command that runs what `process` describes beside PID 1."""
        return [*self._command(), "exec", "--process", str(process), name]

    def _command(self) -> list[str]:
        options = ["--systemd-cgroup"] if self._systemd else []
        return [
            self.program,
            "--root",
            str(self.root),
            *options,
            *OPTIONS.get(self.kind, ()),
        ]


@record
class Starting:
    """A runtime that is starting a sandbox."""

    kind: str
    process: subprocess.Popen[bytes]
    log: Path
    pid_file: Path

    def pid(self) -> int:
        """PID 1 of the sandbox, once it has started."""
        about_to_wait()
        cgroups.ease_joining(self.process.pid)
        in_time = _ends_within(self.process, stretched(START_SECONDS))
        if not in_time:
            self.process.send_signal(signal.SIGKILL)
        status = self.process.wait()
        if not in_time:
            raise EngineError(f"{self.kind} did not start the sandbox in time")
        if status:
            reason = _reason(self.log) or f"status {status}"
            bundle = self.log.parent
            if shutil.disk_usage(bundle).free < LITTLE:
                reason = f"no space left in {bundle.parent} ({reason})"
            raise EngineError(f"{self.kind} could not start the sandbox: {reason}")
        return int(self.pid_file.read_text())


def containers(root: Path) -> set[str]:
    """The containers that any runtime has state of: a directory (gVisor: a file) below one for each runtime."""
    found = [(path, path.name.partition(GVISOR_STATE)) for path in root.glob("*/[!.]*")]
    return {
        name for path, (name, is_gvisors, _) in found if is_gvisors or path.is_dir()
    }


def forget(root: Path, name: str) -> None:
    """Remove the state of whichever runtime has it: that runtime may be uninstalled, and its program
    would take twenty milliseconds for it."""
    for states in root.glob("*"):
        shutil.rmtree(states / name, ignore_errors=True)
        if has_own_kernel(states.name):
            for path in (
                *states.glob(f"{name}{GVISOR_STATE}*"),
                states / f"runsc-{name}.sock",
            ):
                path.unlink(missing_ok=True)


def environment() -> dict[str, str]:
    """All it needs: where programs are, and an ordinary user's systemd, which makes his control groups. After `su` and
    in cron jobs no variable says where that is; it is where systemd puts it."""
    usual = f"/run/user/{os.getuid()}"
    is_there = os.getuid() != 0 and os.path.exists(f"{usual}/bus")
    return {
        "PATH": os.defpath,
        **({"XDG_RUNTIME_DIR": usual} if is_there else {}),
        **variables.only("PATH", "XDG_RUNTIME_DIR", "DBUS_SESSION_BUS_ADDRESS"),
    }


def _ends_within(process: subprocess.Popen[bytes], seconds: float) -> bool:
    """Waits on a pidfd: `Popen.wait` with a timeout polls, and so takes up to twice as long."""
    with closing(os.pidfd_open(process.pid)) as descriptor:
        return has_ended(descriptor, seconds)


def has_ended(pidfd: int, seconds: float) -> bool:
    """Wait for a process. Uses `poll`, since `select` takes no descriptor above 1023."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


def _limited(ulimits: Mapping[str, int]) -> list[str]:
    """Sets the limits on the runtime, from which PID 1 inherits them. Setting them later, on a process in another user
    namespace, needs CAP_SYS_RESOURCE, which not every root has."""
    steps = [
        f"ulimit -{flag} {ulimits[limit] // unit}"
        for limit, (flag, unit) in ULIMITS.items()
        if limit in ulimits
    ]
    return ["/bin/sh", "-c", " && ".join([*steps, 'exec "$@"']), "sh"]


def _reason(log: Path) -> str:
    """The runtime's own message: its first fatal line, else its last line."""
    try:
        lines = log.read_text(errors="replace").strip().splitlines()
    except OSError:
        return ""
    fatal = [line for line in lines if "level=fatal" in line]
    return _message((fatal or lines[-1:] or [""])[0])[:500]


def _message(line: str) -> str:
    if line.startswith("{"):
        try:
            return str(json.loads(line).get("msg", line))
        except ValueError:
            return line
    start = line.find('msg="')
    return line[start + 5 :].rstrip('"').replace('\\"', '"') if start >= 0 else line
