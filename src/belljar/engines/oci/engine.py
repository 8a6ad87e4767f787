"""Sandboxes without a daemon: a runtime starts them, the kernel runs them, and files record which there are.

`create` writes the configuration; `start` mounts the root file system (rootfs.py) and runs the runtime once. A sandbox
ends by its init's lease or by `destroy`; with PID 1 go all its processes, mounts and namespaces. Its empty control
group, its directory and the runtime's state remain. `destroy` and `list` remove them, even if their maker was killed
or they are of an earlier boot.
"""

from __future__ import annotations

import hashlib
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from belljar import resources
from belljar.engines.base import Description, Launched, Listed
from belljar.engines.capabilities import Capabilities
from belljar.engines.kernel_facts import boot_id, limited_by_its_group, start_time
from belljar.engines.oci import callers, cgroups, config, rootfs
from belljar.engines.oci.boxes import Box, Boxes, Process, is_name
from belljar.engines.oci.images import OciImages
from belljar.engines.oci.runtime import (
    Runtime,
    containers,
    forget,
    has_ended,
    preferred,
)
from belljar.engines.spec import Image, Mount, SandboxSpec, User, has_own_kernel
from belljar.errors import EngineError, EngineUnavailable, ImageMissing
from belljar.images.store import Store
from belljar.syscalls import closing

if TYPE_CHECKING:
    from belljar.link.transport import Transport

END_SECONDS = 5.0
IDLE_BYTES = 2 << 20
SIZE_OF_UPPER = 2
"""A writable root in memory may take this fraction of the memory limit: one in …"""
F = TypeVar("F", bound=Callable[..., Any])
HERE = Capabilities(
    removes_itself=False, user_namespaces=True, networks=frozenset({"none"})
)
OWN_KERNEL = Capabilities(
    link="exec",
    binds=False,
    overlays=False,
    sees_processes=False,
    removes_itself=False,
    own_kernel=True,
    networks=frozenset({"none"}),
)


def find(runtime: str = "", state: Path | None = None) -> OciEngine:
    return OciEngine((state or resources.state_dir()) / "oci", runtime)


def _translated(verb: F) -> F:
    """Raises EngineError for an OSError, such as a full disk or a directory that is not ours."""

    @wraps(verb)
    def call(self: OciEngine, *arguments: Any, **options: Any) -> Any:
        try:
            return verb(self, *arguments, **options)
        except OSError as error:
            where = f" ({error.filename})" if error.filename else ""
            raise EngineError(
                f"the engine oci cannot {verb.__name__} a sandbox: {error.strerror}{where}"
            ) from error

    return cast("F", call)


