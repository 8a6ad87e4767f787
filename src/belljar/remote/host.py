"""`belljar.connect`: a service as a host, for `Session`, `Pool`, `belljar.sync`, adapters and the command line.

far = belljar.connect("https://belljar.example.com", key="bj_…")
async with belljar.Session("project", host=far) as box:      # the directory is copied up
    await box.run("make")
    await box.apply()                                        # … and its changes are applied here
"""

from __future__ import annotations

import builtins
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from belljar import environment
from belljar import host as hosts
from belljar.errors import UsageError, WorkspaceError
from belljar.limits import Limits
from belljar.options import PUBLIC, SESSION_ID, SandboxOptions, known, seconds
from belljar.remote.box import AtServiceWorkspace, RemoteSession
from belljar.remote.pool import RemotePool, of_host
from belljar.remote.wire import APPROVAL_SECONDS, Service, Wire, checked_url
from belljar.session.kept import Kept
from belljar.session.pool import NOT_POOLED
from belljar.staged.area import StagedArea
from belljar.workspace.pinned import refuse_unsuitable

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

EMPTY = "/workspace"
_LIVE = ("approve", "audit", "engine", "host")


def connect(
    url: str, *, key: str | None = None, approval_seconds: float = APPROVAL_SECONDS
) -> RemoteHost:
    """A service (`belljar serve`) as a host. Without `key` it is BELLJAR_KEY. `approval_seconds`: how long a command
    that needs an approval waits for people there to answer; 0 denies it at once, unless the session has `approve=`.

    far = belljar.connect("https://belljar.example.com", key="bj_…")
    async with belljar.Session(host=far) as box: ...
    """
    return RemoteHost(
        url, key or environment.value("BELLJAR_KEY"), approval_seconds=approval_seconds
    )


