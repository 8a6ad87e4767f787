"""What a cluster needs for Belljar, as objects for `kubectl apply -f -`: data, in the order in which it must exist.

namespace      the Pod Security Standard `restricted` is enforced: our Pods meet it, nothing weaker starts there
rights         of the service account `belljar`: Pods of this namespace, exec in them, its leases; nothing else
walls          no network for sandboxes (a second wall: the first is a Pod without routes), a quota
service        two replicas of `belljar serve` on one PostgreSQL, which a drained node takes one by one. They share one
               state directory (ReadWriteMany), so they are one instance: each finds the sandboxes of the other
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from belljar import __version__
from belljar.engines.kubernetes.pod import NETWORK
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
PORT = 8808
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


def manifests(wanted: Wanted, *, service: bool = True) -> list[Object]:
    own = [_namespace(wanted), *_rights(wanted), *_walls(wanted)]
    return [*own, *_service(wanted)] if service else own


def rules() -> list[Object]:
    return [
        {"apiGroups": [group], "resources": [resource], "verbs": [*verbs]}
        for group, resource, verbs in RIGHTS
    ]


def as_text(objects: list[Object]) -> str:
    import yaml

    return "---\n".join(yaml.safe_dump(each, sort_keys=False) for each in objects)


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


def _rights(wanted: Wanted) -> list[Object]:
    group = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": ACCOUNT, "namespace": wanted.namespace}
    role = {"apiGroup": group, "kind": "Role", "name": ACCOUNT}
    return [
        _object(
            "v1", "ServiceAccount", ACCOUNT, wanted, automountServiceAccountToken=False
        ),
        _object(f"{group}/v1", "Role", ACCOUNT, wanted, rules=rules()),
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
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "runAsGroup": 65532,
            "fsGroup": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
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
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "readOnlyRootFilesystem": True,
                    "capabilities": {"drop": ["ALL"]},
                },
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
