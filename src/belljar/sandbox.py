"""One sandbox: a container, its directory on the host and the link to its init, from launch to destruction.

Launching is one blocking story, told from top to bottom in a worker thread:
    engine → image → workspace pinned → spec → create → start → what was mounted? → what is enforced? → the init's call
Until the init has called back and everything was verified nobody can run anything in it; whatever fails on the way
takes all that was made before with it.

How the two sides find each other: the host listens on a socket in a directory that the container sees read-only, the
init dials it. The host makes sure that the caller is that container's PID 1; the init that the listener is outside.
"""

from __future__ import annotations

import os
import platform
import secrets
import select
import socket
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.lowlevel import RunVar

from belljar import engines, images, resources, state, verification
from belljar.engines.base import Engine, Launched
from belljar.errors import BelljarError, EngineError, SandboxLost, SessionNotFound
from belljar.initfile import local_link
from belljar.limits import Limits
from belljar.link import Link
from belljar.spec import ContainerSpec, Image, LinkPlan, Network, build_spec
from belljar.state import RunDir
from belljar.transport import SocketTransport, Transport
from belljar.workspace import Workspace

if TYPE_CHECKING:
    from belljar.engines.docker import DockerEngine

DIAL_SECONDS = 4.5  # a container that started has its init dial at once
GOODBYE_SECONDS = 1.0  # an init that was told to shut down needs a few milliseconds
STARTS_AT_ONCE = 8  # a burst queues here, where waiting is cheap, not in the daemon, where it looks like a hang

_starts: RunVar[anyio.CapacityLimiter] = RunVar("belljar_starts")


@dataclass(frozen=True)
class Plan:
    """What kind of sandbox is wanted. Two equal plans can stand in for each other, which is what a pool needs."""

    workspace: str
    image: str = "base"
    limits: Limits = field(default_factory=Limits)
    network: Network = "none"
    lease: float = 30.0
    keep: bool = False
    seccomp: str = "default"


class Sandbox:
    def __init__(
        self, id: str, plan: Plan, engine: Engine, workspace: Workspace, launched: Launched, run_dir: Path
    ) -> None:
        self.id, self.plan, self.engine, self.workspace, self.launched = id, plan, engine, workspace, launched
        self.run_dir = run_dir
        self.held: RunDir | None = None
        self.link: Link

    @classmethod
    async def launch(cls, plan: Plan, id: str | None = None) -> Sandbox:
        id = id or state.new_session_id()
        sandbox, transport = await to_thread.run_sync(_launch, plan, id, limiter=_limiter())
        try:
            await sandbox._greet(transport)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await sandbox.destroy()
            raise
        return sandbox

    @classmethod
    async def attach(cls, id: str) -> Sandbox:
        """The sandbox that another process keeps."""
        sandbox, transport = await to_thread.run_sync(_attach, state.check_session_id(id))
        await sandbox._greet(transport)
        return sandbox

    async def _greet(self, transport: Transport) -> None:
        self.link = Link(transport, self._still_alive)
        token = _token(self.launched)
        with anyio.move_on_after(DIAL_SECONDS):
            await self.link.hello(token)
            return
        self.link.close("its init did not answer")
        raise SandboxLost("the sandbox started, but its init did not answer")

    async def _still_alive(self) -> bool:
        """The engine's word on a sandbox that has gone silent."""
        with anyio.move_on_after(1.5), suppress(BelljarError):
            return await to_thread.run_sync(self.engine.state, self.launched.id, abandon_on_cancel=True) == "running"
        return False

    async def disconnect(self) -> None:
        """Leave a kept sandbox to its lease."""
        self.link.close()
        if self.held is not None:
            self.held.release()
        self.workspace.close()

    async def destroy(self) -> None:
        """Nothing of it is left: processes now, the container within moments (it removes itself), the directory now."""
        try:
            if not await self._said_goodbye():
                with anyio.move_on_after(DIAL_SECONDS, shield=True), suppress(EngineError):
                    await to_thread.run_sync(self.engine.destroy, self.launched.id, abandon_on_cancel=True)
        finally:
            if self.held is not None:
                self.held.close()
            else:
                state.remove_run_dir(self.run_dir)
            self.workspace.close()

    async def _said_goodbye(self) -> bool:
        """Tell the init to end; its hanging up is the proof that it did."""
        link = getattr(self, "link", None)
        if link is None or link.lost is not None:
            return False
        gone = anyio.Event()
        link.when_lost(gone.set)
        link.shutdown()
        with anyio.move_on_after(GOODBYE_SECONDS, shield=True):
            await gone.wait()
        ended = gone.is_set()
        link.close()
        return ended


def _limiter() -> anyio.CapacityLimiter:
    try:
        return _starts.get()
    except LookupError:
        _starts.set(limiter := anyio.CapacityLimiter(STARTS_AT_ONCE))
        return limiter


