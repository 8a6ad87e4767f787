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
from typing import TYPE_CHECKING, Any

from belljar import host as hosts
from belljar.errors import UsageError, WorkspaceError
from belljar.limits import Limits
from belljar.options import PUBLIC, SESSION_ID, SandboxOptions, known, seconds
from belljar.remote.box import AtServiceWorkspace, RemoteSession
from belljar.remote.pool import RemotePool, of_host
from belljar.remote.wire import APPROVAL_SECONDS, Service, Wire, checked_url
from belljar.session.kept import Kept
from belljar.session.pool import NOT_POOLED

if TYPE_CHECKING:
    from anyio.from_thread import BlockingPortal

_LIVE = ("approve", "audit", "engine", "host")


def connect(url: str, *, key: str | None = None, approval_seconds: float = APPROVAL_SECONDS) -> RemoteHost:
    """A service (`belljar serve`) as a host. Without `key` it is BELLJAR_KEY. `approval_seconds`: how long a command
    that needs an approval waits for people there to answer; 0 denies it at once, unless the session has `approve=`.

    far = belljar.connect("https://belljar.example.com", key="bj_…")
    async with belljar.Session(host=far) as box: ...
    """
    return RemoteHost(url, key or os.environ.get("BELLJAR_KEY", ""), approval_seconds=approval_seconds)


class RemoteHost:
    """A service that has the sandboxes. It holds no connection; each open session has its own."""

    def __init__(self, url: str, key: str, *, approval_seconds: float = APPROVAL_SECONDS) -> None:
        self.url = checked_url(url)
        seconds("approval_seconds", approval_seconds, optional=False, zero=True)
        self.approval_seconds = float(approval_seconds)
        self._service = Service(self.url, key, self.approval_seconds)
        if not key or not key.isascii() or not key.isprintable() or " " in key:
            raise UsageError("key: a key of the service is needed (bj_…): key=…, or BELLJAR_KEY")
        self._lock = threading.Lock()
        self._portal: BlockingPortal | None = None

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
        given: Any = {name: value for name, value in options.items() if name not in _LIVE}
        place = None if workspace is None else _place(workspace)
        return RemoteSession(self, self._service, SandboxOptions(place or "/workspace", **given), place, approve)

    def restored(self, options: Any, **live: Any) -> RemoteSession:
        """A session there with these options: `belljar.Session.of(options, host=far)`."""
        own = options.workspace == "/workspace"
        return RemoteSession(self, self._service, options, None if own else options.workspace, live.get("approve"))

    def pool(self, workspace: Any = None, *, size: int = 4, **options: Any) -> RemotePool:
        """Sessions there that are opened ahead: `belljar.Pool(size=4, host=far)`."""
        known(options, (PUBLIC - NOT_POOLED) | {*_LIVE}, "Pool")
        return of_host(self, workspace, size, options)

    def workspace(self, name: str) -> AtServiceWorkspace:
        """A workspace that the service keeps for its tenant: `belljar.Session(far.workspace("project"), host=far)`."""
        return AtServiceWorkspace(name)

    async def attach(self, id: str, **options: Any) -> RemoteSession:
        """Take part in a session there: `await belljar.Session.attach("bj-…", host=far)`."""
        known(options, ("policy", "approve", "env", "audit", "host", "engine"), "Session.attach")
        if not SESSION_ID.fullmatch(id):
            raise UsageError(f"{id!r} is not the id of a session")
        wire = self.wire()
        try:
            told = await wire.get(f"/v1/sessions/{id}")
        finally:
            await wire.close()
        record = SandboxOptions(
            "/workspace", image=told["image"], policy=told["policy"], changes=told["changes"], name=None, keep=True,
            network="full" if told["network"] == "full" else "none", root=told["root"], debug=told["debug"],
            limits=Limits(**told["limits"]), env={**told["env"], **(options.get("env") or {})},
            metadata=told["metadata"], lease=told["lease"],
        )  # fmt: skip
        return await RemoteSession(self, self._service, record, None, options.get("approve")).enter(id)

    async def list(self) -> tuple[Kept, ...]:
        """The living sessions there that the key may see, oldest first."""
        found = [item for item in await self.items("sessions") if item["state"] != "ended"]
        kept = [
            Kept(item["id"], item["image"], item["workspace"] or "", item["started"] or item["created"],
                 item["lease"], item["metadata"])
            for item in found
        ]  # fmt: skip
        return tuple(reversed(kept))

    async def items(self, what: str, **query: Any) -> builtins.list[dict[str, Any]]:
        """All items of a list of the service, newest first."""
        found: builtins.list[dict[str, Any]] = []
        wire, cursor = self.wire(), None
        try:
            while True:
                page = await wire.get(f"/v1/{what}", {"limit": 200, "cursor": cursor, **query})
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


def _place(workspace: str | os.PathLike[str]) -> str:
    if isinstance(workspace, AtServiceWorkspace):
        return workspace
    path = os.path.realpath(os.fspath(workspace))
    if not os.path.isdir(path):
        raise WorkspaceError(f"workspace: {workspace} is not a directory")
    return path
