"""Starts a sandbox, or attaches to one. Blocking.

    engine → image → workspace pinned → spec → create → start → mounts checked → init connected → protections verified

No command can run until the init has connected and everything is verified. If a step fails, all steps before it are
undone.

How the two sides connect: the host listens on a socket in a directory that the container sees read-only, and the init
dials it. The host checks that the caller is that container's PID 1; the init checks that the listener is outside.

No event loop is needed or imported: the command line starts a launch in a thread while it imports the rest.
"""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import (
    AbstractContextManager,
    ExitStack,
    contextmanager,
    nullcontext,
    suppress,
)
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar import engines, resources
from belljar.engines.base import Engine, Launched, Shares
from belljar.engines.spec import Image, Mount, SandboxSpec, has_own_kernel
from belljar.errors import (
    BelljarError,
    EngineError,
    ImageMissing,
    SandboxLost,
    SessionNotFound,
    UsageError,
)
from belljar.images import catalog
from belljar.images.progress import Progress
from belljar.options import SandboxOptions
from belljar.patience import stretched
from belljar.records import record
from belljar.sandbox import (
    cgroup,
    extras,
    pausing,
    quota,
    rundir,
    scratch,
    staging,
    terminals,
    verification,
)
from belljar.sandbox.extras import Extra
from belljar.sandbox.init_file import local_link
from belljar.sandbox.rundir import RunDir
from belljar.sandbox.scratch import Scratch
from belljar.sandbox.spec import LinkPlan, build_spec
from belljar.syscalls import closing
from belljar.workspace import accounts
from belljar.workspace.pinned import Workspace

if TYPE_CHECKING:
    from belljar.host import Host
    from belljar.link.transport import SocketTransport, Transport

UNDO_SECONDS = 0.4
DIAL_SECONDS = 20.0  # the init dials at once, unless the machine is overloaded


@record
class Launch:
    """A running, verified sandbox and the connection to its init."""

    id: str
    options: SandboxOptions
    engine: Engine
    workspace: Workspace
    launched: Launched
    run_dir: Path
    transport: Transport
    held: RunDir | None = None
    """Its directory, if this process made it."""
    token: bytes = field(default=b"", repr=False)
    """What the host must send first over a bridge, where the init cannot tell the host from a command."""
    door: bool = False
    """Its environment names the network door's proxy, also for shells that wait for a command."""
    init: str = ""
    """The path of the init in the sandbox; it is also the program of the small tools."""
    witnesses: verification.Witnesses = field(default_factory=dict)
    """By whose word each protection is in force."""
    unproven: SandboxSpec | None = None
    """This machine cannot look into the sandbox: its init must still testify that this spec is in force."""
    taken: bool = False
    """It waited for its first use, with a lease for that."""
    waits: bool = False
    """Its session's file says so: it is nobody's session yet."""

    def waiting(self) -> Launch:
        """This one, noted as one that waits for its first use."""
        rundir.mark_waiting(self.run_dir)
        return replace(self, waits=True)

    def discard(self) -> None:
        """Undo a launch that is not needed."""
        self.transport.close()
        with suppress(EngineError):
            self.engine.destroy(self.launched.id)
        if self.held is not None:
            self.held.close()
        self.workspace.close()


