"""The README's two commands where nothing is installed: `make fresh`, or `python3 tests/fresh.py root user newest`.

A bare Debian tree (python3, make, ca-certificates) is made with mmdebstrap for each case and entered in mount
and process namespaces of its own. Root gets no engine and must find a way; a user is given this machine's Docker
socket, as a member of its group, and a home whose path is the same on both sides, since the engine mounts by path.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
USER = 4242
SOCKET = Path("/run/docker.sock")
BARE = ["python3", "make", "ca-certificates"]  # the last for this machine's own certificates
QUICK_TESTS = "tests/session/test_result.py tests/link/test_frames.py tests/test_blocking.py tests/engines/oci"
PASSED_ON = ("PIP_CERT", "PIP_DEFAULT_TIMEOUT", "SSL_CERT_FILE", "http_proxy", "https_proxy", "no_proxy")


@dataclass(frozen=True)
class Case:
    name: str
    suite: str
    user: bool = False
    packages: tuple[str, ...] = ()
    python: str = "python3"


CASES = {
    "root": Case("root", "bookworm"),
    # A user cannot install: what `make` told them to ask an administrator for is there.
    "user": Case("user", "bookworm", user=True, packages=("python3-venv",)),
    "newest": Case("newest", "sid", packages=("python3.14",), python="python3.14"),
}


class Tree:
    def __init__(self, case: Case, place: Path) -> None:
        self.case, self.place = case, place
        self.root = place / "tree"
        self.shared = place / "shared"  # under the same path inside and outside
        self.checkout = self.shared / "a check out"

    def make(self) -> None:
        uris = _mirror()
        sources = [f"deb {uris} {self.case.suite} main"]
        packages = ",".join([*BARE, *self.case.packages])
        command = ["mmdebstrap", "-q", "--variant=minbase", f"--include={packages}", self.case.suite, self.root]
        subprocess.run([*command, *sources], check=True)
        for name in ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf", "/etc/ssl/certs/ca-certificates.crt"):
            if Path(name).exists():
                (self.root / name[1:]).parent.mkdir(parents=True, exist_ok=True)
                (self.root / name[1:]).unlink(missing_ok=True)
                shutil.copyfile(name, self.root / name[1:])
        (self.shared / "home").mkdir(parents=True)
        (self.shared / "project").mkdir()
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, listed.split("\0")):
            (self.checkout / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.checkout / name)
        if self.case.user:
            subprocess.run(["chown", "-R", f"{USER}:{USER}", self.shared], check=True)
            with open(self.root / "etc/passwd", "a") as file:
                file.write(f"someone:x:{USER}:{USER}::{self.shared}/home:/bin/bash\n")

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": f"{self.shared}/home" if self.case.user else "/root",
            "BELLJAR_RUN": f"{self.place}/shared/run" if self.case.user else "/run/belljar",
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **variables,
        }
        script = self._script(command)
        # The engine next door names processes by their numbers out here, so its user must see the same ones.
        processes = [] if self.case.user else ["--pid", "--fork", "--kill-child"]
        return subprocess.run(
            ["unshare", "--mount", *processes, "bash", "-euc", script],
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def _script(self, command: str) -> str:
        inside = f"cd '{self.checkout}' && {command}"
        mounts = [
            "mount --make-rprivate /",
            f"mount --bind '{self.root}' '{self.root}'",
            f"mount {'--rbind /proc' if self.case.user else '-t proc proc'} '{self.root}/proc'",
            f"mount --rbind /dev '{self.root}/dev'",
            f"mount --rbind /sys '{self.root}/sys'",
            f"mount -t tmpfs -o mode=755 tmpfs '{self.root}/run'",
            f"mkdir -p '{self.root}{self.shared}' '{self.root}/run/lock' '{self.root}/run/outside'",
            f"mount --bind '{self.shared}' '{self.root}{self.shared}'",
        ]
        become = ""
        if self.case.user:
            mounts += [f"touch '{self.root}/run/docker.sock'", f"mount --bind {SOCKET} '{self.root}/run/docker.sock'"]
            become = f"setpriv --reuid {USER} --regid {USER} --groups {SOCKET.stat().st_gid} "
        # A plain chroot would not do: the kernel makes no user namespaces, and so no id-mapped mounts, in one.
        enter = f'umount -l /run/outside; cd / && exec {become}bash -c "$INSIDE"'
        return "\n".join(
            [*mounts, f"export INSIDE={_quoted(inside)}", f"cd '{self.root}'", "pivot_root . run/outside",
             f"exec chroot . bash -c {_quoted(enter)}"]
        )  # fmt: skip


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "'\\''") + "'"


def _mirror() -> str:
    """The one that this machine's apt uses for Debian's main archive."""
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Identifier: Packages", "Component: main"]
    listed = subprocess.run([*command, "Origin: Debian"], capture_output=True, text=True).stdout.split()
    uris = [uri for uri in listed if "security" not in uri]
    if not uris:
        sys.exit("fresh: `apt-get indextargets` names no Debian mirror: run `apt-get update` first")
    return uris[0]


def tried(case: Case) -> bool:
    place = Path(tempfile.mkdtemp(prefix="bj-fresh-", dir="/var/tmp"))
    place.chmod(0o755)
    tree = Tree(case, place)
    try:
        tree.make()
        print(f"fresh: {case.name}: bare {case.suite} with {' '.join([*BARE, *case.packages])}", flush=True)
        project = f"WORKSPACE='{tree.shared}/project'"
        python = f"PYTHON={case.python}"
        words = "echo hello from $(hostname)"
        sandbox = f"make sandbox {python} {project} CMD='{words}'"
        return (
            _step(tree, case, "make sandbox", sandbox, "hello from sandbox\n")
            and _step(tree, case, "make sandbox again", sandbox, "hello from sandbox\n")
            and _step(tree, case, "make test", f"make test {python} TESTS='{QUICK_TESTS}'", " passed", **_engine(case))
        )
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", place], check=False)


def _engine(case: Case) -> dict[str, str]:
    # A second Docker daemon in this network namespace would take the first one's bridge away.
    return {} if case.user else {"BELLJAR_ENGINE": "oci"}


def _step(tree: Tree, case: Case, name: str, command: str, expected: str, **variables: str) -> bool:
    began, cpu = time.monotonic(), os.times()
    done = tree.run(command, **variables)
    spent = os.times()
    busy = spent.children_user + spent.children_system - cpu.children_user - cpu.children_system
    good = done.returncode == 0 and expected in done.stdout
    took = f"{time.monotonic() - began:.0f} s, {busy:.0f} s of CPU"
    print(f"fresh: {case.name}: {name}: {'ok' if good else 'FAILED'} ({took})", flush=True)
    if not good or os.environ.get("VERBOSE"):
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n", flush=True)
    return good


def main(names: list[str]) -> int:
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        sys.exit("fresh: this needs root and mmdebstrap")
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(f"fresh: no case called {', '.join(unknown)}; there are {', '.join(CASES)}")
    results = [tried(CASES[name]) for name in names or CASES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
