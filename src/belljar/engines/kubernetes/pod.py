"""A `SandboxSpec` as a Pod, and a Pod that the cluster has as `Protections`.

    init container   copies the init from an image of its own, as a user of its own: nobody else may read the copy
    container        the user's image, unchanged; its first process is the init, which listens for bridges

What a Pod cannot express the init does itself: limits of files and processes. The number of processes is bounded by
the user, so every sandbox has a user id that no other has. What came of all this is read back (`claims`), since a
webhook of the cluster may have changed it, and proved from inside (`sandbox/verification.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from belljar.engines.kubernetes import init_image
from belljar.engines.kubernetes.settings import Settings
from belljar.engines.spec import LABEL, Mount, Protections, SandboxSpec

GROUP = "belljar.org/"
SANDBOX, INSTANCE, STATE, NETWORK = (
    GROUP + name for name in ("sandbox", "instance", "state", "network")
)
FACTS = GROUP + "facts"
"""Belljar's own labels as JSON: values of a Kubernetes label are too short, and hold no colon."""
CONTAINER, INSTALLER = "sandbox", "install-init"
MASKED = frozenset(
    {
        "/proc/acpi",
        "/proc/kcore",
        "/proc/keys",
        "/proc/latency_stats",
        "/proc/timer_list",
        "/proc/timer_stats",
        "/proc/sched_debug",
        "/proc/scsi",
        "/sys/firmware",
    }
)
"""What every kubelet masks; a Pod cannot ask for more."""
DISK = 1 << 30
"""What a sandbox may write to the node's disk: only what Kubernetes itself keeps for it."""
_FOREIGN = (
    "hostNetwork",
    "hostPID",
    "hostIPC",
    "shareProcessNamespace",
    "ephemeralContainers",
    "hostAliases",
)
CONFINED: Mapping[str, Any] = {
    "allowPrivilegeEscalation": False,
    "privileged": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_OWN_VOLUME = {"name", "emptyDir"}


def pod(
    spec: SandboxSpec, name: str, settings: Settings, instance: str
) -> dict[str, Any]:
    labels = {
        SANDBOX: "true",
        INSTANCE: instance,
        STATE: "claimed",  # by its maker; waiting.py
        NETWORK: spec.network,
        GROUP + "session": spec.labels.get(LABEL + "session", ""),
    }
    annotations = {
        FACTS: json.dumps(spec.all_labels),
        # A node that is drained or scaled down waits for sandboxes; they end by their lease.
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": labels, "annotations": annotations},
        "spec": {
            **_placement(settings),
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "hostname": spec.hostname,
            **(
                {"dnsPolicy": "None", "dnsConfig": {"nameservers": ["127.0.0.1"]}}
                if spec.network == "none"
                else {}
            ),
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": spec.user.uid,
                "runAsGroup": spec.user.gid,
                "seccompProfile": _seccomp(settings),
            },
            "initContainers": [_installer(spec)],
            "containers": [_container(spec, settings)],
            "volumes": [*_volumes(spec)],
        },
    }


def prefixed(reference: str, images: str) -> str:
    """An image as the nodes know it: Belljar's own have the registry before their names."""
    return images + reference if reference.startswith("belljar/") else reference


def _placement(settings: Settings) -> dict[str, Any]:
    architecture = {
        "kubernetes.io/arch": "arm64" if settings.machine == "aarch64" else "amd64"
    }
    placement: dict[str, Any] = {
        "nodeSelector": {**architecture, **settings.node_selector}
    }
    if settings.runtime_class:
        placement["runtimeClassName"] = settings.runtime_class
    if settings.tolerations:
        placement["tolerations"] = [dict(each) for each in settings.tolerations]
    if settings.priority_class:
        placement["priorityClassName"] = settings.priority_class
    if settings.pull_secret:
        placement["imagePullSecrets"] = [{"name": settings.pull_secret}]
    return placement


def _seccomp(settings: Settings) -> dict[str, str]:
    if settings.seccomp:
        return {"type": "Localhost", "localhostProfile": settings.seccomp}
    return {"type": "RuntimeDefault"}


def _installer(spec: SandboxSpec) -> dict[str, Any]:
    [volume] = (mount for mount in spec.mounts if mount.kind == "volume")
    uid, _, gid = init_image.USER.partition(":")
    # What it asks for is set aside for the Pod's whole life, if that is more than the sandbox's own request.
    small = {"cpu": "100m", "memory": "32Mi"}
    least = {"cpu": "5m", "memory": "8Mi"}
    return {
        "name": INSTALLER,
        "image": volume.source,
        "imagePullPolicy": "IfNotPresent",
        "command": [init_image.PROGRAM, "--install", f"{volume.target}/init"],
        "resources": {"limits": small, "requests": least},
        "securityContext": {
            **CONFINED,
            "runAsUser": int(uid),
            "runAsGroup": int(gid),
        },
        "volumeMounts": [
            {"name": _volume_name(spec, volume), "mountPath": volume.target}
        ],
    }


