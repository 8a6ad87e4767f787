"""Pods that wait for their first use, shared by all hosts of a namespace.

A host starts a Pod, proves what protects it, and *offers* it: nobody's instance owns it from then on. Who needs one of
its kind *takes* it with one JSON patch that holds only while the Pod is as it was listed, so of several takers one
wins. Then its init testifies again, to its new host. Each is used once; one that nobody takes ends with its lease.

Two Pods are of one kind if they differ only in what every sandbox has of its own: name, user, private directory,
token, lease.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import random
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from belljar.engines.kubernetes import pod
from belljar.engines.kubernetes.api import Answered, Api, selector
from belljar.engines.kubernetes.settings import Settings
from belljar.engines.spec import SandboxSpec, User
from belljar.errors import EngineError
from belljar.layout import PRIVATE
from belljar.patterns import lazy_pattern
from belljar.records import record

KIND = pod.GROUP + "kind"
WAITING, CLAIMED = "waiting", "claimed"
LOOKED_AT = 16
"""So many Pods are listed for one claim: enough for that many hosts at once."""
TRIES = 4
CONFLICTS = (404, 409, 422)
"""Somebody else took it, or it ended."""
COMPARED_LATER = ("resources", "tolerations")
"""The server writes them in its own way; `pod.claims` and the init say what became of the limits."""
TOKEN = "BELLJAR_TOKEN"
_PRIVATE = lazy_pattern(PRIVATE + "-[0-9a-f]{16}")


@record
class Taken:
    id: str
    spec: SandboxSpec
    """What was asked for, with what the Pod has of its own."""


def kind(spec: SandboxSpec, settings: Settings) -> str:
    made = pod.pod(spec, "", settings, "")
    network = made["metadata"]["labels"][pod.NETWORK]
    asked = made["spec"]
    for owner in ("runAsUser", "runAsGroup"):
        asked["securityContext"].pop(owner)
    _without_lease(asked["containers"][0]["command"])
    text = json.dumps([network, asked], sort_keys=True)
    text = text.replace(spec.private, "PRIVATE").replace(_token(spec), "TOKEN")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def take(
    api: Api, spec: SandboxSpec, settings: Settings, instance: str
) -> Taken | None:
    """None: nothing of this kind waits."""
    wanted = {pod.STATE: WAITING, KIND: kind(spec, settings)}
    for _ in range(TRIES):
        found = [each for each in listed(api, wanted, LOOKED_AT) if runs(each)]
        if not found:
            return None
        chosen = random.choice(found)
        own = respelled(spec, chosen)
        if own is None or not holds(pod.pod(own, "", settings, "")["spec"], chosen):
            return None  # made by another release, or by somebody else
        if _patched(api, chosen, claim(own, instance)):
            return Taken(str(chosen["metadata"]["name"]), own)
    return None


def offer(api: Api, id: str, kind: str) -> None:
    """Give a proved Pod to whoever takes it first."""
    found = api.get(id)
    labels = {pod.STATE: WAITING, pod.INSTANCE: "", pod.GROUP + "session": ""}
    if found is None or not _patched(api, found, _labelled({**labels, KIND: kind}, {})):
        raise EngineError(f"the Pod {id} ended before it could wait")


def tidy(api: Api, kind: str) -> int:
    """Remove the Pods of this kind that ended while they waited, and count those that wait."""
    waiting = 0
    for each in listed(api, {pod.STATE: WAITING, KIND: kind}):
        if runs(each):
            waiting += 1
        elif (each.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            with suppress(EngineError):
                api.delete(str(each["metadata"]["name"]))
    return waiting


def listed(api: Api, labels: Mapping[str, str], most: int = 500) -> list[Any]:
    path = f"/api/v1/namespaces/{api.namespace}/pods"
    answer = api.request(
        "looking for a Pod that waits",
        "GET",
        f"{path}?labelSelector={selector(labels)}&limit={most}",
    )
    return list(answer.get("items") or ())


def respelled(spec: SandboxSpec, found: Mapping[str, Any]) -> SandboxSpec | None:
    """The spec with what this Pod has of its own. None: it has nothing that we could have given it."""
    try:
        [container] = found["spec"]["containers"]
        context = found["spec"]["securityContext"]
        argv = tuple(map(str, container["command"]))
        environment = {each["name"]: each.get("value") for each in container["env"]}
        user = User(int(context["runAsUser"]), int(context["runAsGroup"]))
        token = str(environment[TOKEN])
    except (KeyError, TypeError, ValueError):
        return None
    private = posixpath.dirname(argv[0]) if argv else ""
    if not _PRIVATE.fullmatch(private) or user.uid < 1 or len(token) != 64:
        return None
    if _shared(argv, private) != _shared(spec.argv, spec.private):
        return None
    mounts = tuple(
        replace(
            each,
            target=each.target.replace(spec.private, private),
            owner=None if each.owner is None else (user.uid, user.gid),
        )
        for each in spec.mounts
    )
    return replace(
        spec,
        argv=argv,
        private=private,
        user=user,
        mounts=mounts,
        secrets={**spec.secrets, TOKEN: token},
    )


def holds(asked: Any, there: Any) -> bool:
    """Whether a Pod is what we would have made; the server adds defaults, and spells quantities its own way."""
    if isinstance(there, Mapping) and "metadata" in there:
        there = there["spec"]
    if isinstance(asked, Mapping):
        return isinstance(there, Mapping) and all(
            key in COMPARED_LATER
            or (value in ({}, [], "", False) and key not in there)
            or holds(value, there.get(key))
            for key, value in asked.items()
        )
    if isinstance(asked, list):
        return len(asked) == len(there or ()) and all(
            holds(one, other) for one, other in zip(asked, there or (), strict=True)
        )
    if asked == there:
        return True
    # A size may be spelled 16Mi.
    return isinstance(asked, str) and str(pod.quantity(there)) == asked


def runs(found: Mapping[str, Any]) -> bool:
    phase = (found.get("status") or {}).get("phase")
    return phase == "Running" and not found["metadata"].get("deletionTimestamp")


def claim(spec: SandboxSpec, instance: str) -> list[dict[str, Any]]:
    made = pod.pod(spec, "", Settings(), instance)["metadata"]
    return _labelled(made["labels"], made["annotations"])


def _labelled(
    labels: Mapping[str, str], annotations: Mapping[str, str]
) -> list[dict[str, Any]]:
    values = {"labels": labels, "annotations": annotations or {pod.FACTS: "{}"}}
    return [
        {
            "op": "add",  # replaces what is there
            "path": f"/metadata/{where}/{name.replace('/', '~1')}",
            "value": value,
        }
        for where, entries in values.items()
        for name, value in entries.items()
    ]


def _patched(
    api: Api, found: Mapping[str, Any], operations: list[dict[str, Any]]
) -> bool:
    """Whether the Pod was still as it was found, and is now as it is wanted."""
    metadata = found["metadata"]
    unchanged = {
        "op": "test",
        "path": "/metadata/resourceVersion",
        "value": metadata["resourceVersion"],
    }
    try:
        api.patch(str(metadata["name"]), [unchanged, *operations])
    except Answered as error:
        if error.status in CONFLICTS:
            return False
        raise
    return True


def _shared(argv: Sequence[str], private: str) -> list[str]:
    """The words of PID 1 that all of a kind have."""
    words = [word.replace(private, "PRIVATE") for word in argv]
    _without_lease(words)
    return words


def _without_lease(command: list[str]) -> None:
    if "--lease" in command:
        command[command.index("--lease") + 1] = ""


def _token(spec: SandboxSpec) -> str:
    return spec.secrets.get(TOKEN) or "TOKEN"