def _launch(plan: Plan, id: str) -> tuple[Sandbox, Transport]:
    engine = engines.connect()
    image = _image(engine, plan.image)
    workspace = Workspace.open(plan.workspace, reserved=[state.run_root()])
    with _undone_on_failure() as undo:
        undo.append(workspace.close)
        run_dir = RunDir.create(id)
        undo.append(run_dir.close)
        listener = Listener(run_dir.link) if engine.shares_files else None
        with workspace.staged(run_dir.path) as source:
            spec = _spec(plan, id, engine, image, workspace, source, run_dir)
            name = f"belljar-{id}"
            undo.append(lambda: engine.destroy(name))
            launched = engine.start(engine.create(spec, name))
        sandbox = Sandbox(id, plan, engine, workspace, launched, run_dir.path)
        sandbox.held = run_dir
        pid = launched.pid if engine.shares_files else None
        workspace.check_mounted(pid)
        transport = listener.accept(launched.pid) if listener else engine.bridge(launched.id)
        undo.append(transport.close)
        verification.verify(spec, launched.facts, pid)
        run_dir.write_session(_facts(sandbox, spec))
    return sandbox, transport


@contextmanager
def _undone_on_failure() -> Iterator[list[Callable[[], None]]]:
    undo: list[Callable[[], None]] = []
    try:
        yield undo
    except BaseException:
        for step in reversed(undo):
            with suppress(EngineError, OSError):
                step()
        raise


_images: dict[tuple[int, str], Image] = {}


def _image(engine: DockerEngine, name: str) -> Image:
    key = (id(engine), images.reference(name))
    if key not in _images:
        facts = engine.image_facts(images.reference(name))
        if facts is None:
            images.ensure(engine, name)
            facts = engine.image_facts(images.reference(name))
        assert facts is not None
        _images[key] = Image.from_inspect(facts)
    return _images[key]


def _spec(
    plan: Plan, id: str, engine: DockerEngine, image: Image, workspace: Workspace, source: str, run_dir: RunDir
) -> ContainerSpec:
    if engine.shares_files:
        link = local_link(resources.init_binary(), state.run_root(), run_dir.link)
    else:
        volume = engine.install_init(resources.init_binary(engine.machine), image.ref)
        link = LinkPlan("exec", volume, token=secrets.token_hex(32))
    return build_spec(
        image=image, workspace=workspace, limits=plan.limits, link=link, lease_seconds=plan.lease, network=plan.network,
        labels=state.owner_labels(id, plan.lease, plan.keep), seccomp=plan.seccomp, source=source,  # type: ignore[arg-type]
        machine=None if engine.machine == platform.machine() else engine.machine,
    )  # fmt: skip


def _facts(sandbox: Sandbox, spec: ContainerSpec) -> dict[str, object]:
    plan = sandbox.plan
    return {
        "id": sandbox.id, "container": sandbox.launched.id, "image": plan.image, "workspace": sandbox.workspace.path,
        "network": plan.network, "lease": plan.lease, "keep": plan.keep, "limits": plan.limits.as_dict(),
        "started": time.time(),
    }  # fmt: skip


def _attach(id: str) -> tuple[Sandbox, Transport]:
    path = state.run_root() / id
    facts = state.read_session(path)
    if facts is None:
        raise SessionNotFound(f"no session {id}; `belljar session list` shows those there are")
    engine = engines.connect()
    try:
        launched = engine.inspect(facts["container"])
    except EngineError as error:
        raise SessionNotFound(f"session {id} has ended ({error})") from error
    plan = Plan(
        facts["workspace"], facts["image"], Limits(**facts["limits"]), facts["network"], facts["lease"], facts["keep"]
    )
    transport: Transport
    with _undone_on_failure() as undo:
        workspace = Workspace.open(plan.workspace)
        undo.append(workspace.close)
        transport = Listener(path / "link").accept(launched.pid) if engine.shares_files else engine.bridge(launched.id)
    return Sandbox(id, plan, engine, workspace, launched, path), transport


def _token(launched: Launched) -> bytes:
    prefix = "BELLJAR_TOKEN="
    environment = launched.facts.get("Config", {}).get("Env") or []
    return next((entry[len(prefix) :].encode() for entry in environment if entry.startswith(prefix)), b"")


class Listener:
    """A socket in the link directory that waits for one call: the init's."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        name = secrets.token_hex(6)
        self._path = directory / f"{name}.sock"
        # Through the descriptor, since a socket's address holds 108 bytes; renamed when it listens, since the init
        # dials what appears.
        at = os.open(directory, os.O_PATH | os.O_CLOEXEC)
        try:
            self._socket.bind(f"/proc/self/fd/{at}/{name}.tmp")
            os.chmod(f"/proc/self/fd/{at}/{name}.tmp", 0o666)
            self._socket.listen(1)
            os.rename(f"{name}.tmp", f"{name}.sock", src_dir_fd=at, dst_dir_fd=at)
        finally:
            os.close(at)

    def accept(self, pid: int) -> SocketTransport:
        """The connection of process `pid`; anyone else who calls is hung up on."""
        deadline = time.monotonic() + DIAL_SECONDS
        try:
            while (left := deadline - time.monotonic()) > 0 and select.select([self._socket], [], [], left)[0]:
                caller, _ = self._socket.accept()
                if _peer(caller) == pid:
                    return SocketTransport(caller)
                caller.close()
        finally:
            self._socket.close()
            with suppress(OSError):
                self._path.unlink()
        raise SandboxLost("the sandbox started, but its init did not call back; `belljar doctor` tells more")


def _peer(caller: socket.socket) -> int:
    credentials = caller.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
