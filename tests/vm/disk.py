"""The virtual machine's disk: Debian with engines, the base image in each engine's store, and Belljar's environment.

The disk is prepared on this machine, since everything is much slower in an emulated one. It is used again as long as
its inputs stay the same. Belljar's sources are not on it: each run copies its own.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.debian_tree import PASSED_ON, PATH, ROOT, Entry, bootstrap, copy_checkout

CHECKOUT = "/srv/belljar"
USERS = ("docker", "alone")
"""One user in the group docker, one with only its own rootless engines."""
PACKAGES = (
    "systemd-sysv", "udev", "dbus-user-session", "libpam-systemd", "linux-image-cloud-amd64", "initramfs-tools",
    "apparmor", "openssh-server", "iproute2", "iptables", "nftables", "procps", "ca-certificates",
    "docker.io", "docker-cli", "podman", "runc", "crun", "netavark", "aardvark-dns", "uidmap", "passt",
    "fuse-overlayfs", "python3", "python3-venv", "make", "git", "mmdebstrap",
)  # fmt: skip
# Other AppArmor profiles are deleted: an emulated processor takes minutes to compile them at boot.
PROFILES = {
    "runc",
    "crun",
    "podman",
    "buildah",
    "passt",
    "usr.bin.passt",
    "usr.bin.pasta",
}
MASKED = ("systemd-networkd-wait-online.service", "apt-daily.timer", "apt-daily-upgrade.timer", "man-db.timer",
          "e2scrub_all.timer", "fstrim.timer", "podman-auto-update.timer", "dpkg-db-backup.timer")  # fmt: skip
BYTES = 10 * 2**30
IMPORT = f"env BELLJAR_ENGINE=oci {CHECKOUT}/.venv/bin/belljar images import --name $IMAGE /srv/base.tar"
# There is no systemd in the tree, so engines are started by hand to load the image.
LOAD = {
    "docker": "unshare --net dockerd --bridge=none --iptables=false --ip6tables=false >/tmp/dockerd.log 2>&1 & "
    "until docker version >/dev/null 2>&1; do kill -0 $! || { tail /tmp/dockerd.log; exit 1; }; sleep 0.2; done; "
    "docker load -q -i /srv/base.tar; kill $!; wait $! || true",
    "podman": "podman load -q -i /srv/base.tar",
    "oci": IMPORT,
}


class Disk:
    def __init__(self, directory: Path, suite: str, image: str) -> None:
        self.suite, self.image = suite, image
        self.place = directory / f"{suite}-{self._digest()}"
        self.file, self.kernel, self.initrd = (
            self.place / name for name in ("disk", "kernel", "initrd")
        )
        self.key = self.place / "key"

    def _digest(self) -> str:
        locked = ROOT / "sandbox-images/setup/lock/test.txt"
        parts = [self.suite, self.image, Path(__file__).read_text(), locked.read_text()]
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]

    @property
    def is_there(self) -> bool:
        return (self.place / "done").exists()

    def make(self) -> None:
        _remove(self.place)  # a build that failed may have left it
        self.place.mkdir(parents=True, mode=0o700)
        tree = self.place / "tree"
        bootstrap(tree, self.suite, PACKAGES, "--variant=important")
        subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.key], check=True
        )
        self._configure(tree)
        self._install(tree)
        _run(f"docker save -o '{tree}/srv/base.tar' {self.image}")
        (tree / "srv/base.tar").chmod(0o644)
        for load in LOAD.values():
            self._inside(tree, load)
        for load in (LOAD["podman"], LOAD["oci"]):
            self._inside(tree, _as_alone(load))
        (tree / "srv/base.tar").unlink()
        self._write(tree)

    def _write(self, tree: Path) -> None:
        shutil.copy(next(tree.glob("boot/vmlinuz-*")), self.kernel)
        shutil.copy(next(tree.glob("boot/initrd.img-*")), self.initrd)
        with open(self.file, "wb") as file:
            file.truncate(BYTES)
        subprocess.run(["mkfs.ext4", "-q", "-F", "-d", tree, self.file], check=True)
        _remove(tree)
        (self.place / "done").touch()

    def _configure(self, tree: Path) -> None:
        (tree / "etc/hostname").write_text("belljar-vm\n")
        (tree / "etc/hosts").write_text("127.0.0.1 localhost belljar-vm\n")
        (tree / "etc/systemd/network/all.network").write_text(
            "[Match]\nName=e*\n[Network]\nDHCP=ipv4\n"
        )
        for profile in (tree / "etc/apparmor.d").iterdir():
            if profile.is_file() and profile.name not in PROFILES:
                profile.unlink()
        add = "\n".join(
            f"useradd -m -s /bin/bash {'-G docker' if name == 'docker' else ''} -N tester-{name}\n"
            f"mkdir -p /var/lib/systemd/linger; touch /var/lib/systemd/linger/tester-{name}"
            for name in USERS
        )
        public = self.key.with_suffix(".pub").read_text().strip()
        homes = " ".join(["/root", *(f"/home/tester-{name}" for name in USERS)])
        self._inside(tree, f"""{add}
            for home in {homes}; do
              install -d -m 700 $home/.ssh; echo '{public}' >$home/.ssh/authorized_keys
              chown -R --reference=$home $home/.ssh
            done
            systemctl -q enable systemd-networkd ssh
            systemctl -q mask {" ".join(MASKED)}""")  # fmt: skip

    def _install(self, tree: Path) -> None:
        copy_checkout(tree / CHECKOUT[1:])
        self._inside(
            tree,
            f"cd {CHECKOUT} && make setup >/srv/setup.log 2>&1 || {{ tail -20 /srv/setup.log; exit 1; }}",
        )

    def _inside(self, tree: Path, command: str) -> None:
        passed_on = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        environment = {"PATH": PATH, "HOME": "/root", "IMAGE": self.image, **passed_on}
        subprocess.run(
            Entry(tree).argv(f"set -eu\n{command}"),
            check=True,
            env=environment,
            stdin=subprocess.DEVNULL,
        )


def _as_alone(command: str) -> str:
    # Podman stores its first runtime directory, so it must be the one that systemd will make.
    runtime = "RUN=/run/user/$(id -u tester-alone); mkdir -p /run/user; install -d -m 700 -o tester-alone $RUN"
    settings = "env HOME=/home/tester-alone XDG_RUNTIME_DIR=$RUN"
    return f"{runtime}; setpriv --reuid tester-alone --regid users --clear-groups {settings} {command}"


def _remove(path: Path) -> None:
    """Delete, but not through mounts that may still be there."""
    subprocess.run(["rm", "-rf", "--one-file-system", path], check=True)


def _run(command: str) -> None:
    subprocess.run(["bash", "-euc", command], check=True)