class OciEngine:
    name = "oci"

    def __init__(
        self, state: Path, runtime: str = "", store: Store | None = None
    ) -> None:
        self.runtime = runtime or preferred()
        self._own_kernel = has_own_kernel(self.runtime)
        self.capabilities = OWN_KERNEL if self._own_kernel else HERE
        self._caller = callers.current(own_kernel=self._own_kernel)
        self._state = Path(os.path.abspath(state))
        self._runtime_states = self._state / "runtime"
        self._runtimes: dict[str, Runtime] = {}
        self._runtime(self.runtime)
        self._boxes = Boxes(self._state)
        self._store = store or Store()
        self.images = OciImages(self._store)
        self._waiting: dict[str, tuple[SandboxSpec, Sequence[Path], str]] = {}
        """Created and not yet started: the spec, the image's layers, and where to mount."""
        self._needed = [
            os.path.realpath(path) for path in (self._state, self._store.root)
        ]
        self.host = str(self._state)
        self.identity = f"oci:{self._state}"
        self.machine = os.uname().machine
        self._prefix = (
            f"belljar-{hashlib.sha256(self.identity.encode()).hexdigest()[:8]}-"
        )

    def close(self) -> None:
        pass

    # A sandbox's life

    def user(self, uid: int, gid: int, *, root: bool = False) -> User:
        """In a user namespace where that user (with `root`: root) is `uid` outside; no other id is a user outside."""
        return self._caller.user(uid, gid, root=root)

    @_translated
    def create(self, spec: SandboxSpec, name: str) -> str:
        image = self._store.find(spec.image.ref, with_names=False)
        if image is None:
            raise ImageMissing(
                f"no image {spec.image.ref}; `belljar images list` lists them"
            )
        runtime = self._runtime(spec.runtime or self.runtime)
        if (
            runtime.own_kernel != self._own_kernel
            or spec.link != self.capabilities.link
        ):
            raise EngineError(
                f"the sandbox was made for another runtime than {runtime.name}"
            )
        group = self._group(name)
        at = rootfs.place([*callers.sources(spec), *self._needed, runtime.program])
        box = Box(
            name,
            image.id,
            runtime.name,
            int(time.time()),
            boot_id(),
            dict(spec.all_labels),
            group,
        )
        who, maps = self._caller.namespace(at), self._caller.maps(spec.user)
        mounted = replace(
            spec,
            mounts=tuple(each for each in spec.mounts if not _is_written(each)),
            readonly_paths=(*spec.readonly_paths, *runtime.readonly_paths()),
        )
        self._boxes.add(
            box,
            config.document(mounted, at, who, maps, self._caller.groups.path(group)),
        )
        self._store.hold(image, group)
        self._waiting[name] = spec, self._store.layer_directories(image), at
        return name

    @_translated
    def start(self, id: str) -> Launched:
        waiting = self._waiting.pop(id, None)
        box = self._boxes.read(id)
        if box is None or (waiting is None and self._boxes.process(id) is None):
            raise EngineError(f"no sandbox {id} that could be started")
        if waiting is not None:
            self._run(box, *waiting)
        return self.inspect(id)

    def inspect(self, id: str) -> Launched:
        process = self._boxes.process(id)
        if process is None or not process.alive:
            raise EngineError(f"no such sandbox: {id}")
        claims = config.claims(self._boxes.config(id))
        if self._own_kernel:
            claims = limited_by_its_group(claims, process.pid)
        return Launched(id, process.pid, claims)

    def state(self, id: str) -> str | None:
        """Also removes what an ended sandbox left."""
        box = self._boxes.read(id)
        if box is None:
            return None
        process = self._boxes.process(id)
        if process is not None and not process.alive:
            self._clear(id, box)
            return None
        if process is None:
            return "created"
        return "paused" if self._is_frozen(box) else "running"

    @_translated
    def pause(self, id: str) -> None:
        self._caller.groups.freeze(self._running(id).cgroup, True)

    @_translated
    def resume(self, id: str) -> None:
        self._caller.groups.freeze(self._running(id).cgroup, False)

    def _running(self, id: str) -> Box:
        box, process = self._boxes.read(id), self._boxes.process(id)
        if box is None or process is None or not process.alive:
            raise EngineError(f"no such sandbox: {id}")
        return box

    def _is_frozen(self, box: Box) -> bool:
        with suppress(EngineError):  # its group is gone, or there is no freezer
            return self._caller.groups.is_frozen(box.cgroup)
        return False

    @_translated
    def destroy(self, id: str) -> None:
        self._waiting.pop(id, None)
        box = self._boxes.read(id)
        process = self._boxes.process(id)
        if process is not None:
            _end(process, partial(self._thaw, box))
        self._clear(id, box)

    @_translated
    def list(self) -> list[Listed]:
        self._clear_remains()
        found = [
            (name, self._boxes.read(name), self.state(name))
            for name in self._boxes.names()
        ]
        return [
            Listed(name, state, box.labels)
            for name, box, state in found
            if box and state
        ]

    @_translated
    def bridge(self, id: str, argv: Sequence[str]) -> Transport:
        from belljar.engines.oci import own_kernel

        box = self._boxes.read(id)
        if box is None or not self._own_kernel:
            raise EngineError(f"there is no bridge to {id}")
        process = own_kernel.write_process(
            self._boxes.path(id), self._boxes.config(id), argv
        )
        return own_kernel.bridge(self._runtime(box.runtime).beside(id, process))

    @_translated
    def install_init(self, binary: Path, image: str) -> str:
        from belljar.engines.oci import own_kernel

        return own_kernel.install_init(binary, self._state)

    def _run(
        self, box: Box, spec: SandboxSpec, layers: Sequence[Path], at: str
    ) -> None:
        runtime = self._runtime(box.runtime)
        root = _root(layers, spec, self._caller, runtime.hidden())
        bundle = self._boxes.path(box.name)
        pid = self._caller.start(runtime, box.name, bundle, spec, root, at).pid()
        started = start_time(pid)
        if started is None:
            raise EngineError("the sandbox's init ended as soon as it had started")
        self._boxes.started(box.name, Process(pid, started))

    def _thaw(self, box: Box | None) -> None:
        """So that its killed processes end: a frozen one is killed only once it may go on."""
        if box is not None and self._is_frozen(box):
            self._caller.groups.freeze(box.cgroup, False)

    def _clear(self, name: str, box: Box | None) -> None:
        group = box.cgroup if box else self._group(name)
        if not self._caller.groups.clear(group):
            raise EngineError(f"the control group {group} cannot be removed")
        forget(self._runtime_states, name)
        self._store.release(group)
        self._boxes.remove(name)

    def _clear_remains(self) -> None:
        """Remove sandboxes of another boot, and those without processes that only the runtime or the kernel knows."""
        boot = boot_id()
        strays = set(self._boxes.names())
        for name in list(strays):
            box = self._boxes.read(name)
            if box and box.boot != boot:
                self._clear(name, box)
        at = self._caller.groups
        groups = at.names(self._prefix) | {
            each for each in self._store.held() if each.startswith(self._prefix)
        }
        strays |= {
            group.removeprefix(self._prefix).removesuffix(at.ending) for group in groups
        }
        strays |= containers(self._runtime_states)
        for name in filter(is_name, strays):
            if not at.processes(self._group(name)) and self._boxes.read(name) is None:
                self._clear(name, None)
        at.remove_abandoned()
        self._release_abandoned()
        self._boxes.sweep()
        self._store.sweep()

    def _release_abandoned(self) -> None:
        """Release images of dead sandboxes whose state directory is gone: nobody else would."""
        old = self._store.held_since_before(time.time() - cgroups.ABANDONED_SECONDS)
        ours = {group for group in old if cgroups.ABANDONED.fullmatch(group)}
        for group in ours - cgroups.inhabited(ours):
            self._store.release(group)

    def _runtime(self, name: str) -> Runtime:
        if name not in self._runtimes:
            found = Runtime(
                name, self._runtime_states, systemd=self._caller.groups.systemd
            )
            if (
                self._caller.rootless
                and found.kind == "crun"
                and cgroups.version() != "2"
            ):
                raise EngineUnavailable(
                    "with control groups version 1, crun sets no limits for an ordinary user: use runc"
                )
            self._runtimes[name] = found
        return self._runtimes[name]

    def _group(self, name: str) -> str:
        return f"{self._prefix}{name}{self._caller.groups.ending}"

    def image(self, reference: str) -> Image | None:
        return self.images.image(reference)

    def describe(self) -> Description:
        groups = self._caller.groups
        controllers = groups.controllers()
        can = {"memory": "memory", "pids": "pids", "cpus": "cpu"}
        limits: dict[str, bool | None] = {
            ours: theirs in controllers for ours, theirs in can.items()
        }
        return Description(
            version=self._runtime(self.runtime).version(),
            cgroup_version=cgroups.version(),
            cgroup_driver="systemd" if groups.systemd else "cgroupfs",
            can_limit={**limits, "swap": groups.counts_swap()},
            seccomp=Path("/proc/sys/kernel/seccomp").is_dir(),
            rootless=self._caller.rootless,
            does_without=self._caller.missing,
            storage="overlay",
            data_root=str(self._state),
            idle_bytes=IDLE_BYTES,
            bounds=self._caller.bounds(),
        )