def launch(options: SandboxOptions, id: str, host: Host) -> Launch:
    engine, root = host.connect(), host.run_root
    _check_network(engine, options)
    image = _image(engine, options.image, host.progress)
    workspace = Workspace.open(
        options.workspace,
        reserved=_reserved(options, host),
        allow_home=options.allow_home,
        surveys=host.surveys,
    )
    resources.make_room_for(workspace.descriptor)
    with _undone_on_failure(root) as undo:
        undo.append(workspace.close)
        run_dir = RunDir.create(id, root)
        undo.append(run_dir.close)
        quota.claim(id, run_dir.path, options, lambda: reap_remains(host))
        listener = (
            Listener(run_dir.link) if engine.capabilities.link == "socket" else None
        )
        if listener:
            undo.append(listener.close)
        link = _link(host, engine, image, run_dir)
        with (
            _placed(options, id, host, engine, workspace, run_dir.path) as place,
            _scratch(options, host, engine, run_dir) as disk,
            _extras(options, host, engine, workspace, run_dir) as more,
        ):
            if place.area is not None:
                undo.append(place.area.remove)
            spec = _spec(
                options,
                id,
                engine,
                image,
                workspace,
                place.mount,
                link,
                run_dir,
                disk,
                more,
            )
            taken = engine.take(spec) if isinstance(engine, Shares) else None
            name = taken.id if taken else f"belljar-{id}"
            undo.append(lambda: _destroy_soon(engine, name))
            if taken:
                spec = taken.spec
                launched = engine.inspect(name)
            else:
                launched = engine.start(engine.create(spec, name))
        if not launched.pid:
            raise EngineError("the engine started the sandbox, but it is not running")
        pid = launched.pid if engine.capabilities.sees_processes else None
        workspace.check_mounted(
            pid if place.inode else None, place.inode
        )  # not of the engine's overlay
        for extra in more:
            extra.check(launched.pid)
        if pid:
            terminals.limit(pid)
            cgroup.limit_sockets(pid, spec.socket_memory)
        bridge = [spec.argv[0], "--bridge"]
        transport = (
            listener.accept(launched.pid)
            if listener
            else engine.bridge(launched.id, bridge)
        )
        undo.append(transport.close)
        proved = (
            verification.verify(
                spec, launched.claims, pid, Path(link.init) if listener else None
            )
            if pid
            else {}
        )
        token = spec.secrets.get("BELLJAR_TOKEN", "")
        rundir.write_session(run_dir.path, {"token": token, "bridge": bridge}, "link")
        rundir.write_session(
            run_dir.path, _facts(id, options, engine, workspace, launched)
        )
    _reap_once(host)
    return Launch(
        id,
        options,
        engine,
        workspace,
        launched,
        run_dir.path,
        transport,
        run_dir,
        token.encode(),
        options.door,
        spec.argv[0],
        proved,
        None if pid else spec,
        taken is not None,
    )


def plan(options: SandboxOptions, host: Host) -> SandboxSpec:
    """What a launch would ask its engine for. Nothing is started, and nothing is left."""
    engine, id = host.connect(), rundir.new_session_id()
    _check_network(engine, options)
    image = _image(engine, options.image, host.progress)
    with ExitStack() as undo:
        workspace = Workspace.open(
            options.workspace,
            reserved=_reserved(options, host),
            allow_home=options.allow_home,
            surveys=host.surveys,
        )
        undo.callback(workspace.close)
        run_dir = RunDir.create(id, host.run_root)
        undo.callback(run_dir.close)
        link = _link(host, engine, image, run_dir)
        disk = undo.enter_context(_scratch(options, host, engine, run_dir))
        more = undo.enter_context(_extras(options, host, engine, workspace, run_dir))
        with _placed(options, id, host, engine, workspace, run_dir.path) as place:
            if place.area is not None:
                undo.callback(place.area.remove)
            return _spec(
                options,
                id,
                engine,
                image,
                workspace,
                place.mount,
                link,
                run_dir,
                disk,
                more,
            )


def _check_network(engine: Engine, options: SandboxOptions) -> None:
    if options.network_mode in engine.capabilities.networks:
        return
    runtime = f" with {engine.runtime}" if engine.runtime else ""
    raise EngineError(
        f"the engine {engine.name}{runtime} has no network to give (--network full): name the hosts that are needed "
        "(--allow HOST, --allow-preset python), or use another engine (--engine docker)"
    )


@contextmanager
def _placed(
    options: SandboxOptions,
    id: str,
    host: Host,
    engine: Engine,
    workspace: Workspace,
    run_dir: Path,
) -> Iterator[staging.Place]:
    """What to mount at /workspace, valid while this is open."""
    with workspace.shown(run_dir, shared=engine.capabilities.binds) as source:
        if options.changes == "direct":
            if not engine.capabilities.workspace:
                raise UsageError(
                    f"the engine {engine.name} cannot show a directory of this machine: work on a copy, whose changes "
                    'are reviewed and applied (--staged, changes="staged")'
                )
            yield staging.direct(workspace, source)
            return
        with staging.staged(
            engine, host.staged_root, id, workspace, source, run_dir, options
        ) as place:
            yield place


def _reserved(options: SandboxOptions, host: Host) -> list[Path]:
    return [
        host.run_root,
        host.audit_root,
        host.caches_root,
        *map(Path, options.reserved),
    ]


def _extras(
    options: SandboxOptions,
    host: Host,
    engine: Engine,
    workspace: Workspace,
    run_dir: RunDir,
) -> AbstractContextManager[list[Extra]]:
    if not options.mounts and not options.cache:
        return nullcontext([])
    if not engine.capabilities.binds:
        raise UsageError(
            "mounts and caches need an engine that shares this machine's files"
        )
    return extras.shown(
        options.mounts,
        options.cache,
        host.caches_root,
        workspace,
        run_dir.path,
        _reserved(options, host),
        options.home,
    )


