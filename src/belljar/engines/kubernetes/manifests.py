"""What a cluster needs for Belljar, as objects for `kubectl apply -f -`: data, in the order in which it must exist.

namespace      the Pod Security Standard `restricted` is enforced: our Pods meet it, nothing weaker starts there
rights         of the service account `belljar`: Pods of this namespace, exec in them, its leases; nothing else
walls          no network for sandboxes (a second wall: the first is a Pod without routes), a quota, a priority below
               all other Pods', which pushes nobody out
images         if any are named: pulled on every node before the first sandbox asks for them
service        two replicas of `belljar serve` on one PostgreSQL, which a drained node takes one by one. They share one
               state directory (ReadWriteMany), so they are one instance: each finds the sandboxes of the other
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from belljar import __version__
from belljar.engines.kubernetes import agent_sandbox, init_image
from belljar.engines.kubernetes.pod import CONFINED, NETWORK, prefixed
from belljar.images import catalog
from belljar.records import record

ACCOUNT = "belljar"
RIGHTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("", "pods", ("get", "list", "watch", "create", "patch", "delete")),
    (
        "",
        "pods/exec",
        ("get", "create"),
    ),  # a WebSocket asks with GET; newer servers want `create` as well
    ("coordination.k8s.io", "leases", ("get", "create", "update")),
)
"""API group, resource, verbs."""
PRIORITY = "belljar-sandboxes"
LEAST = -10  # for anything less a cluster's autoscaler adds no node
PORT = 8808
_UNPRIVILEGED = {
    "runAsNonRoot": True,
    "runAsUser": 65532,
    "runAsGroup": 65532,
    "seccompProfile": {"type": "RuntimeDefault"},
}
_LABELS = {"app.kubernetes.io/name": "belljar"}
Object = dict[str, Any]


@record
class Wanted:
    namespace: str = "belljar"
    images: str = ""
    """What is put before the images' names."""
    sandboxes: int = 50
    """How many Pods the quota allows."""
    memory: str = "64Gi"
    """What they may take together."""
    cpus: int = 32
    runtime_class: str = ""
    url: str = "https://belljar.example.com"
    """Of the service, as its clients know it."""
    secret: str = "belljar-database"
    """Holds the PostgreSQL address under `url`, and may hold the service's first key under `key`."""
    storage: str = "10Gi"
    """Of the replicas' shared state: workspaces, output, the trail."""
    storage_class: str = ""
    """One whose volumes several nodes may write; empty: the cluster's default."""
    agent_sandbox: bool = False
    """With the rights to claim sandboxes from its pools."""
    pulled: tuple[str, ...] = ()
    """Images that every node pulls beforehand."""


def manifests(wanted: Wanted, *, service: bool = True) -> list[Object]:
    own = [_namespace(wanted), _priority(), *_rights(wanted), *_walls(wanted)]
    own += [_pulling(wanted)] if wanted.pulled else []
    return [*own, *_service(wanted)] if service else own


def notes(wanted: Wanted) -> str:
    """What must be there already, as comments."""
    if not wanted.runtime_class:
        return (
            "# No RuntimeClass is named (--runtime NAME): a Pod that has a route is refused, so the nodes' CNI must\n"
            "# give these Pods no network.\n"
        )
    return (
        f"# Needs a RuntimeClass {wanted.runtime_class}, whose handler on the nodes gives a Pod no network. The init\n"
        "# proves it in each Pod; one that has a route is refused.\n"
    )


def rules(wanted: Wanted) -> list[Object]:
    more = agent_sandbox.RIGHTS if wanted.agent_sandbox else ()
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [*verbs]}
        for group, resource, verbs in (*RIGHTS, *more)
    ]


def as_text(objects: list[Object]) -> str:
    import yaml

    plain = json.loads(json.dumps(objects))  # what is shared would be an alias
    return "---\n".join(yaml.safe_dump(each, sort_keys=False) for each in plain)


