"""A stand-in for the controller of agent-sandbox, which cannot be had here: the least of it that pools and claims need.

It keeps each pool's sandboxes waiting, gives one that runs to each claim, and removes what belonged to a claim that is
gone. As the real one it holds a Pod to its template's labels. It says nothing about how the real one performs.
"""

from __future__ import annotations

import copy
import secrets
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

from belljar.engines.kubernetes.api import Api
from belljar.engines.kubernetes.settings import Settings
from belljar.errors import EngineError

CORE, EXTENSIONS = "agents.x-k8s.io", "extensions.agents.x-k8s.io"
POOL, CLAIM = "test/pool", "test/claim"
Object = dict[str, Any]


@contextmanager
def running(namespace: str) -> Iterator[Controller]:
    """With the credentials of KUBECONFIG as they are now."""
    controller = Controller(Api(Settings(namespace=namespace)))
    thread = threading.Thread(target=controller.work_on)
    thread.start()
    try:
        yield controller
    finally:
        controller.stopped.set()
        thread.join()
        controller.api.close()


class Controller:
    def __init__(self, api: Api) -> None:
        self.api, self.stopped = api, threading.Event()
        self.given: dict[str, str] = {}
        """Claim → sandbox."""

    def work_on(self) -> None:
        while not self.stopped.wait(0.05):
            with suppress(EngineError):  # the next time
                self._work()

    def _work(self) -> None:
        claims = {_name(each): each for each in self._list(EXTENSIONS, "sandboxclaims")}
        sandboxes = self._list(CORE, "sandboxes")
        for each in sandboxes:
            self._hold_to_template(each)
            owner = each["metadata"]["labels"].get(CLAIM)
            if owner and owner not in claims:
                self._remove(each)
        for pool in self._list(EXTENSIONS, "sandboxwarmpools"):
            waiting = [
                each
                for each in sandboxes
                if each["metadata"]["labels"][POOL] == _name(pool)
                and not each["metadata"]["labels"].get(CLAIM)
            ]
            for _ in range(pool["spec"]["replicas"] - len(waiting)):
                self._make(pool)
            for claim in claims.values():
                if (
                    not claim.get("status")
                    and claim["spec"]["warmPoolRef"]["name"] == _name(pool)
                    and (chosen := next(filter(self._is_ready, waiting), None))
                ):
                    waiting.remove(chosen)
                    self._give(chosen, claim)

    def _make(self, pool: Object) -> None:
        template = self._ask(
            "GET", EXTENSIONS, "sandboxtemplates", pool["spec"]["sandboxTemplateRef"]["name"]
        )  # fmt: skip
        name = f"{_name(pool)}-{secrets.token_hex(4)}"
        made = {
            "apiVersion": f"{CORE}/v1beta1",
            "kind": "Sandbox",
            "metadata": {"name": name, "labels": {POOL: _name(pool)}},
            "spec": {"podTemplate": template["spec"]["podTemplate"]},
        }
        sandbox = self._ask("POST", CORE, "sandboxes", body=made)
        given = copy.deepcopy(template["spec"]["podTemplate"])
        owner = {"apiVersion": made["apiVersion"], "kind": "Sandbox", "name": name,
                 "uid": sandbox["metadata"]["uid"], "controller": True}  # fmt: skip
        self.api.create({
            "apiVersion": "v1", "kind": "Pod", "spec": given["spec"],
            "metadata": {**given["metadata"], "name": name, "ownerReferences": [owner]},
        })  # fmt: skip

    def _is_ready(self, sandbox: Object) -> bool:
        found = self.api.get(_name(sandbox))
        return found is not None and found["status"].get("phase") == "Running"

    def _give(self, sandbox: Object, claim: Object) -> None:
        sandbox["metadata"]["labels"][CLAIM] = _name(claim)
        self._ask("PUT", CORE, "sandboxes", _name(sandbox), sandbox)
        self.given[_name(claim)] = _name(sandbox)
        ready = {"type": "Ready", "status": "True", "reason": "DependenciesReady", "message": "",
                 "lastTransitionTime": "2026-01-01T00:00:00Z"}  # fmt: skip
        claim["status"] = {"sandbox": {"name": _name(sandbox)}, "conditions": [ready]}
        self._ask("PUT", EXTENSIONS, "sandboxclaims", f"{_name(claim)}/status", claim)

    def _hold_to_template(self, sandbox: Object) -> None:
        found = self.api.get(_name(sandbox))
        if found is None:
            return
        wanted = sandbox["spec"]["podTemplate"]["metadata"]["labels"]
        reset = [
            {"op": "add", "path": f"/metadata/labels/{key.replace('/', '~1')}", "value": value}
            for key, value in wanted.items()
            if found["metadata"]["labels"].get(key) != value
        ]  # fmt: skip
        if reset:
            self.api.patch(_name(sandbox), reset)

    def _remove(self, sandbox: Object) -> None:
        self._ask("DELETE", CORE, "sandboxes", _name(sandbox))
        self.api.delete(_name(sandbox))

    def _list(self, group: str, plural: str) -> list[Object]:
        return list(self._ask("GET", group, plural)["items"])

    def _ask(
        self, method: str, group: str, plural: str, name: str = "", body: Any = None
    ) -> Object:
        path = f"/apis/{group}/v1beta1/namespaces/{self.api.namespace}/{plural}"
        path += f"/{name}" if name else ""
        return self.api.request("acting as a controller", method, path, body)


def _name(found: Object) -> str:
    return str(found["metadata"]["name"])
