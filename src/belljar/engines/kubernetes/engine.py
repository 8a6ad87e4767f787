"""Sandboxes as Pods: the engine's verbs.

A sandbox is a Pod that only we make: `create` asks for it, `start` waits until its init runs. Its processes are far
away, so the link is a bridge (exec_stream.py), the workspace is copied, and the init testifies what is in force. A Pod
ends with its init, whose lease ends it where no host is connected; what is left then is an object of the API, which
`state` and `destroy` remove.

Pods are told apart by the instance that made them: one state directory is one instance (instance.py). Others' Pods are
neither listed nor removed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from belljar.engines.base import Description, Launched, Listed
from belljar.engines.capabilities import Capabilities
from belljar.engines.kubernetes import checks, exec_stream, init_image, pod, waiting
from belljar.engines.kubernetes.agent_sandbox import WarmPool
from belljar.engines.kubernetes.api import Api
from belljar.engines.kubernetes.instance import Instance
from belljar.engines.kubernetes.settings import Settings
from belljar.engines.kubernetes.watch import ObjectWatch
from belljar.engines.spec import Image, SandboxSpec, User
from belljar.errors import EngineError, ImageMissing, Unsupported, UsageError
from belljar.patience import about_to_wait, stretched

START_SECONDS = 120.0  # an image may have to be pulled
GONE_SECONDS = 30.0
RELEASED_SECONDS = 10.0  # the controller of a claim removes its Pod
USERS = range(200_000, 2_000_000_000)
"""Each sandbox gets a user id of its own: the limit of processes is one of the user's, on the node."""
CAN = Capabilities(
    link="exec",
    workspace=False,
    binds=False,
    overlays=False,
    sees_processes=False,
    sees_groups=False,
    removes_itself=False,
    own_namespaces=frozenset({"ipc", "pid", "uts"}),
    masks=pod.MASKED,
    limits_processes=False,
    gives_user=False,
    pauses=False,
)
DOES_WITHOUT = (
    "a workspace is copied in and out (--staged): --workspace as it is, --mount, --cache and --disk need this machine",
    "no --root, no account name for the user, no limit on the number of files",
    "what the cluster does not enforce stops the run: a network policy is no proof, only a Pod without routes is",
)
_FATAL = ("ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "InvalidImageName")
_BROKEN = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
    "CrashLoopBackOff",
)
_STATES = {
    "Pending": "created",
    "Running": "running",
    "Succeeded": "exited",
    "Failed": "dead",
    "Unknown": "unknown",
}


