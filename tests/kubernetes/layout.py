"""Where a cluster's parts are: addresses, files, names. Shared by the supervisor inside and the tests outside."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

NODES = ("n1", "n2")
BRIDGE, NETWORK, CONTROL = "bjk0", "10.88.0.0/24", "10.88.0.1"
SERVICES = "10.96.0.0/16"
NAMESPACE = "belljar-test"
REGISTRY = "registry.invalid/"
"""The images' prefix: nothing answers there, all images are put on the nodes beforehand."""
PAUSE = f"{REGISTRY}pause:1"
ADMIN, CONTROLLER, SCHEDULER = "admin", "kcm", "sched"


def address(node: str) -> str:
    return f"10.88.0.1{node.removeprefix('n')}"


def pods(node: str) -> str:
    return f"10.89.{node.removeprefix('n')}.0/24"


@dataclass(frozen=True)
class Layout:
    """One cluster's directory."""

    root: Path
    programs: Path
    """Where build.py has put them."""

    @property
    def pki(self) -> Path:
        return self.root / "pki"

    @property
    def log(self) -> Path:
        return self.root / "log"

    @property
    def images(self) -> Path:
        return self.root / "images"

    @property
    def control(self) -> Path:
        """The supervisor's socket."""
        return self.root / "control.sock"

    @property
    def group(self) -> str:
        """The control group that all of it is in, in every hierarchy."""
        return f"belljar-kubernetes-{self.root.name}"

    def kubeconfig(self, user: str = ADMIN) -> Path:
        return self.pki / f"{user}.kubeconfig"

    def token(self, user: str) -> str:
        return f"{user}-token-{self.root.name}"
