"""Makes sure that there is a container engine. One that answers is used. Otherwise, as root on a Debian-like system,
`runc` is installed, which needs no daemon; for the tests, which inspect sandboxes with Docker, docker.io is installed
and its daemon started. Only `make` does this: `belljar` itself never installs anything.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from board import Report, SetupError
from checkout import Checkout

RUNC = ["runc"]
DOCKER = ["docker.io", "iptables", "ca-certificates", "uidmap"]
BOOTSTRAP = ["mmdebstrap", "debian-archive-keyring", "ca-certificates"]
LOCK = Path(
    "/run/belljar"
)  # a directory: nobody else can enter it, so nobody else can hold the lock
DAEMON_LOG = Path("/var/log/belljar-dockerd.log")
START_SECONDS = 60  # a first start initialises its storage; measured 2 s here, slow disks take longer
# Progress comes on descriptor 3. apt closes that descriptor in its children, so it must not be their standard output:
# some package scripts fail then (ca-certificates).
APT = ["sh", "-c", 'exec apt-get "$@" 3>&1', "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=300",
       "-o", "APT::Status-Fd=3", "-o", "Dpkg::Use-Pty=0"]  # fmt: skip
_PROGRAMS = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
# Steps run in parallel, and unlike `install`, `apt-get update` does not wait for the lock.
_APT = threading.Lock()
APT_SETTINGS = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def ensure(checkout: Checkout, report: Report, *, daemon: bool) -> None:
    daemon = daemon and os.environ.get("BELLJAR_ENGINE", "auto") != "oci"
    if answers() or (not daemon and _needs_no_daemon()):
        return
    if host := os.environ.get("DOCKER_HOST"):
        raise SetupError(
            f"no container engine answers at DOCKER_HOST={host}",
            "start it, or unset DOCKER_HOST",
        )
    _refused()
    if not may_install() and not (os.geteuid() == 0 and shutil.which("dockerd")):
        raise SetupError(
            "no container engine answers",
            "install and start Docker (Debian: `sudo apt-get install docker.io`) or Podman; or, without a daemon, "
            "`sudo apt-get install runc uidmap mmdebstrap`; or run this as root",
        )
    with _locked():
        if answers():
            return
        if not daemon:
            apt_install(
                checkout, [*RUNC, *BOOTSTRAP], report, "no container engine answers"
            )
            return
        if not shutil.which("dockerd"):
            apt_install(
                checkout, [*DOCKER, *BOOTSTRAP], report, "no container engine answers"
            )
        report(None, "starting Docker")
        _start(checkout, report)


@contextmanager
def _locked() -> Iterator[None]:
    """Only one process of root at a time; others install nothing."""
    try:
        LOCK.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(
            LOCK, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        )
    except OSError as error:
        raise SetupError(
            f"{LOCK} cannot be used: {error.strerror}", "remove it"
        ) from None
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise SetupError(
                f"{LOCK} must be a directory that only root can enter",
                "remove it, or `chmod 700` it",
            )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _needs_no_daemon() -> bool:
    """runc suffices for root; others also need subordinate ids (`belljar doctor` shows what else)."""
    return shutil.which("runc", path=_PROGRAMS) is not None and (
        os.geteuid() == 0 or bool(shutil.which("newuidmap"))
    )


def _refused() -> None:
    """Raises SetupError if there is an engine that this user may not use: he needs its group, not another engine."""
    for place in _places():
        path = urlsplit(place).path
        if path and os.path.exists(path) and not os.access(path, os.R_OK | os.W_OK):
            raise SetupError(
                f"a container engine is there, but this user may not use {path}",
                f"`sudo usermod -aG docker {os.environ.get('USER') or os.getuid()}`, then log in again",
            )


def may_install() -> bool:
    return os.geteuid() == 0 and shutil.which("apt-get") is not None


def apt_install(
    checkout: Checkout, packages: list[str], report: Report, why: str
) -> None:
    with _APT:
        _apt_install(checkout, packages, report, why)


def _apt_install(
    checkout: Checkout, packages: list[str], report: Report, why: str
) -> None:
    names = " ".join(packages)
    if not may_install():
        raise SetupError(
            f"{why}, and packages are missing",
            f"`sudo apt-get install {names}`, then run this again",
        )
    report(None, f"{why}: installing {names}")

    def on_line(line: str) -> None:
        kind, *rest = line.split(":")
        if kind in ("dlstatus", "pmstatus") and len(rest) > 2:
            part = float(rest[1]) / 100
            report(
                0.4 * part if kind == "dlstatus" else 0.4 + 0.6 * part, rest[2].strip()
            )

    # In its own session: Ctrl+C during dpkg would leave packages half installed.
    finish = ["dpkg", "--force-confold", "--configure", "-a"]
    checkout.attempt(finish, environment=APT_SETTINGS, uninterrupted=True)
    checkout.run(
        [*APT, "update"], "apt-get update", environment=APT_SETTINGS, uninterrupted=True
    )
    install = [*APT, "install", "--no-install-recommends", *packages]
    checkout.run(
        install,
        f"installing {names}",
        on_line,
        environment=APT_SETTINGS,
        uninterrupted=True,
    )


def answers() -> bool:
    return any(map(_ping, _places())) or _client_answers()


def _places() -> list[str]:
    if host := os.environ.get("DOCKER_HOST"):
        return [host]
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
    sockets = ["/var/run/docker.sock", f"{runtime}/docker.sock", f"{runtime}/podman/podman.sock",
               "/run/podman/podman.sock"]  # fmt: skip
    return [f"unix://{path}" for path in sockets]


def _ping(place: str) -> bool:
    url = urlsplit(place)
    if url.scheme not in ("unix", "tcp", "http"):
        return False
    try:
        with socket.socket(
            socket.AF_UNIX if url.scheme == "unix" else socket.AF_INET
        ) as link:
            link.settimeout(10)
            link.connect(
                url.path if url.scheme == "unix" else (url.hostname, url.port or 2375)
            )
            link.sendall(b"GET /_ping HTTP/1.0\r\nHost: engine\r\n\r\n")
            return b" 200 " in link.recv(64)
    except OSError:
        return False


def _client_answers() -> bool:
    """For ssh:// hosts, TLS and docker contexts, which only the client can reach."""
    client = shutil.which("docker")
    if not client:
        return False
    return (
        subprocess.run(
            [client, "version"], stdin=subprocess.DEVNULL, capture_output=True
        ).returncode
        == 0
    )


def _start(checkout: Checkout, report: Report) -> None:
    if Path("/run/systemd/system").is_dir():
        checkout.run(["systemctl", "start", "docker"], "starting Docker")
        return
    if not os.path.ismount("/sys/fs/cgroup"):
        checkout.run(
            ["mount", "-t", "cgroup2", "cgroup2", "/sys/fs/cgroup"],
            "mounting the control groups",
        )
    if _start_daemon([]):
        return
    report(None, "starting Docker without its network (`--network full` will not work)")
    if not _start_daemon(["--iptables=false", "--ip6tables=false", "--bridge=none"]):
        lines = (
            DAEMON_LOG.read_text(errors="replace").splitlines()
            if DAEMON_LOG.exists()
            else []
        )
        last = lines[-1] if lines else "nothing"
        raise SetupError(
            f"Docker did not start; it printed: {last[-300:]}",
            "look at its log",
            str(DAEMON_LOG),
        )


def _start_daemon(flags: list[str]) -> bool:
    with open(DAEMON_LOG, "ab") as log:
        daemon = subprocess.Popen(
            ["dockerd", *flags],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if answers():
            return True
        if daemon.poll() is not None:
            return False
        time.sleep(0.2)
    return False
