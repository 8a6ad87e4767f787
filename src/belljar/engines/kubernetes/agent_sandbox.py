"""Sandboxes from a `SandboxWarmPool`, where the objects of agent-sandbox are installed (extensions.agents.x-k8s.io).

    pool     a template with the very Pod that we would make, and how many wait (`belljar kubernetes pool` prints both)
    claim    names the pool and nothing else: workspace, policy and environment go over the link, after it
    sandbox  what its controller gives to the claim; the Pod has the sandbox's name and is owned by it

Nothing is believed: the Pod must be what we would have made, it becomes ours by one patch, and its init testifies as
that of a new Pod. Who removes the claim removes all of it. A Pod that ends by itself, with its lease, takes its claim
along, so a host that died leaves nothing.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from belljar.engines.kubernetes import pod, waiting
from belljar.engines.kubernetes.api import Answered, Api, selector
from belljar.engines.kubernetes.settings import Settings, is_name
from belljar.engines.kubernetes.watch import ObjectWatch
from belljar.engines.spec import SandboxSpec
from belljar.errors import EngineError
from belljar.patience import stretched

GROUP, VERSION = "extensions.agents.x-k8s.io", "v1beta1"
CLAIMS, POOLS, TEMPLATES = "sandboxclaims", "sandboxwarmpools", "sandboxtemplates"
RIGHTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (GROUP, CLAIMS, ("get", "list", "watch", "create", "delete")),
    (GROUP, POOLS, ("get",)),
    (GROUP, TEMPLATES, ("get",)),
)
"""API group, resource, verbs."""
CLAIM = pod.GROUP + "claim"
LEASE = 7 * 86400.0
"""A Pod that nobody claims ends after that."""
CLAIM_SECONDS = 120.0  # an empty pool's controller starts a new Pod
_KEPT_LABELS = (pod.SANDBOX, pod.NETWORK)
"""The controller holds a Pod to its template's labels: only what never changes."""


class WarmPool:
    def __init__(self, api: Api, settings: Settings, instance: str = "") -> None:
        self.name, self._settings, self._api = settings.warm_pool, settings, api
        self._instance = instance
        self._watch = ObjectWatch(Claims(api), {pod.INSTANCE: instance})
        self._claims: dict[str, str] = {}
        """Pod → its claim."""

    def take(self, spec: SandboxSpec) -> waiting.Taken | None:
        """None: the pool makes other sandboxes than this one."""
        if self._own(spec, self._template()) is None:
            return None
        claim = f"belljar-{secrets.token_hex(8)}"
        taken = None
        try:
            self._create(claim)
            taken = self._become_ours(self._await_sandbox(claim), claim, spec)
        finally:
            if taken is None:
                with suppress(EngineError):
                    self._delete(claim)
        return taken

    def note(self, found: Mapping[str, Any]) -> None:
        """Remember a Pod's claim, also of another process of this instance."""
        claim = (found["metadata"].get("annotations") or {}).get(CLAIM)
        if claim:
            self._claims[str(found["metadata"]["name"])] = str(claim)

    def release(self, id: str) -> bool:
        """Have the claim's controller remove the Pod. False: it has no claim."""
        claim = self._claims.pop(id, None)
        if claim is None or not is_name(claim):
            return False
        self._delete(claim)
        return True

    def close(self) -> None:
        self._watch.close()

    def check(self) -> None:
        """EngineError if there is no such pool, or no template for it."""
        self._template()

    def _template(self) -> Mapping[str, Any]:
        pool = self._get(POOLS, self.name)
        try:
            name = str(pool["spec"]["sandboxTemplateRef"]["name"])
            made = self._get(TEMPLATES, name)["spec"]["podTemplate"]
        except (KeyError, TypeError):
            made = None
        if not isinstance(made, Mapping):
            raise EngineError(f"the SandboxWarmPool {self.name} has no Pod template")
        return {"metadata": {}, **made}

    def _own(self, spec: SandboxSpec, found: Mapping[str, Any]) -> SandboxSpec | None:
        """The spec as this Pod has it. None: it is not the Pod that we would have made."""
        own = waiting.respelled(spec, found)
        if own is None:
            return None
        asked = pod.pod(own, "", self._settings, "")["spec"]
        return own if waiting.holds(asked, found) else None

    def _become_ours(
        self, name: str, claim: str, spec: SandboxSpec
    ) -> waiting.Taken | None:
        found = self._api.get(name)
        if found is None or not _is_fresh(found, name):
            raise EngineError(
                f"the sandbox {name} that the pool {self.name} gave has no Pod of its own that is unused"
            )
        own = self._own(spec, found)
        if own is None:
            return None  # of an older template
        same = {
            "op": "test",
            "path": "/metadata/uid",
            "value": found["metadata"]["uid"],
        }
        mark = {"op": "add", "path": f"/metadata/annotations/{CLAIM.replace('/', '~1')}",
                "value": claim}  # fmt: skip
        self._api.patch(name, [same, *waiting.claim(own, self._instance), mark])
        self._claims[name] = claim
        return waiting.Taken(name, own)

    def _await_sandbox(self, claim: str) -> str:
        """The name of what the controller gave; it is also its Pod's."""
        patience = stretched(CLAIM_SECONDS)
        found = self._watch.wait(claim, _is_ready, time.monotonic() + patience)
        if found is None:
            raise EngineError(f"somebody removed the claim on the pool {self.name}")
        if not _is_ready(found):
            told = str(_ready(found).get("message") or "")[:300]
            raise EngineError(
                f"the pool {self.name} gave no sandbox within {patience:.0f} s: "
                f"{told or 'no controller of agent-sandbox answered the claim'}"
            )
        return _sandbox_of(found)

    def _create(self, claim: str) -> None:
        body = {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": "SandboxClaim",
            "metadata": {"name": claim, "labels": {pod.INSTANCE: self._instance}},
            "spec": {
                "warmPoolRef": {"name": self.name},
                "lifecycle": {"ttlSecondsAfterFinished": 0, "shutdownPolicy": "Delete"},
            },
        }
        try:
            path = path_of(self._api, CLAIMS)
            self._api.request("claiming a sandbox", "POST", path, body)
        except Answered as error:
            if error.status != 409:  # of our own earlier request, whose answer was lost
                raise

    def _delete(self, claim: str) -> None:
        try:
            path = path_of(self._api, CLAIMS, claim)
            self._api.request("removing the claim", "DELETE", path)
        except Answered as error:
            if error.status != 404:
                raise

    def _get(self, kind: str, name: str) -> Mapping[str, Any]:
        if not is_name(name):
            raise EngineError(f"{name[:80]!r} cannot be one of {kind}")
        try:
            path = path_of(self._api, kind, name)
            return self._api.request(f"looking at {kind}", "GET", path)
        except Answered as error:
            if error.status != 404:
                raise
            raise EngineError(
                f"no {name} of {kind}.{GROUP} in namespace {self._api.namespace}: agent-sandbox must be "
                "installed, and `belljar kubernetes pool` prints a pool and its template"
            ) from error


