"""Make Debian trees with mmdebstrap from this machine's mirror, and run commands with such a tree as root."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Copied into the tree, so that it reaches the same package indexes as this machine.
SETTINGS = (
    "/etc/resolv.conf",
    "/etc/hosts",
    "/etc/pip.conf",
    "/etc/ssl/certs/ca-certificates.crt",
)
PASSED_ON = (
    "PIP_CERT",
    "PIP_DEFAULT_TIMEOUT",
    "SSL_CERT_FILE",
    "http_proxy",
    "https_proxy",
    "no_proxy",
)
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def bootstrap(tree: Path, suite: str, packages: Sequence[str], *options: str) -> None:
    include = f"--include={','.join(packages)}"
    # The release file of sid is out of date on a mirror that is some days behind.
    command = [
        "mmdebstrap",
        "-q",
        '--aptopt=Acquire::Check-Valid-Until "false"',
        include,
        *options,
        suite,
        tree,
    ]
    subprocess.run([*command, f"deb {mirror()} {suite} main"], check=True)
    for name in SETTINGS:
        if Path(name).exists():
            (tree / name[1:]).parent.mkdir(parents=True, exist_ok=True)
            (tree / name[1:]).unlink(missing_ok=True)
            shutil.copyfile(name, tree / name[1:])


def mirror() -> str:
    """The mirror of Debian's main archive that this machine's apt uses."""
    command = [
        "apt-get",
        "indextargets",
        "--format",
        "$(REPO_URI)",
        "Identifier: Packages",
        "Component: main",
    ]
    listed = subprocess.run(
        [*command, "Origin: Debian"], capture_output=True, text=True
    ).stdout.split()
    uris = [uri for uri in listed if "security" not in uri]
    if not uris:
        sys.exit(
            "`apt-get indextargets` names no Debian mirror: run `apt-get update` first"
        )
    return uris[0]


def copy_checkout(target: Path) -> None:
    """Copy the files that git knows or would add, as they are in the work tree."""
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
    """How to enter a tree, always in its own mount namespace."""

    tree: Path
    binds: Sequence[Path] = ()
    """Mounted under the same path inside."""
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
        # pivot_root, since in a chroot the kernel refuses user namespaces and so id-mapped mounts.
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