def _object(
    version: str, kind: str, name: str, wanted: Wanted | None, **more: Any
) -> Object:
    metadata: Object = {"name": name, "labels": _LABELS}
    if wanted is not None:
        metadata["namespace"] = wanted.namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def _namespace(wanted: Wanted) -> Object:
    made = _object("v1", "Namespace", wanted.namespace, None)
    made["metadata"]["labels"] = {
        **_LABELS,
        "pod-security.kubernetes.io/enforce": "restricted",
    }
    return made


def _priority() -> Object:
    return _object(
        "scheduling.k8s.io/v1",
        "PriorityClass",
        PRIORITY,
        None,
        value=LEAST,
        preemptionPolicy="Never",
        description="Belljar's sandboxes: they give way to other Pods, and push none out.",
    )


def _rights(wanted: Wanted) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": wanted.namespace}
    role = {"apiGroup": group, "kind": "Role", "name": ACCOUNT}
    return [
        _object(
            "v1", "ServiceAccount", ACCOUNT, wanted, automountServiceAccountToken=False
        ),
        _object(f"{group}/v1", "Role", ACCOUNT, wanted, rules=rules(wanted)),
        _object(
            f"{group}/v1",
            "RoleBinding",
            ACCOUNT,
            wanted,
            roleRef=role,
            subjects=[subject],
        ),
    ]


def _walls(wanted: Wanted) -> list[Object]:
    closed = {
        "podSelector": {"matchLabels": {NETWORK: "none"}},
        "policyTypes": ["Ingress", "Egress"],
    }
    quota = {
        "pods": str(wanted.sandboxes + 4),
        "limits.memory": wanted.memory,
        "limits.cpu": str(wanted.cpus),
    }
    return [
        _object(
            "networking.k8s.io/v1",
            "NetworkPolicy",
            "belljar-sandboxes",
            wanted,
            spec=closed,
        ),
        _object("v1", "ResourceQuota", "belljar", wanted, spec={"hard": quota}),
    ]


def _pulling(wanted: Wanted) -> Object:
    """A DaemonSet. An image need not have any program: the init is copied in, and says its version."""
    labels = {**_LABELS, "app.kubernetes.io/component": "images", NETWORK: "none"}
    here = [{"name": "init", "mountPath": "/pull"}]
    small = {"cpu": "50m", "memory": "32Mi"}

    def container(name: str, image: str, *command: str) -> Object:
        return {
            "name": name,
            "image": image,
            "imagePullPolicy": "IfNotPresent",
            "command": [*command],
            "resources": {"limits": small, "requests": {"cpu": "5m", "memory": "8Mi"}},
            "securityContext": CONFINED,
            "volumeMounts": here,
        }

    init = init_image.reference(wanted.images)
    base, *pulled = (
        prefixed(catalog.reference(each), wanted.images)
        for each in ("base", *wanted.pulled)
    )
    spec: Object = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "priorityClassName": PRIORITY,
        "securityContext": _UNPRIVILEGED,
        "initContainers": [
            container("install-init", init, init_image.PROGRAM, "--install", "/pull/init"),
            *(
                container(f"image-{n}", image, "/pull/init", "--version")
                for n, image in enumerate(pulled)
            ),
        ],
        "containers": [
            container("wait", base, "/bin/sleep", "infinity"),
        ],
        "volumes": [{"name": "init", "emptyDir": {"medium": "Memory", "sizeLimit": "8Mi"}}],
    }  # fmt: skip
    if wanted.runtime_class:
        spec["runtimeClassName"] = wanted.runtime_class
    template = {"metadata": {"labels": labels}, "spec": spec}
    return _object(
        "apps/v1",
        "DaemonSet",
        "belljar-images",
        wanted,
        spec={"selector": {"matchLabels": labels}, "template": template},
    )


