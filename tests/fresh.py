"""The README's two commands on a bare system: `make fresh`, or `python3 -m tests.fresh root user newest`.

For each case mmdebstrap makes a Debian tree (python3, make, ca-certificates), entered in mount and process namespaces
of its own. Root gets no engine and must use `oci`. The user gets this machine's Docker socket, as a member of its
group, and a home with the same path inside and outside, since the engine mounts by path.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from tests.debian_tree import PASSED_ON, PATH, ROOT, Entry, bootstrap, copy_checkout

USER = 4242
SOCKET = Path("/run/docker.sock")
BARE = [
    "python3",
    "make",
    "ca-certificates",
]  # ca-certificates: for this machine's own authorities
QUICK_TESTS = "tests/session/test_result.py tests/link/test_frames.py tests/test_blocking.py tests/engines/oci"


@dataclass(frozen=True)
class Case:
    name: str
    suite: str
    user: bool = False
    packages: tuple[str, ...] = ()
    python: str = "python3"


CASES = {
    "root": Case("root", "bookworm"),
    # A user cannot install packages, so python3-venv, which `make` asks for, is there already.
    "user": Case("user", "bookworm", user=True, packages=("python3-venv",)),
    "newest": Case("newest", "sid", packages=("python3.14",), python="python3.14"),
}


class Tree:
    def __init__(self, case: Case, place: Path) -> None:
        self.case, self.place = case, place
        self.root = place / "tree"
        self.shared = place / "shared"  # has the same path inside
        self.checkout = self.shared / "a check out"

    def make(self) -> None:
        bootstrap(
            self.root,
            self.case.suite,
            [*BARE, *self.case.packages],
            "--variant=minbase",
        )
        (self.shared / "home").mkdir(parents=True)
        (self.shared / "project").mkdir()
        copy_checkout(self.checkout)
        if self.case.user:
            subprocess.run(["chown", "-R", f"{USER}:{USER}", self.shared], check=True)
            with open(self.root / "etc/passwd", "a") as file:
                file.write(f"someone:x:{USER}:{USER}::{self.shared}/home:/bin/bash\n")

    def run(self, command: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": PATH,
            "HOME": f"{self.shared}/home" if self.case.user else "/root",
            "BELLJAR_RUN": f"{self.place}/shared/run"
            if self.case.user
            else "/run/belljar",
            **{name: os.environ[name] for name in PASSED_ON if name in os.environ},
            **variables,
        }
        return subprocess.run(
            self._entry().argv(f"set -eu; cd '{self.checkout}'; {command}"),
            env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        )  # fmt: skip

    def _entry(self) -> Entry:
        if not self.case.user:
            return Entry(self.root, [self.shared])
        become = (
            f"setpriv --reuid {USER} --regid {USER} --groups {SOCKET.stat().st_gid}"
        )
        # The engine outside names processes by their outside numbers, so its user must see those.
        return Entry(
            self.root, [self.shared, SOCKET], sees_processes=True, become=become
        )


def passes(case: Case) -> bool:
    place = Path(tempfile.mkdtemp(prefix="bj-fresh-", dir="/var/tmp"))
    place.chmod(0o755)
    tree = Tree(case, place)
    try:
        tree.make()
        print(
            f"fresh: {case.name}: bare {case.suite} with {' '.join([*BARE, *case.packages])}",
            flush=True,
        )
        project = f"WORKSPACE='{tree.shared}/project'"
        python = f"PYTHON={case.python}"
        words = "echo hello from $(hostname)"
        sandbox = f"make sandbox {python} {project} CMD='{words}'"
        return (
            _step(tree, case, "make sandbox", sandbox, "hello from sandbox\n")
            and _step(tree, case, "make sandbox again", sandbox, "hello from sandbox\n")
            and _step(
                tree,
                case,
                "make test",
                f"make test {python} TESTS='{QUICK_TESTS}'",
                " passed",
                **_engine(case),
            )
            and _step(
                tree,
                case,
                "pipx install",
                _package(tree),
                f"belljar {_version()}\nhello from sandbox\n" * 2,
                **_engine(case),
            )
        )
    finally:
        subprocess.run(["rm", "-rf", "--one-file-system", place], check=False)


def _package(tree: Tree) -> str:
    """Install wheel and source distribution with pipx, outside of the checkout."""
    return f"""
        .venv/bin/python -m hatchling build -t sdist -t wheel -d '{tree.shared}/dist' >/dev/null
        {tree.case.python} -m venv "$HOME/pipx" && "$HOME/pipx/bin/pip" install -q --only-binary :all: pipx
        cd '{tree.shared}/project'
        for built in '{tree.shared}/dist'/*.whl '{tree.shared}/dist'/*.tar.gz; do
            export PIPX_HOME=$(mktemp -d) PIPX_BIN_DIR=$(mktemp -d)
            "$HOME/pipx/bin/pipx" install -q --python {tree.case.python} "$built" >&2
            "$PIPX_BIN_DIR/belljar" --version
            "$PIPX_BIN_DIR/belljar" run 'echo hello from $(hostname)'
        done"""


def _version() -> str:
    (found,) = re.findall(
        r'__version__ = "(.+)"', (ROOT / "src/belljar/__init__.py").read_text()
    )
    return str(found)


def _engine(case: Case) -> dict[str, str]:
    # A second Docker daemon in this network namespace would delete the first one's bridge.
    return {} if case.user else {"BELLJAR_ENGINE": "oci"}


def _step(
    tree: Tree, case: Case, name: str, command: str, expected: str, **variables: str
) -> bool:
    began, cpu = time.monotonic(), os.times()
    done = tree.run(command, **variables)
    spent = os.times()
    busy = (
        spent.children_user
        + spent.children_system
        - cpu.children_user
        - cpu.children_system
    )
    good = done.returncode == 0 and expected in done.stdout
    took = f"{time.monotonic() - began:.0f} s, {busy:.0f} s of CPU"
    print(
        f"fresh: {case.name}: {name}: {'ok' if good else 'FAILED'} ({took})", flush=True
    )
    if not good or os.environ.get("VERBOSE"):
        print(done.stdout[-3000:], done.stderr[-3000:], sep="\n", flush=True)
    return good


def main(names: list[str]) -> int:
    if os.geteuid() != 0 or not shutil.which("mmdebstrap"):
        sys.exit("fresh: this needs root and mmdebstrap")
    unknown = set(names) - set(CASES)
    if unknown:
        sys.exit(
            f"fresh: no case called {', '.join(unknown)}; there are {', '.join(CASES)}"
        )
    results = [passes(CASES[name]) for name in names or CASES]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
