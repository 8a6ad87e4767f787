"""Debian trees made with mmdebstrap from this machine's mirror, and commands that have one as their root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Names, certificates and pip's own settings: with them a tree reaches the package indexes that this machine reaches.
SETTINGS = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt")
PASSED_ON = ("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def bootstrap(tree: Path, suite: str, packages: Sequence[str], *options: str) -> None:
    include = f"--include={','.join(packages)}"
    # A mirror that is a few days behind has a sid whose date has passed.
    command = ["mmdebstrap", "-q", '--aptopt=Acquire::Check-Valid-Until "false"', include, *options, suite, tree]
    subprocess.run([*command, f"deb {mirror()} {suite} main"], check=True)
    for name in SETTINGS:
        if Path(name).exists():
            (tree / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            (tree / name[1:]).unlink(missing_ok=True)
            shutil.copyfile(name, tree / name[1:])


def mirror() -> str:
    """The one that this machine's apt uses for Debian's main archive."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", "Component: main"]
    listed = subprocess.run([*command, "Origin: Debian"], capture_output=True, text=True).stdout.split()
    uris = [uri for uri in listed if "security" not in uri]
    if not uris:
        sys.exit("`apt-get indextargets` names no Debian mirror: run `apt-get update` first")
    return uris[0]


def copy_checkout(target: Path) -> None:
    """What git knows, as it is in the work tree."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name, follow_symlinks=False)


@dataclass(frozen=True)
class Entry:
    """How a tree is entered: mount namespace always; what is shared with this machine, and as whom."""

    tree: Path
    binds: Sequence[Path] = ()
    """Under the same path inside and outside."""
    sees_processes: bool = False
    become: str = ""

    def argv(self, command: str) -> list[str]:
        separate = [] if self.sees_processes else ["--pid", "--fork", "--kill-child"]
        return ["unshare", "--mount", *separate, "bash", "-euc", self._script(command)]

    def _script(self, command: str) -> str:
        tree = self.tree
        mounts = [
            "mount --make-rprivate /",
            f"mount --bind '{tree}' '{tree}'",
            f"mount {'--rbind /proc' if self.sees_processes else '-t proc proc'} '{tree}/proc'",
            f"mount --rbind /dev '{tree}/dev'",
            f"mount --rbind /sys '{tree}/sys'",
            f"mount -t tmpfs -o mode=755 tmpfs '{tree}/run'",
            f"mkdir -p '{tree}/run/lock' '{tree}/run/outside'",
            *(_bind_mount(tree, path) for path in self.binds),
        ]
        # A plain chroot would not do: the kernel makes no user namespaces, and so no id-mapped mounts, in one.
        enter = f'umount -l /run/outside; cd / && exec {self.become} bash -c "$INSIDE"'
        return "\n".join(
            [*mounts, f"export INSIDE={quoted(command)}", f"cd '{tree}'", "pivot_root . run/outside",
             f"exec chroot . bash -c {quoted(enter)}"]
        )  # fmt: skip


def _bind_mount(tree: Path, path: Path) -> str:
    make = "mkdir -p" if path.is_dir() else "touch"
    return f"{make} '{tree}{path}'; mount --bind '{path}' '{tree}{path}'"


def quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"