def _service(wanted: Wanted) -> list[Object]:
    labels = {**_LABELS, "app.kubernetes.io/component": "serve"}
    selector = {"matchLabels": labels}
    template = {"metadata": {"labels": labels}, "spec": _serving_pod(wanted)}
    rolling = {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0},
    }
    spec = {
        "replicas": 2,
        "selector": selector,
        "strategy": rolling,
        "template": template,
    }
    ports = [{"name": "http", "port": 80, "targetPort": PORT}]
    return [
        _state(wanted),
        _object("apps/v1", "Deployment", "belljar-serve", wanted, spec=spec),
        _object(
            "v1",
            "Service",
            "belljar-serve",
            wanted,
            spec={"selector": labels, "ports": ports},
        ),
        _object(
            "policy/v1",
            "PodDisruptionBudget",
            "belljar-serve",
            wanted,
            spec={"minAvailable": 1, "selector": selector},
        ),
    ]


def _state(wanted: Wanted) -> Object:
    spec: Object = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": wanted.storage}},
    }
    if wanted.storage_class:
        spec["storageClassName"] = wanted.storage_class
    return _object("v1", "PersistentVolumeClaim", "belljar-state", wanted, spec=spec)


def _serving_pod(wanted: Wanted) -> Object:
    # By its own address the other replica passes on what is asked of a session of this one.
    listen = ["--listen", f"$(POD_IP):{PORT}"]
    command = [
        "belljar",
        "serve",
        *listen,
        "--behind-proxy",
        "--public-url",
        wanted.url,
    ]
    environment = [
        {"name": "BELLJAR_ENGINE", "value": "kubernetes"},
        {"name": "BELLJAR_KUBERNETES_NAMESPACE", "value": wanted.namespace},
        {"name": "BELLJAR_KUBERNETES_IMAGES", "value": wanted.images},
        {"name": "BELLJAR_KUBERNETES_PRIORITY_CLASS", "value": PRIORITY},
        {"name": "BELLJAR_RUNTIME", "value": wanted.runtime_class},
        {"name": "BELLJAR_STATE", "value": "/state/belljar"},
        {"name": "BELLJAR_RUN", "value": "/state/run"},
        {
            "name": "POD_IP",
            "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}},
        },
        _from_secret("BELLJAR_DATABASE", wanted, "url"),
        _from_secret("BELLJAR_BOOTSTRAP_KEY", wanted, "key", optional=True),
    ]
    probe: Mapping[str, Any] = {
        "httpGet": {"path": "/readyz", "port": PORT},
        "periodSeconds": 5,
        "timeoutSeconds": 5,
    }
    return {
        "serviceAccountName": ACCOUNT,
        "automountServiceAccountToken": True,
        "terminationGracePeriodSeconds": 60,
        "securityContext": {**_UNPRIVILEGED, "fsGroup": 65532},
        "containers": [
            {
                "name": "serve",
                "image": f"{wanted.images}belljar/serve:{__version__}",
                "imagePullPolicy": "IfNotPresent",
                "command": command,
                "env": environment,
                "ports": [{"containerPort": PORT}],
                "readinessProbe": probe,
                "resources": {
                    "requests": {"cpu": "250m", "memory": "256Mi"},
                    "limits": {"cpu": "2", "memory": "1Gi"},
                },
                "securityContext": CONFINED,
                "volumeMounts": [
                    {"name": "state", "mountPath": "/state"},
                    {"name": "tmp", "mountPath": "/tmp"},
                ],
            }
        ],
        "volumes": [
            {
                "name": "state",
                "persistentVolumeClaim": {"claimName": "belljar-state"},
            },
            {"name": "tmp", "emptyDir": {}},
        ],
    }


def _from_secret(
    variable: str, wanted: Wanted, key: str, *, optional: bool = False
) -> Object:
    reference: Object = {"name": wanted.secret, "key": key}
    if optional:
        reference["optional"] = True
    return {"name": variable, "valueFrom": {"secretKeyRef": reference}}
