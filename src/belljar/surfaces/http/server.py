"""What a server has, apart from its live sessions: its database, its places, its trails, its news.

Approvals, commands and sessions work on it; `Service` (service.py) is it with the live sessions.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import traceback
from collections import OrderedDict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar import enforcement
from belljar.errors import BelljarError
from belljar.host import Host
from belljar.sandbox import rundir
from belljar.surfaces.http.approvals import Approvals
from belljar.surfaces.http.audit import TenantAudit
from belljar.surfaces.http.events import Events
from belljar.surfaces.http.keys import Keys
from belljar.surfaces.http.links import Links
from belljar.surfaces.http.log import KEPT
from belljar.surfaces.http.metrics import Metrics
from belljar.surfaces.http.storage import Store

if TYPE_CHECKING:
    from belljar.engines.base import Engine

_log = logging.getLogger("belljar.serve")
RECENT = (
    256  # ended commands that stay in memory, for readers that come right after the end
)


class Recently:
    """The commands that ended last."""

    def __init__(self) -> None:
        self._commands: OrderedDict[str, Any] = OrderedDict()

    def keep(self, id: str, command: object) -> None:
        self._commands[id] = command
        while len(self._commands) > RECENT:
            self._commands.popitem(last=False)

    def get(self, id: str) -> Any:
        return self._commands.get(id)


class Server:
    def __init__(
        self, state: Path, *, database: str | None = None, output_kept: int = KEPT
    ) -> None:
        self.id = f"i-{secrets.token_hex(6)}"
        self.state = state
        self.output_kept = output_kept
        self.store = Store.at(database, state)
        self.keys = Keys(self.store)
        self.events = Events()
        self.metrics = Metrics()
        self.approvals = Approvals(self.store, self.events, self.metrics, self.trail)
        self.links = Links(self.store)
        self.recently = Recently()
        self.database_id = ""
        self._hosts: dict[str, Host] = {}
        self._trails: dict[str, TenantAudit] = {}
        self._unread: set[str] = set()
        """Tenants with new records in their trails."""

    # Places. Nothing of a tenant is above its own directory.

    def tenant_directory(self, tenant: str) -> Path:
        return self.state / "tenants" / tenant

    def workspace_of(self, tenant: str, session: str, name: str | None) -> Path:
        kind, last = ("scratch", session) if name is None else ("workspaces", name)
        return self.tenant_directory(tenant) / kind / last

    def output_of(self, session: str, command: str) -> Path:
        return self.state / "output" / session / command

    def trail(self, tenant: str) -> TenantAudit:
        if tenant not in self._trails:
            required = (
                enforcement.trail(os.environ.get("BELLJAR_AUDIT", "").lower())
                == "required"
            )
            trail = TenantAudit(
                self.tenant_directory(tenant) / "audit",
                tenant,
                required=required,
                **enforcement.kept_trail(os.environ.get("BELLJAR_TRAIL", "")).options(),
            )
            trail.when_recorded = lambda kind, fields: self._recorded(
                tenant, kind, fields
            )
            self._trails[tenant] = trail
        return self._trails[tenant]

    def _recorded(self, tenant: str, kind: str, fields: dict[str, Any]) -> None:
        self._unread.add(tenant)
        if kind == "verdict" and fields["verdict"].decision == "deny":
            self.metrics.denied.inc()

    def host_of(self, tenant: str) -> Host:
        if tenant not in self._hosts:
            where = self.tenant_directory(tenant) / "state"
            where.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._hosts[tenant] = Host(state=where, audit=self.trail(tenant))
        return self._hosts[tenant]

    def report(self, error: BaseException) -> None:
        """An error that is no client's fault, for the operator."""
        _log.error("unexpected: %s", "".join(traceback.format_exception(error)))

    async def remove_sandbox(self, tenant: str, id: str) -> None:
        """Remove whatever is left of a sandbox, attached or not."""
        await to_thread.run_sync(self._remove_sandbox, self.host_of(tenant), id)

    def _remove_sandbox(self, host: Host, id: str) -> None:
        engine: Engine = host.connect()
        path = host.run_root / id
        facts = rundir.read_session(path) or {}
        for name in {str(facts.get("container") or ""), f"belljar-{id}"} - {""}:
            with contextlib.suppress(BelljarError):
                engine.destroy(name)
        if path.exists():
            rundir.remove_run_dir(path)
