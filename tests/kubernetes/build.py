"""Kubernetes from Debian's sources, once: the programs of a control plane and of a node, in a directory of their own.

Nothing is installed on the machine. Debian's packages (a Go compiler, etcd, kubectl, containerd, runc, CNI plugins) are
unpacked below `root/`, the source package below `src/`; `bin/` gets what is compiled. About seven minutes of two idle
processors the first time (nice 19), nothing afterwards.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.debian_tree import mirror

SUITE = "bookworm"
VERSION = "1.20.2"
SOURCE = "kubernetes"
PACKAGES = (
    "golang-1.19-go", "golang-1.19-src", "golang-github-modern-go-reflect2-dev", "etcd-server", "kubernetes-client",
    "containerd", "runc", "containernetworking-plugins",
)  # fmt: skip
COMMANDS = (
    ("kube-scheduler", "kubelet"),
    ("kube-apiserver", "kube-controller-manager"),
)
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
HERE = Path(__file__).parent


class Build:
    """The programs below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory.resolve()
        self.root = self.directory / "root"
        self.bin = self.directory / "bin"
        self._go = self.directory / "go/src/k8s.io/kubernetes"

    @property
    def is_complete(self) -> bool:
        return (self.directory / "complete").exists()

    def make(self) -> None:
        """Fetch, unpack and compile what is missing. An interrupted build goes on where Go's cache stands."""
        if self.is_complete:
            return
        self.directory.mkdir(parents=True, exist_ok=True)
        with _only_one(self.directory):
            if not self.is_complete:
                self._fetch()
                self._unpack()
                self._generate_openapi()
                for together in COMMANDS:
                    self._compile(*together)
                self._forget_sources()
                (self.directory / "complete").touch()

    def program(self, name: str) -> Path:
        """Where a program is: compiled here, or from one of the packages."""
        places = (
            self.bin,
            self.root / "usr/bin",
            self.root / "usr/sbin",
            self.root / "usr/lib/cni",
        )
        return next(place / name for place in places if (place / name).exists())

    def _fetch(self) -> None:
        downloads = self.directory / "downloads"
        downloads.mkdir(exist_ok=True)
        sources = self.directory / "sources.list"
        signed = f"[signed-by={KEYRING}]" if Path(KEYRING).exists() else ""
        sources.write_text(
            "".join(
                f"{kind} {signed} {mirror()} {SUITE} main\n"
                for kind in ("deb", "deb-src")
            )
        )
        state = self.directory / "apt"
        (state / "lists/partial").mkdir(parents=True, exist_ok=True)
        apt = [
            "apt-get", "-q", "-o", f"Dir::Etc::SourceList={sources}", "-o", "Dir::Etc::SourceParts=/dev/null",
            "-o", f"Dir::State::Lists={state / 'lists'}", "-o", f"Dir::Cache={state}", "-o", "APT::Sandbox::User=root",
            "-o", "Acquire::Check-Valid-Until=false",
        ]  # fmt: skip
        self._run([*apt, "update"], downloads)
        self._run([*apt, "download", *PACKAGES], downloads)
        self._run([*apt, "source", "--download-only", SOURCE], downloads)

    def _unpack(self) -> None:
        downloads = self.directory / "downloads"
        for package in sorted(downloads.glob("*.deb")):
            self._run(["dpkg", "-x", str(package), str(self.root)], downloads)
        shutil.rmtree(self._go, ignore_errors=True)
        self._go.mkdir(parents=True)
        _unpack_tar(next(downloads.glob("kubernetes_*.orig.tar.*")), self._go, strip=1)
        _unpack_tar(
            next(downloads.glob("kubernetes_*.debian.tar.*")), self._go, strip=0
        )
        for patch in (self._go / "debian/patches/series").read_text().split():
            self._run(["patch", "-s", "-p1", "-i", f"debian/patches/{patch}"], self._go)
        # The copy in the source does not compile with Go 1.18 and newer.
        vendored = self._go / "vendor/github.com/modern-go/reflect2"
        shutil.rmtree(vendored)
        shutil.copytree(
            self.root / "usr/share/gocode/src/github.com/modern-go/reflect2", vendored
        )

    def _generate_openapi(self) -> None:
        """Write the one generated file that the source package does not hold."""
        tool = self.directory / "openapi-gen"
        self._compile_go(tool, "./vendor/k8s.io/kube-openapi/cmd/openapi-gen")
        listed = (HERE / "openapi_packages.txt").read_text().split()
        packages = ",".join(f"k8s.io/kubernetes/{package}" for package in listed)
        self._run(
            [str(tool), "-O", "zz_generated.openapi", "-p", "k8s.io/kubernetes/pkg/generated/openapi",
             "-h", "hack/boilerplate/boilerplate.generatego.txt", "-i", packages,
             "-r", str(self.directory / "openapi_violations")],
            self._go,
        )  # fmt: skip

    def _compile(self, *names: str) -> None:
        self.bin.mkdir(exist_ok=True)
        self._compile_go(f"{self.bin}/", *(f"./cmd/{name}" for name in names))

    def _compile_go(self, output: Path | str, *packages: str) -> None:
        flags = ["-trimpath", "-ldflags", _linker_flags()]
        self._run(
            ["nice", "-n", "19", "go", "build", "-o", str(output), *flags, *packages],
            self._go,
        )

    def _run(self, command: list[str], directory: Path) -> None:
        go = self.root / "usr/lib/go-1.19"
        environment = {
            **os.environ, "PATH": f"{go / 'bin'}:{os.environ['PATH']}", "GOROOT": str(go),
            "GOPATH": str(self.directory / "go"), "GOCACHE": str(self.directory / "cache"), "GO111MODULE": "off",
            "GOFLAGS": "", "GOPROXY": "off", "GOTOOLCHAIN": "local", "CGO_ENABLED": "0",
        }  # fmt: skip
        with (self.directory / "build.log").open("ab") as log:
            done = subprocess.run(
                command,
                cwd=directory,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        if done.returncode:
            sys.exit(
                f"kubernetes: `{' '.join(command[:6])} …` failed; see {self.directory / 'build.log'}"
            )

    def _forget_sources(self) -> None:
        """Keep the programs: sources and compiler cache are 2.5 GB."""
        for name in ("cache", "go", "apt", "root/usr/lib/go-1.19", "root/usr/share"):
            self._run(
                ["chmod", "-R", "u+w", str(self.directory / name)], self.directory
            )
            shutil.rmtree(self.directory / name)


def _linker_flags() -> str:
    component = "k8s.io/kubernetes/vendor/k8s.io/component-base/version"
    client = "k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version"
    values = {
        f"{component}.gitVersion": f"v{VERSION}", f"{component}.gitMajor": "1", f"{component}.gitMinor": "20",
        f"{component}.gitTreeState": "clean", f"{client}.gitVersion": f"v{VERSION}", f"{client}.gitMajor": "1",
        f"{client}.gitMinor": "20",
    }  # fmt: skip
    return " ".join(
        ["-s", "-w", *(f"-X {name}={value}" for name, value in values.items())]
    )


def _unpack_tar(archive: Path, target: Path, strip: int) -> None:
    with tarfile.open(archive) as tar:
        for member in tar:
            parts = Path(member.name).parts[strip:]
            if parts:
                tar.extract(
                    member.replace(name=str(Path(*parts))), target, filter="tar"
                )


@contextmanager
def _only_one(directory: Path) -> Iterator[None]:
    import fcntl

    with (directory / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    Build(Path(sys.argv[1])).make()
