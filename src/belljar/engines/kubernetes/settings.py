"""How Belljar uses a cluster: where, with which images, and what its Pods ask of the scheduler."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from belljar import environment
from belljar.errors import UsageError
from belljar.patterns import lazy_pattern
from belljar.records import record

PREFIX = "BELLJAR_KUBERNETES_"
_NAME = lazy_pattern(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")


@record
class Settings:
    """Each is a variable BELLJAR_KUBERNETES_NAME; the runtime class is `--runtime`."""

    context: str = ""
    """Of the kubeconfig (KUBECONFIG, ~/.kube/config); empty: its current one, or the Pod's own service account."""
    namespace: str = ""
    """Empty: the context's."""
    images: str = ""
    """What is put before the names of Belljar's own images: `registry.example.com/team/`."""
    runtime_class: str = ""
    node_selector: Mapping[str, str] = field(default_factory=dict)
    """A JSON object."""
    tolerations: tuple[Mapping[str, Any], ...] = ()
    """A JSON list, as in a Pod."""
    requests: float = 0.25
    """The part of the limits of memory and processors that the scheduler sets aside."""
    seccomp: str = ""
    """A profile that the nodes have (`profiles/belljar.json`); empty: the runtime's own."""
    machine: str = "x86_64"
    """The nodes' architecture: x86_64 or aarch64."""
    pull_secret: str = ""
    warm: bool = False
    """Take a Pod that waits in the namespace (`belljar kubernetes warm`), if there is one of the kind."""
    warm_pool: str = ""
    """Claim sandboxes of this kind from a SandboxWarmPool of agent-sandbox (`belljar kubernetes pool` prints one)."""
    priority_class: str = ""
    """The PriorityClass of the Pods."""


def from_environment(runtime_class: str = "") -> Settings:
    def text(name: str) -> str:
        return environment.value(PREFIX + name)

    return Settings(
        context=text("CONTEXT"),
        namespace=_name("NAMESPACE", text("NAMESPACE")),
        images=text("IMAGES"),
        runtime_class=_name("RUNTIME", runtime_class),
        node_selector=_json("NODE_SELECTOR", text("NODE_SELECTOR"), dict) or {},
        tolerations=tuple(_json("TOLERATIONS", text("TOLERATIONS"), list) or ()),
        requests=_ratio(text("REQUESTS")),
        seccomp=text("SECCOMP"),
        machine=_machine(text("MACHINE")),
        pull_secret=_name("PULL_SECRET", text("PULL_SECRET")),
        warm=_flag("WARM", text("WARM")),
        warm_pool=_name("WARM_POOL", text("WARM_POOL")),
        priority_class=_name("PRIORITY_CLASS", text("PRIORITY_CLASS")),
    )


def is_name(value: str) -> bool:
    return _NAME.fullmatch(value) is not None


def _name(setting: str, value: str) -> str:
    if value and not is_name(value):
        raise UsageError(
            f"{PREFIX}{setting}: {value!r} is not a name that Kubernetes takes"
        )
    return value


def _json(setting: str, value: str, kind: type) -> Any:
    if not value:
        return None
    try:
        found = json.loads(value)
    except ValueError as error:
        raise UsageError(f"{PREFIX}{setting}: not JSON ({error})") from None
    if not isinstance(found, kind):
        raise UsageError(
            f"{PREFIX}{setting}: must be a JSON {'object' if kind is dict else 'list'}"
        )
    return found


def _flag(setting: str, value: str) -> bool:
    if value not in ("", "0", "1"):
        raise UsageError(f"{PREFIX}{setting}: {value!r} must be 0 or 1")
    return value == "1"


def _ratio(value: str) -> float:
    try:
        ratio = float(value or Settings().requests)
    except ValueError:
        ratio = -1.0
    if not 0 <= ratio <= 1:
        raise UsageError(f"{PREFIX}REQUESTS: {value!r} is not a number from 0 to 1")
    return ratio


def _machine(value: str) -> str:
    if value not in ("", "x86_64", "aarch64"):
        raise UsageError(f"{PREFIX}MACHINE: {value!r} must be x86_64 or aarch64")
    return value or Settings().machine