def _container(spec: SandboxSpec, settings: Settings) -> dict[str, Any]:
    environment = {**spec.env, **spec.secrets}
    limits = {"memory": spec.memory, "cpu": spec.limits.cpus, "ephemeral-storage": DISK}
    requests = {
        "memory": round(spec.memory * settings.requests),
        "cpu": f"{max(1, round(spec.limits.cpus * settings.requests * 1000))}m",
    }
    return {
        "name": CONTAINER,
        "image": spec.image.ref,
        "imagePullPolicy": "IfNotPresent",
        "command": list(spec.argv),
        "args": [],
        "workingDir": spec.cwd,
        "env": [
            {"name": name, "value": value.replace("$", "$$")}
            for name, value in environment.items()
        ],
        "resources": {
            "limits": {
                key: f"{round(value * 1000)}m" if key == "cpu" else str(value)
                for key, value in limits.items()
            },
            "requests": {key: str(value) for key, value in requests.items()},
        },
        "securityContext": CONFINED,
        "volumeMounts": [
            {
                "name": _volume_name(spec, mount),
                "mountPath": mount.target,
                "readOnly": mount.kind == "volume",
            }
            for mount in spec.mounts
        ],
        "terminationMessagePolicy": "File",
        "stdin": False,
        "tty": False,
    }


def _volumes(spec: SandboxSpec) -> Iterator[dict[str, Any]]:
    for mount in spec.mounts:
        size = {"sizeLimit": str(mount.size)} if mount.size else {}
        yield {
            "name": _volume_name(spec, mount),
            "emptyDir": {"medium": "Memory", **size},
        }


def _volume_name(spec: SandboxSpec, mount: Mount) -> str:
    return f"v{spec.mounts.index(mount)}"


# Read back.


def facts(pod: Mapping[str, Any]) -> dict[str, str]:
    """Belljar's labels of a Pod; none if somebody else has written them."""
    try:
        found = json.loads((pod["metadata"].get("annotations") or {}).get(FACTS, "{}"))
    except ValueError:
        return {}
    return (
        {str(key): str(value) for key, value in found.items()}
        if isinstance(found, dict)
        else {}
    )


def claims(pod: Mapping[str, Any], settings: Settings) -> Protections:
    """None for what a Pod does not say: then the init must show it."""
    spec = pod["spec"]
    own = [each for each in spec["containers"] if each["name"] == CONTAINER]
    if len(own) != 1:
        return Protections(extras=frozenset({"the sandbox's container is not there"}))
    container, context = own[0], spec.get("securityContext") or {}
    security = container.get("securityContext") or {}
    limits = (container.get("resources") or {}).get("limits") or {}
    capabilities = security.get("capabilities") or {}
    dropped = [str(name).upper() for name in capabilities.get("drop") or []] == ["ALL"]
    shared = {"pid": "hostPID", "ipc": "hostIPC", "uts": "hostNetwork"}
    return Protections(
        user=f"{context.get('runAsUser')}:{context.get('runAsGroup')}",
        memory=quantity(limits.get("memory")),
        cpus=_cores(limits.get("cpu")),
        read_only_root=security.get("readOnlyRootFilesystem"),
        capabilities=frozenset(map(str, capabilities.get("add") or ()))
        if dropped
        else None,
        no_new_privileges=security.get("allowPrivilegeEscalation") is False,
        # What the profile holds is the node's matter: the init shows that a filter is on.
        seccomp="default"
        if context.get("seccompProfile") == _seccomp(settings)
        else "another profile",
        network=(pod["metadata"].get("labels") or {}).get(NETWORK),
        own_namespaces=frozenset(
            name for name, field in shared.items() if not spec.get(field)
        ),
        extras=frozenset(_extras(spec, settings)),
        removes_itself=spec.get("restartPolicy") == "Never",
    )


def _extras(spec: Mapping[str, Any], settings: Settings) -> Iterator[str]:
    """What nobody asked for: a webhook's sidecars, tokens, devices, directories of the node."""
    yield from (name for name in _FOREIGN if spec.get(name))
    if spec.get("automountServiceAccountToken") is not False:
        yield "a service account's token"
    if spec.get("runtimeClassName", "") != settings.runtime_class:
        yield f"another runtime class ({spec.get('runtimeClassName')})"
    names = [
        each["name"]
        for each in (*spec["containers"], *(spec.get("initContainers") or ()))
    ]
    yield from (
        f"the container {name}" for name in names if name not in (CONTAINER, INSTALLER)
    )
    yield from (
        f"the volume {each.get('name')}"
        for each in spec.get("volumes") or ()
        if set(each) - _OWN_VOLUME
    )
    for container in spec["containers"]:
        security = container.get("securityContext") or {}
        if (
            security.get("privileged")
            or security.get("procMount", "Default") != "Default"
        ):
            yield "privileged mode"
        yield from (
            name
            for name in ("envFrom", "ports", "volumeDevices", "lifecycle")
            if container.get(name)
        )
        yield from (
            key
            for key in ((container.get("resources") or {}).get("limits") or {})
            if key not in _RESOURCES
        )
        yield from (
            "a variable from elsewhere"
            for each in container.get("env") or ()
            if "valueFrom" in each
        )


_RESOURCES = {"cpu", "memory", "ephemeral-storage"}
_UNITS = {
    "": 1,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "Ki": 1 << 10,
    "Mi": 1 << 20,
    "Gi": 1 << 30,
    "Ti": 1 << 40,
}


def quantity(text: Any) -> int | None:
    """Bytes in Kubernetes' spelling: 512Mi, 1G, 1073741824."""
    digits = str(text or "").rstrip("kKMGTi")
    unit = str(text or "")[len(digits) :]
    return int(digits) * _UNITS[unit] if digits.isdigit() and unit in _UNITS else None


def _cores(text: Any) -> float | None:
    number = str(text or "")
    try:
        return int(number[:-1]) / 1000 if number.endswith("m") else float(number)
    except ValueError:
        return None