def _reap_once(host: Host) -> None:
    """Reap the remains of dead processes, in a thread."""
    if host.reaping.acquire(blocking=False):
        threading.Thread(
            target=reap_remains, args=[host], name="belljar-reaper", daemon=True
        ).start()


def reap_remains(host: Host) -> None:
    from belljar.sandbox.reaper import reap

    with suppress(EngineError, OSError):
        reap(host.connect(), host.run_root)


@contextmanager
def _undone_on_failure(root: Path) -> Iterator[list[Callable[[], None]]]:
    undo: list[Callable[[], None]] = []
    try:
        yield undo
    except BaseException as failure:
        for step in reversed(undo):
            with suppress(EngineError, OSError):
                step()
        if isinstance(failure, OSError):
            raise BelljarError(
                f"Cannot set up a sandbox in {root}: {failure.strerror}"
            ) from failure
        raise


def _destroy_soon(engine: Engine, name: str) -> None:
    """In a thread, if the engine is slow: the caller has waited for it once already."""

    def destroy() -> None:
        with suppress(EngineError, OSError):
            engine.destroy(name)

    thread = threading.Thread(target=destroy, name="belljar-undo", daemon=True)
    thread.start()
    thread.join(UNDO_SECONDS)


def _image(engine: Engine, name: str, progress: Progress) -> Image:
    """Looked up each time: a name may lead to another image since, or to none."""
    reference = catalog.reference(name)
    image = engine.image(reference)
    if image is None and engine.images is not None:
        others = partial(engines.image_stores_beside, engine)
        reference = catalog.ensure(engine.images, name, progress, others)
        image = engine.image(reference)
    if image is None:
        raise ImageMissing(
            f"the image {reference} was removed while a sandbox was started from it"
        )
    return image


def _link(host: Host, engine: Engine, image: Image, run_dir: RunDir) -> LinkPlan:
    if engine.capabilities.link == "socket":
        return local_link(resources.init_binary(), host.run_root, run_dir.link)
    volume = engine.install_init(resources.init_binary(engine.machine), image.ref)
    return LinkPlan("exec", volume, token=os.urandom(32).hex())


def _spec(
    options: SandboxOptions,
    id: str,
    engine: Engine,
    image: Image,
    workspace: Workspace,
    place: Mount,
    link: LinkPlan,
    run_dir: RunDir,
    disk: Scratch | None,
    more: list[Extra],
) -> SandboxSpec:
    user = engine.user(
        workspace.identity.uid, workspace.identity.gid, root=options.root
    )
    if engine.capabilities.binds and not options.root:
        link = replace(
            link,
            accounts=accounts.write(
                run_dir.path, user.uid, user.gid, options.account, options.author
            ),
        )
    return build_spec(
        image=image,
        workspace=workspace,
        limits=options.limits,
        link=link,
        lease_seconds=options.lease,
        network=options.network_mode,
        labels=rundir.owner_labels(id, options.lease, options.keep or options.keepable),
        place=place,
        seccomp="debug" if options.debug else "default",
        machine=None if engine.machine == os.uname().machine else engine.machine,
        user=user,
        account=options.account,
        timezone=options.timezone,
        can=engine.capabilities,
        root=options.root,
        scratch=disk,
        extras=[extra.mount for extra in more],
        door=options.door,
        runtime=engine.runtime,
    )


def _scratch(
    options: SandboxOptions, host: Host, engine: Engine, run_dir: RunDir
) -> AbstractContextManager[Scratch | None]:
    size = options.limits.disk
    if size == 0 or (size is None and not engine.capabilities.binds):
        return nullcontext()
    if not engine.capabilities.binds:
        raise UsageError("--disk needs an engine that shares this machine's files")
    return scratch.mounted(run_dir.path, size, host.state_root)


def _facts(
    id: str,
    options: SandboxOptions,
    engine: Engine,
    workspace: Workspace,
    launched: Launched,
) -> dict[str, object]:
    saved = replace(options, workspace=workspace.path).as_dict()
    return {
        "id": id,
        "container": launched.id,
        "engine": engine.identity,
        "runtime": engine.runtime,
        "started": time.time(),
        "door": options.door,
        "options": saved,
    }