def _root(
    layers: Sequence[Path],
    spec: SandboxSpec,
    caller: callers.Caller,
    hidden: Sequence[str],
) -> rootfs.Root:
    directories = {"/proc": 0o755, "/sys": 0o755, "/dev": 0o755}
    directories |= {
        each.target: each.mode for each in spec.mounts if not _is_file(each)
    }
    files = {
        each.target: Path(each.source).read_text() if _is_written(each) else ""
        for each in spec.mounts
        if _is_file(each)
    }
    upper = (
        spec.limits.memory // SIZE_OF_UPPER
        if spec.writable_root
        else rootfs.SKELETON_BYTES
    )
    return rootfs.Root(
        layers,
        *caller.maps(spec.user),
        directories,
        files,
        spec.user.outside,
        upper,
        spec.root_changes,
        mapped=not caller.rootless,
        staged=callers.workspace_overlay(spec),
        hidden=hidden,
    )


def _is_written(mount: Mount) -> bool:
    """Whether it is one of our small files in /etc: written into the read-only root file system, it needs no mount."""
    return mount.target.startswith("/etc/") and _is_file(mount)


def _is_file(mount: Mount) -> bool:
    return mount.kind == "bind" and not os.path.isdir(mount.source)


def _end(process: Process, thaw: Callable[[], object]) -> None:
    """Kill PID 1, and with it the whole sandbox, and wait until it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return
    with closing(descriptor):
        if (
            process.alive
        ):  # checked after opening the descriptor, so the pid was not reused
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            thaw()
            has_ended(descriptor, END_SECONDS)