class RemoteHost:
    """A service that has the sandboxes. It holds no connection; each open session has its own."""

    def __init__(
        self, url: str, key: str, *, approval_seconds: float = APPROVAL_SECONDS
    ) -> None:
        self.url = checked_url(url)
        seconds("approval_seconds", approval_seconds, optional=False, zero=True)
        self.approval_seconds = float(approval_seconds)
        self._service = Service(self.url, key, self.approval_seconds)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError(
                "key: a key of the service is needed (bj_…): key=…, or BELLJAR_KEY"
            )
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None

    @classmethod
    def itself_at(cls, url: str, key: str) -> RemoteHost:
        """For a server that is its own client, at the address where it listens."""
        far = cls("http://127.0.0.1", key)
        far.url, far._service = url, Service(url, key, APPROVAL_SECONDS, verifies=False)
        return far

    @property
    def key(self) -> str:
        return self._service.key

    def __repr__(self) -> str:
        return f"<belljar.connect {self.url}>"

    def wire(self) -> Wire:
        """Connections for the event loop that calls; whoever has them closes them."""
        return self._service.wire()

    # Sessions.

    def session(self, workspace: Any = None, **options: Any) -> RemoteSession:
        """A session there, not open yet: `belljar.Session(workspace, host=far)`. Without a workspace it has an empty
        one; a directory of this machine is copied up; `far.workspace(name)` is one that the service keeps."""
        known(options, {*PUBLIC, *_LIVE}, "Session")
        approve = options.get("approve")
        if options.get("audit") is not None or options.get("engine") is not None:
            raise UsageError("audit and engine are the service's: leave them out")
        given: Any = {
            name: value for name, value in options.items() if name not in _LIVE
        }
        record = SandboxOptions(EMPTY if workspace is None else workspace, **given)
        place = None if workspace is None else _place(workspace, record.allow_home)
        return RemoteSession(self, self._service, record, place, approve)

    def entering(self, id: str, approve: Any = None) -> RemoteSession:
        """A session that is there already, not entered yet; it stays when it is closed."""
        if not SESSION_ID.fullmatch(id):
            raise UsageError(f"{id!r} is not the id of a session")
        box = RemoteSession(
            self, self._service, SandboxOptions(EMPTY, keep=True), None, approve
        )
        box.enters = id
        return box

    def restored(self, options: Any, **live: Any) -> RemoteSession:
        """A session there with these options: `belljar.Session.of(options, host=far)`."""
        place = (
            None
            if options.workspace == EMPTY
            else _place(options.workspace, options.allow_home)
        )
        return RemoteSession(self, self._service, options, place, live.get("approve"))

    def pool(
        self, workspace: Any = None, *, size: int = 4, **options: Any
    ) -> RemotePool:
        """Sessions there that are opened ahead: `belljar.Pool(size=4, host=far)`."""
        known(options, (PUBLIC - NOT_POOLED) | {*_LIVE}, "Pool")
        return of_host(self, workspace, size, options)

    def workspace(self, name: str) -> AtServiceWorkspace:
        """A workspace that the service keeps for its tenant: `belljar.Session(far.workspace("project"), host=far)`."""
        return AtServiceWorkspace(f"@{name}")

    async def attach(self, id: str, **options: Any) -> RemoteSession:
        """Take part in a session there: `await belljar.Session.attach("bj-…", host=far)`."""
        known(
            options,
            ("policy", "approve", "env", "audit", "host", "engine", "resume"),
            "Session.attach",
        )
        if not SESSION_ID.fullmatch(id):
            raise UsageError(f"{id!r} is not the id of a session")
        wire = self.wire()
        try:
            told = await wire.get(f"/v1/sessions/{id}")
        finally:
            await wire.close()
        record = SandboxOptions(
            EMPTY,
            image=told["image"],
            policy=told["policy"],
            changes=told["changes"],
            name=None,
            keep=True,
            network="full" if told["network"] == "full" else "none",
            root=told["root"],
            debug=told["debug"],
            limits=Limits(**told["limits"]),
            env={**told["env"], **(options.get("env") or {})},
            metadata=told["metadata"],
            lease=told["lease"],
        )
        place = await to_thread.run_sync(copied_from, id)
        box = await RemoteSession(
            self, self._service, record, place, options.get("approve")
        ).enter(id)
        if options.get("resume"):
            await box.resume()
        await box.refresh()
        return box

    async def list(self) -> tuple[Kept, ...]:
        """The living sessions there that the key may see, oldest first."""
        found = [
            item for item in await self.items("sessions") if item["state"] != "ended"
        ]
        kept = [
            Kept(
                item["id"],
                item["image"],
                item["workspace"] or "",
                item["started"] or item["created"],
                item["lease"],
                item["metadata"],
            )
            for item in found
        ]
        return tuple(reversed(kept))

    # Approvals.

    async def approvals(
        self, *, state: str = "waiting", session: str | None = None
    ) -> builtins.list[dict[str, Any]]:
        """What waits there for a person's answer: `for approval in await far.approvals(): ...`"""
        return await self.items("approvals", state=state or "", session=session)

    async def approval(self, id: str) -> dict[str, Any]:
        """One of them: what is asked, why, and until when."""
        return await self._asked("GET", f"/v1/approvals/{id}")

    async def decide(
        self,
        approval: dict[str, Any],
        decision: str,
        *,
        scope: str = "once",
        reason: str = "",
    ) -> dict[str, Any]:
        """Answer it: "allow" or "deny", `scope` "once" or "session". The approval's token says what was looked at:
        ServiceError if it is not that any more, or somebody was faster.

        await far.decide(approval, "allow")
        """
        body = {
            "decision": decision,
            "token": approval["token"],
            "scope": scope,
            "reason": reason,
        }
        return await self._asked("POST", f"/v1/approvals/{approval['id']}", body)

    async def itself(self) -> dict[str, Any]:
        """The key that asks: its name, tenant, scopes and quota."""
        return await self._asked("GET", "/v1/keys/self")

    async def _asked(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        wire = self.wire()
        try:
            answer: dict[str, Any] = (await wire.ask(method, path, json=body)).json()
            return answer
        finally:
            await wire.close()

    async def drop_snapshot(self, name: str) -> None:
        """Remove a snapshot there; sessions that began with it go on: `await far.drop_snapshot("ready")`."""
        wire = self.wire()
        try:
            await wire.ask("DELETE", f"/v1/snapshots/{name}")
        finally:
            await wire.close()

    async def items(self, what: str, **query: Any) -> builtins.list[dict[str, Any]]:
        """All items of a list of the service, newest first."""
        found: builtins.list[dict[str, Any]] = []
        wire, cursor = self.wire(), None
        try:
            while True:
                page = await wire.get(
                    f"/v1/{what}", {"limit": 200, "cursor": cursor, **query}
                )
                found += page["items"]
                if (cursor := page["next"]) is None:
                    return found
        finally:
            await wire.close()

    def portal(self) -> BlockingPortal:
        """The portal to the event loop that serves blocking callers (belljar.sync)."""
        with self._lock:
            if self._portal is None:
                self._portal = hosts.start_loop()
            return self._portal


def _place(workspace: str | os.PathLike[str], allow_home: bool) -> str:
    """A directory of this machine, or `@NAME`: a workspace that the service keeps."""
    text = os.fspath(workspace)
    if text.startswith("@"):
        return AtServiceWorkspace(text)
    real = os.path.realpath(text)
    if not os.path.isdir(real):
        raise WorkspaceError(f"workspace: {text} is not a directory")
    refuse_unsuitable(Path(real), [hosts.default().state_root], allow_home)
    return real


def copied_from(id: str) -> str | None:
    """The directory of this machine that a session's workspace was copied from."""
    with suppress(UsageError):
        return StagedArea.find(hosts.default().staged_root, id).workspace
    return None