def attach(id: str, host: Host, *, resume: bool = False) -> Launch:
    """`resume`: a paused one goes on; else it is an error."""
    path = host.run_root / id
    facts = rundir.read_session(path)
    if facts is None or "options" not in facts:
        raise SessionNotFound(f"no session {id}; `belljar session list` lists them")
    engine = engine_of(facts, host)
    if facts.get("engine", engine.identity) != engine.identity:
        raise SessionNotFound(
            f"session {id} runs on another engine ({facts['engine']}), not on {engine.identity}"
        )
    if pausing.is_marked(path):
        _let_go_on(id, path, engine, str(facts["container"]), resume)
    try:
        launched = engine.inspect(facts["container"])
    except EngineError as error:
        raise SessionNotFound(f"session {id} has ended ({error})") from error
    options = SandboxOptions.restored(facts["options"])
    link = rundir.read_session(path, "link") or {}
    transport: Transport
    with _undone_on_failure(host.run_root) as undo:
        # Whether it may be a workspace was checked when the session began.
        workspace = Workspace.open(
            options.workspace,
            reserved=[host.run_root],
            allow_home=True,
            surveys=host.surveys,
        )
        undo.append(workspace.close)
        if options.changes == "direct":  # an overlay was checked when the session began
            pid = launched.pid if engine.capabilities.sees_processes else None
            workspace.check_mounted(pid)
            verification.verify_workspace(workspace.path, pid)
        if engine.capabilities.link == "socket":
            transport = Listener(path / "link").accept(launched.pid)
        else:
            transport = engine.bridge(launched.id, link.get("bridge", []))
    token = str(link.get("token", "")).encode()
    init = str((link.get("bridge") or [""])[0])
    return Launch(
        id,
        options,
        engine,
        workspace,
        launched,
        path,
        transport,
        token=token,
        door=facts["door"],
        init=init,
    )


def _let_go_on(
    id: str, path: Path, engine: Engine, container: str, resume: bool
) -> None:
    if not resume:
        raise UsageError(
            f"session {id} is paused; `belljar session resume {id}` lets it go on"
        )
    mark = pausing.Mark.make(path, 0.0)
    engine.resume(container)
    mark.remove()


def engine_of(facts: dict[str, Any], host: Host) -> Engine:
    """The engine and runtime that started a session, unless the host is bound to another engine."""
    engine = host.connect()
    name = str(facts.get("engine", "")).replace(":", " ").partition(" ")[0]
    runtime = str(facts.get("runtime", ""))
    if (
        name == engine.name
        and has_own_kernel(runtime) == engine.capabilities.own_kernel
    ):
        return engine
    if name in engines.KNOWN and (name == engine.name or host.engine_name == "auto"):
        return engines.connect(name, runtime, host.state_root)
    return engine


class Listener:
    """A socket in the link directory that accepts one connection: the init's."""

    def __init__(self, directory: Path) -> None:
        self._socket = socket.socket(
            socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC
        )
        name = os.urandom(6).hex()
        self._path = directory / f"{name}.sock"
        # Bound through a descriptor, since a socket's address holds at most 108 bytes. Renamed once it listens, since
        # the init dials every socket that appears.
        with closing(os.open(directory, os.O_PATH | os.O_CLOEXEC)) as at:
            self._socket.bind(f"/proc/self/fd/{at}/{name}.tmp")
            os.chmod(f"/proc/self/fd/{at}/{name}.tmp", 0o666)
            self._socket.listen(1)
            os.rename(f"{name}.tmp", f"{name}.sock", src_dir_fd=at, dst_dir_fd=at)

    def accept(self, pid: int) -> SocketTransport:
        """The connection of process `pid`; any other is closed."""
        from belljar.link.transport import SocketTransport

        deadline = time.monotonic() + stretched(DIAL_SECONDS)
        try:
            while (left := deadline - time.monotonic()) > 0:
                self._socket.settimeout(left)
                caller, _ = self._socket.accept()
                if _peer(caller) == pid:
                    return SocketTransport(caller)
                caller.close()
        except TimeoutError:
            pass
        finally:
            self.close()
        raise SandboxLost(
            "the sandbox started, but its init did not connect; run `belljar doctor` to find out why"
        )

    def close(self) -> None:
        self._socket.close()
        with suppress(OSError):
            self._path.unlink()


def _peer(caller: socket.socket) -> int:
    credentials = caller.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")
    )
    return int(struct.unpack("3i", credentials)[0])
