"""What `belljar doctor` asks a cluster: whether it answers, and each right that the engine needs."""

from __future__ import annotations

from collections.abc import Iterator

from belljar.engines.base import Finding
from belljar.engines.kubernetes import agent_sandbox
from belljar.engines.kubernetes.api import Api
from belljar.engines.kubernetes.manifests import RIGHTS
from belljar.engines.kubernetes.settings import Settings
from belljar.errors import EngineError

REVIEW = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
APPLY = "`belljar kubernetes manifests{} | kubectl apply -f -` gives them to the service account `belljar`"
POOL = "`belljar kubernetes pool NAME N | kubectl apply -f -` makes one, where agent-sandbox is installed"


def findings(api: Api, settings: Settings) -> Iterator[Finding]:
    yield from _rights(api, settings)
    yield from _pool(api, settings)
    yield _network(settings)
    yield _seccomp(settings)
    yield _images(settings)


def _pool(api: Api, settings: Settings) -> Iterator[Finding]:
    if not settings.warm_pool:
        return
    try:
        agent_sandbox.WarmPool(api, settings).check()
    except EngineError as error:
        yield Finding("warm pool", False, str(error), POOL)
    else:
        yield Finding("warm pool", True, f"claims go to {settings.warm_pool}")


def _rights(api: Api, settings: Settings) -> Iterator[Finding]:
    missing = []
    wanted = (*RIGHTS, *(agent_sandbox.RIGHTS if settings.warm_pool else ()))
    for group, resource, verbs in wanted:
        name, _, subresource = resource.partition("/")
        for verb in verbs:
            asked = {
                "namespace": api.namespace,
                "verb": verb,
                "group": group,
                "resource": name,
                "subresource": subresource,
            }
            body = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": {"resourceAttributes": asked},
            }
            try:
                answer = api.request("asking for a right", "POST", REVIEW, body)
            except EngineError as error:
                yield Finding(
                    "rights",
                    False,
                    str(error),
                    "check the credentials of the kubeconfig",
                )
                return
            if not (answer.get("status") or {}).get("allowed"):
                missing.append(f"{verb} {resource}")
    if missing:
        yield Finding(
            "rights",
            False,
            f"not allowed in namespace {api.namespace}: {', '.join(missing)}",
            APPLY.format(" --agent-sandbox" if settings.warm_pool else ""),
        )
    else:
        yield Finding(
            "rights", True, f"all that the engine needs in namespace {api.namespace}"
        )


def _network(settings: Settings) -> Finding:
    if settings.runtime_class:
        detail = f"Pods of the runtime class {settings.runtime_class}; the init proves that they have no route"
        return Finding("network", True, detail)
    fix = "name a RuntimeClass whose handler gives a Pod no network (--runtime NAME; README of the engine)"
    return Finding(
        "network",
        True,
        "Pods as the cluster makes them: one with a route is refused",
        fix,
    )


def _seccomp(settings: Settings) -> Finding:
    if settings.seccomp:
        return Finding("seccomp profile", True, f"{settings.seccomp}, on each node")
    fix = "for a narrower one put a profile on the nodes, and its name into BELLJAR_KUBERNETES_SECCOMP"
    return Finding("seccomp profile", True, "the container runtime's own", fix)


def _images(settings: Settings) -> Finding:
    if settings.images:
        return Finding("images", True, f"Belljar's own come from {settings.images}")
    fix = "push them, and put the registry into BELLJAR_KUBERNETES_IMAGES (`belljar kubernetes image` writes the init's)"
    return Finding(
        "images",
        True,
        "Belljar's own have no registry before their names: the nodes must have them",
        fix,
    )
