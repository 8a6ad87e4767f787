"""Who made a Pod: an instance, which is one state directory, never a process id of some machine.

Its id is written down once, so that all processes with that state directory, and whoever comes after a crash, find
their Pods again. While it has Pods a Lease object says that it lives.
"""

from __future__ import annotations

import datetime
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from belljar import resources
from belljar.errors import EngineError

if TYPE_CHECKING:
    from belljar.engines.kubernetes.api import Api

RENEW_SECONDS = 15.0
CLOSE_SECONDS = 2.0
LEASE_SECONDS = 60
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"


class Instance:
    def __init__(self, api: Api, state: Path) -> None:
        self._api = api
        self.id = _written_once(state / "instance")
        self.lease = f"belljar-{self.id}"
        self._closed = threading.Event()
        self._renewing: threading.Thread | None = None
        self._lock = threading.Lock()

    def hold(self) -> None:
        """From now on, until `close`, the Lease says that this instance lives."""
        with self._lock:
            if self._renewing is None:
                self._renewing = threading.Thread(
                    target=self._renew_on, name="belljar-instance", daemon=True
                )
                self._renewing.start()

    def close(self) -> None:
        self._closed.set()
        if self._renewing is not None:
            self._renewing.join(CLOSE_SECONDS)

    def _renew_on(self) -> None:
        while not self._closed.is_set():
            with suppress(
                EngineError, RuntimeError
            ):  # the next time; RuntimeError: closed meanwhile
                self.renew()
            self._closed.wait(RENEW_SECONDS)

    def renew(self) -> None:
        path = LEASES.format(self._api.namespace)
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            "holderIdentity": f"{self.id} {os.uname().nodename}",
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": now,
        }
        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self.lease},
            "spec": spec,
        }
        doing = "renewing the instance's lease"
        try:
            there = self._api.request(doing, "GET", f"{path}/{self.lease}")
        except EngineError as error:
            if getattr(error, "status", 0) != 404:
                raise
            self._api.request(doing, "POST", path, body)
            return
        body["metadata"] = {
            "name": self.lease,
            "resourceVersion": there["metadata"]["resourceVersion"],
        }
        self._api.request(doing, "PUT", f"{path}/{self.lease}", body)


def _written_once(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with resources.locked(path.with_suffix(".lock")):
        if not path.exists():
            resources.write_whole(path, secrets.token_hex(8))
        return path.read_text().strip()
