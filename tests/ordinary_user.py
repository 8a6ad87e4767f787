"""A real account with subordinate ids and control groups, to run our tests as an ordinary user."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from belljar.engines.oci import cgroups

CHECKOUT = Path(__file__).resolve().parent.parent
CONTRACT_TOOLS = ("useradd", "newuidmap", "nsenter", "unshare", "setpriv", "runc")
# Our Python, its packages and this checkout may be in a home that other users cannot enter. In its own mount namespace
# the run replaces such a home by an open directory with only the needed parts bound into it.
BIND_CLOSED_HOMES = """
set -e
held=$1; shift
keep() { mkdir -p "$held/$2"; mount --rbind "$2" "$held/$2"; }
show() {
    mountpoint -q "$1" || mount -t tmpfs -o mode=755 none "$1"
    mkdir -p "$2"; mount --rbind "$held/$2" "$2"
}
each() {  # keep all before hiding a home: several may be in the same one
    step=$1; shift
    while [ "$1" != -- ]; do "$step" "$1" "$2"; shift 2; done
}
each keep "$@"
each show "$@"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""

# An operator's file that only this run sees.
WITH_OPERATOR = """
set -e
held=$1; text=$2; shift 2
mkdir -p "$held"; mount -t tmpfs -o mode=755 none "$held"; mkdir -p "$held/work" "$held/up/belljar"
printf %s "$text" > "$held/up/belljar/config.toml"
mount -t overlay -o "lowerdir=/etc,upperdir=$held/up,workdir=$held/work" overlay /etc
exec "$@"
"""


@dataclass(frozen=True)
class OrdinaryUser:
    uid: int
    home: Path

    def run(
        self,
        *argv: str,
        env: Mapping[str, str] | None = None,
        check: bool = True,
        operator: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """`operator`: what /etc/belljar/config.toml holds meanwhile, for this run alone."""
        who = [
            "setpriv",
            f"--reuid={self.uid}",
            f"--regid={self.uid}",
            "--clear-groups",
            "--",
        ]
        settings = {
            "HOME": str(self.home), "PATH": f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/sbin:/bin",
            "BELLJAR_ENGINE": "oci", "TMPDIR": str(self.home), "PYTHONDONTWRITEBYTECODE": "1", **(env or {}),
        }  # fmt: skip
        opened = [word for pair in self._closed_directories() for word in pair]
        apart = [
            "unshare",
            "--mount",
            "--propagation",
            "private",
            "sh",
            "-c",
            BIND_CLOSED_HOMES,
            "sh",
            f"{self.home}/held",
        ]
        if operator:
            who = ["sh", "-c", WITH_OPERATOR, "sh", f"{self.home}/etc", operator, *who]
        done = subprocess.run(
            [*apart, *opened, "--", *who, *argv], env=settings, cwd=self.home, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, done.stdout + done.stderr
        return done

    def python(
        self, *arguments: str, check: bool = True, **env: str
    ) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, *arguments, env=env, check=check)

    @staticmethod
    def _closed_directories() -> Iterator[tuple[str, str]]:
        """Pairs of a directory above that others cannot enter, and the needed directory below it."""
        for needed in dict.fromkeys(
            map(os.path.realpath, (sys.base_prefix, sys.prefix, CHECKOUT))
        ):
            above = [*reversed(Path(needed).parents), Path(needed)]
            closed = next(
                (path for path in above if not path.stat().st_mode & 0o001), None
            )
            if closed is not None:
                yield str(closed), needed


def reason_to_skip() -> str | None:
    if os.geteuid() != 0:
        return "only root can make an account"
    if cgroups.version() == "2":
        return "control groups version 2 need a systemd of the user's own: `make vm-test PLATFORMS=oci-rootless`"
    missing = [name for name in CONTRACT_TOOLS if shutil.which(name) is None]
    return f"{', '.join(missing)} not installed" if missing else None


@contextmanager
def ordinary_user() -> Iterator[OrdinaryUser]:
    """One who may run sandboxes of his own."""
    with account() as user:
        _give_subordinate_ids(pwd.getpwuid(user.uid).pw_name)
        with _control_groups(user.uid):
            yield user


@contextmanager
def account(kind: str = "ordinary") -> Iterator[OrdinaryUser]:
    """Just an account, removed afterwards."""
    name = f"bj-{kind}-{os.getpid()}"
    home = Path(tempfile.mkdtemp(prefix="bj-", dir="/var/tmp"))
    subprocess.run(
        ["useradd", "--no-create-home", "--home-dir", home, "--shell", "/bin/sh", name],
        check=True,
    )
    uid = pwd.getpwnam(name).pw_uid
    try:
        os.chown(home, uid, uid)
        yield OrdinaryUser(uid, home)
    finally:
        subprocess.run(["userdel", name], check=True, capture_output=True)
        shutil.rmtree(home)
        shutil.rmtree(f"/tmp/belljar-quota-{uid}", ignore_errors=True)


def _give_subordinate_ids(name: str) -> None:
    """Unless useradd did, which depends on its settings and the kind of account."""
    for kind in ("uid", "gid"):
        if f"{name}:" not in Path(f"/etc/sub{kind}").read_text():
            first = 0x20000000 + os.getpid() * 65536
            subprocess.run(
                ["usermod", f"--add-sub{kind}s", f"{first}-{first + 65535}", name],
                check=True,
            )


@contextmanager
def _control_groups(uid: int) -> Iterator[None]:
    made = [
        Path(point, f"belljar-{uid}")
        for kind, point in cgroups._hierarchies()
        if kind == "cgroup"
    ]
    for path in made:
        path.mkdir(exist_ok=True)
        for each in (path, *path.iterdir()):
            os.chown(each, uid, uid)
    try:
        yield
    finally:
        for path in made:
            path.rmdir()