class KubernetesEngine:
    name = "kubernetes"
    capabilities = CAN
    images = None

    def __init__(self, settings: Settings, state: Path) -> None:
        self.settings, self.api = settings, Api(settings)
        self.machine, self.runtime = settings.machine, settings.runtime_class
        self.host = f"{self.api.server}, namespace {self.api.namespace}"
        self.instance = Instance(self.api, state / "kubernetes")
        self.identity = (
            f"kubernetes {self.api.server} {self.api.namespace} {self.instance.id}"
        )
        self._watch = ObjectWatch(self.api, {pod.INSTANCE: self.instance.id})
        self._pool = WarmPool(self.api, settings, self.instance.id)
        self.takes = settings.warm or bool(self._pool.name)
        """Whether a Pod that waits in the namespace is taken instead of a new one."""

    def close(self) -> None:
        self._watch.close()
        self._pool.close()
        self.instance.close()
        self.api.close()

    def user(self, uid: int, gid: int, *, root: bool = False) -> User:
        if root:
            raise UsageError(
                "--root needs a user namespace for each sandbox, which Pods do not have here: "
                "use the engine oci (--engine oci)"
            )
        own = USERS[secrets.randbelow(len(USERS))]
        return User(own, own)

    # A Pod's life

    def create(self, spec: SandboxSpec, name: str) -> str:
        if spec.machine not in (None, self.machine):
            raise EngineError(
                f"the sandbox was made for {spec.machine}, but the nodes are {self.machine}"
            )
        self.instance.hold()
        made = self.api.create(pod.pod(spec, name, self.settings, self.instance.id))
        return str(made["metadata"]["name"])

    def start(self, id: str) -> Launched:
        found = self._watch.wait(
            id, _has_started, time.monotonic() + stretched(START_SECONDS)
        )
        if found is None:
            raise EngineError(f"no sandbox {id} that could be started")
        if reason := _failure(found):
            self.destroy(id)
            raise reason
        if not _is_running(found):
            self.destroy(id)
            raise EngineError(
                f"the Pod did not start within {stretched(START_SECONDS):.0f} s: {_waits_for(found)}"
            )
        return self._launched(found)

    def take(self, spec: SandboxSpec) -> waiting.Taken | None:
        if not self.takes:
            return None
        self.instance.hold()
        if self._pool.name:
            taken = self._pool.take(spec)
            if taken or not self.settings.warm:
                return taken
        return waiting.take(self.api, spec, self.settings, self.instance.id)

    def offer(self, id: str, spec: SandboxSpec) -> str:
        kind = waiting.kind(spec, self.settings)
        waiting.offer(self.api, id, kind)
        return kind

    def count_waiting(self, kind: str) -> int:
        """Also removes what those left that ended."""
        return waiting.tidy(self.api, kind)

    def inspect(self, id: str) -> Launched:
        found = self.api.get(id)
        if found is None or not _is_running(found):
            raise EngineError(f"no such sandbox: {id}")
        return self._launched(found)

    def state(self, id: str) -> str | None:
        """Also removes what an ended sandbox left."""
        found = self.api.get(id)
        if found is None:
            return None
        self._pool.note(found)
        state = _STATES.get(str(found["status"].get("phase")), "unknown")
        if state in ("exited", "dead"):
            if not self._pool.release(id):
                self.api.delete(id)
            return None
        return "removing" if found["metadata"].get("deletionTimestamp") else state

    def destroy(self, id: str) -> None:
        """With no grace: the kubelet kills PID 1, and with it everything."""
        # A Pod that is removed before its claim comes again.
        if self._pool.release(id) and self._is_gone(id, RELEASED_SECONDS):
            return
        if self.api.delete(id):
            self._is_gone(id, GONE_SECONDS)

    def _is_gone(self, id: str, patience: float) -> bool:
        deadline = time.monotonic() + stretched(patience)
        while self.api.get(id) is not None:
            if time.monotonic() > deadline:
                return False
            about_to_wait()
            time.sleep(0.05)
        return True

    def pause(self, id: str) -> None:
        raise Unsupported("a cluster cannot freeze a Pod")

    def resume(self, id: str) -> None:
        raise Unsupported("a cluster cannot freeze a Pod")

    def list(self) -> list[Listed]:
        pods, _ = self.api.list({pod.SANDBOX: "true", pod.INSTANCE: self.instance.id})
        for each in pods:
            self._pool.note(each)
        found = (
            (
                each["metadata"]["name"],
                str((each.get("status") or {}).get("phase")),
                each,
            )
            for each in pods
        )
        return [
            Listed(name, _STATES.get(phase, "unknown"), pod.facts(each))
            for name, phase, each in found
        ]

    def bridge(self, id: str, argv: Sequence[str]) -> exec_stream.ExecStream:
        return exec_stream.connect(self.api, id, pod.CONTAINER, argv)

    def install_init(self, binary: Path, image: str) -> str:
        """The image that brings the init. Nobody uploads it here: the registry has it (`belljar kubernetes image`)."""
        return init_image.reference(self.settings.images, self.machine)

    def image(self, reference: str) -> Image | None:
        """Whether there is one the nodes find out; a name of ours is looked for in the settings' registry."""
        return Image(pod.prefixed(reference, self.settings.images))

    def describe(self) -> Description:
        about = self.api.version()
        return Description(
            version=about.get("gitVersion", "?"),
            cgroup_driver="the nodes'",
            can_limit={"memory": True, "cpus": True, "pids": True, "swap": True},
            seccomp=True,
            does_without=DOES_WITHOUT,
            storage="the nodes'",
            findings=tuple(checks.findings(self.api, self.settings)),
        )

    def _launched(self, found: Mapping[str, Any]) -> Launched:
        self._pool.note(found)
        return Launched(
            str(found["metadata"]["name"]), 1, pod.claims(found, self.settings)
        )


def _is_running(found: Mapping[str, Any]) -> bool:
    statuses = (found.get("status") or {}).get("containerStatuses") or ()
    return any(
        each["name"] == pod.CONTAINER and (each.get("state") or {}).get("running")
        for each in statuses
    )


def _has_started(found: Mapping[str, Any]) -> bool:
    """Or never will."""
    return _is_running(found) or _failure(found) is not None


def _failure(found: Mapping[str, Any]) -> EngineError | None:
    status = found.get("status") or {}
    if found["metadata"].get("deletionTimestamp"):
        return EngineError("the Pod was removed while it started")
    if status.get("phase") in ("Failed", "Succeeded"):
        return EngineError(
            f"the sandbox's init ended as soon as it had started: {_ending(status)}"
        )
    for each in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        waiting = (each.get("state") or {}).get("waiting") or {}
        said = f"{waiting.get('reason')}: {str(waiting.get('message') or '')[:300]}"
        if waiting.get("reason") in _FATAL:
            return ImageMissing(
                f"the node cannot get the image {each.get('image')} ({said})"
            )
        if waiting.get("reason") in _BROKEN:
            return EngineError(f"the node cannot start the sandbox ({said})")
    return None


def _ending(status: Mapping[str, Any]) -> str:
    if status.get("reason"):
        return f"{status['reason']} ({str(status.get('message') or '')[:300]})"
    for each in (
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ):
        ended = (each.get("state") or {}).get("terminated") or {}
        if ended and (ended.get("exitCode") or each["name"] == pod.CONTAINER):
            return f"{each['name']} exited with {ended.get('exitCode')} {str(ended.get('message') or '')[:300]}"
    return "unknown"


def _waits_for(found: Mapping[str, Any]) -> str:
    """In the cluster's own words: no node has room, an image is pulled …"""
    for condition in (found.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "False" and condition.get("message"):
            return str(condition["message"])[:300]
    return "the cluster does not say why"