class Claims:
    """What a watch asks, of claims."""

    def __init__(self, api: Api) -> None:
        self._api = api

    def get(self, name: str) -> dict[str, Any] | None:
        try:
            path = path_of(self._api, CLAIMS, name)
            return self._api.request("looking at the claim", "GET", path)
        except Answered as error:
            if error.status != 404:
                raise
            return None

    def list(self, labels: Mapping[str, str]) -> tuple[list[dict[str, Any]], str]:
        path = f"{path_of(self._api, CLAIMS)}?labelSelector={selector(labels)}"
        found = self._api.request("listing the claims", "GET", path)
        return found["items"], str(found["metadata"]["resourceVersion"])

    def watch(
        self, labels: Mapping[str, str], version: str
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        path = path_of(self._api, CLAIMS)
        return self._api.changes("watching the claims", path, labels, version)


def path_of(api: Api, kind: str, name: str = "") -> str:
    path = f"/apis/{GROUP}/{VERSION}/namespaces/{api.namespace}/{kind}"
    return f"{path}/{name}" if name else path


def objects(
    name: str, size: int, namespace: str, spec: SandboxSpec, settings: Settings
) -> list[dict[str, Any]]:
    """The pool and its template, for `kubectl apply -f -`."""
    made = pod.pod(spec, "", settings, "")
    labels = made["metadata"]["labels"]
    annotations = dict(made["metadata"]["annotations"])
    annotations.pop(pod.FACTS)
    template = {
        "podTemplate": {
            "metadata": {
                "labels": {key: labels[key] for key in _KEPT_LABELS},
                "annotations": annotations,
            },
            "spec": made["spec"],
        },
        "service": False,
        # A managed policy would add a way out to ours, which has none.
        "networkPolicyManagement": "Unmanaged",
        "envVarsInjectionPolicy": "Disallowed",
    }
    pool = {"replicas": size, "sandboxTemplateRef": {"name": name}}
    return [
        {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": kind,
            "metadata": {"name": name, "namespace": namespace},
            "spec": body,
        }
        for kind, body in (("SandboxTemplate", template), ("SandboxWarmPool", pool))
    ]


def _ready(claim: Mapping[str, Any]) -> Mapping[str, Any]:
    for each in (claim.get("status") or {}).get("conditions") or ():
        if each.get("type") == "Ready":
            return dict(each)
    return {}


def _is_ready(claim: Mapping[str, Any]) -> bool:
    return _ready(claim).get("status") == "True"


def _sandbox_of(claim: Mapping[str, Any]) -> str:
    name = str(((claim.get("status") or {}).get("sandbox") or {}).get("name"))
    if not is_name(name):
        raise EngineError(f"the claim is ready but names no sandbox ({name[:80]!r})")
    return name


def _is_fresh(found: Mapping[str, Any], name: str) -> bool:
    """A running Pod of the sandbox of this name, which no instance has."""
    metadata = found["metadata"]
    owners = [
        each
        for each in metadata.get("ownerReferences") or ()
        if each.get("controller") and each.get("kind") == "Sandbox"
    ]
    return (
        [each.get("name") for each in owners] == [name]
        and not (metadata.get("labels") or {}).get(pod.INSTANCE)
        and waiting.runs(found)
    )
