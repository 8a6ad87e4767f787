"""An engine with Docker's API. It starts and ends containers; commands go over the link. Blocking.

Every request may be repeated: a container has a unique name, so a create whose answer was lost is found again by that
name, and the other verbs are idempotent.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from belljar import environment
from belljar.engines.base import Description, Launched, Listed
from belljar.engines.capabilities import Capabilities
from belljar.engines.docker.claims import claims
from belljar.engines.docker.client import (
    SLOW_SECONDS,
    Answered,
    Client,
    expected_shape,
    quote,
)
from belljar.engines.docker.create_body import create_body
from belljar.engines.docker.dialect import Dialect
from belljar.engines.docker.hosts import Endpoint
from belljar.engines.docker.image_links import ImageLinks
from belljar.engines.docker.images import DockerImages
from belljar.engines.kernel_facts import limited_by_its_group
from belljar.engines.spec import (
    BRIDGE_USER,
    DOES_WITHOUT_THIS_KERNEL,
    LABEL,
    Image,
    SandboxSpec,
    User,
    has_own_kernel,
)
from belljar.errors import EngineError, ImageMissing, UsageError
from belljar.layout import MACHINES

if TYPE_CHECKING:
    from belljar.engines.docker.bridge import Demultiplexed

MINIMUM_API = (1, 41)
OWN_KERNEL_ARGUMENTS = ("--network=none", "--oci-seccomp")


class DockerEngine:
    def __init__(
        self, endpoint: Endpoint, dialect: Dialect | None = None, runtime: str = ""
    ) -> None:
        self.client = Client(endpoint)
        self.dialect = dialect or Dialect()
        self.images = DockerImages(self.client, self.dialect.name_prefixes)
        self.name, self.host = self.dialect.name, endpoint.host
        self._volumes: set[str] = set()
        self._image_links = ImageLinks(self.client, verbatim=self.dialect.copies_links)
        self._late_ulimits: dict[str, dict[str, int]] = {}
        self.about = self._about()
        self.machine = MACHINES.get(str(self.about["Arch"]), str(self.about["Arch"]))
        self.runtime, self._own_kernel = runtime, has_own_kernel(runtime)
        self._is_here = endpoint.path is not None and "Desktop" not in json.dumps(
            self.about.get("Platform")
        )
        self.capabilities = self._capabilities()
        self.identity = f"{self.name} {os.path.realpath(endpoint.path) if endpoint.path else endpoint.host}"

    def close(self) -> None:
        """Nothing to close: each request has its own connection."""

    def _about(self) -> dict[str, Any]:
        doing = f"connecting to {self.host}"
        with expected_shape(doing):
            about = self.client.ask(doing, "GET", "/version")
            version = tuple(int(part) for part in about["ApiVersion"].split("."))
            if version < MINIMUM_API:
                raise EngineError(
                    f"{self.host} speaks API {about['ApiVersion']}; Belljar needs 1.41 (Docker 20.10) or newer"
                )
            if about["Os"] != "linux":
                raise EngineError(
                    f"{self.host} runs {about['Os']} containers; Belljar needs Linux ones"
                )
            document: dict[str, Any] = {**about, "Arch": str(about["Arch"])}
            return document

    def _capabilities(self) -> Capabilities:
        near = self._shares_files()
        return Capabilities(
            link="socket" if near else "exec",
            binds=near,
            overlays=near,
            sees_processes=near,
            sees_groups=self._is_here,
            own_kernel=self._own_kernel,
            networks=frozenset({"none"} if self._own_kernel else {"none", "full"}),
            own_namespaces=self.dialect.own_namespaces(),
        )

    def _shares_files(self) -> bool:
        """Whether its sandboxes can mount what this machine mounts, and are this machine's processes."""
        if not self.dialect.works_remotely:
            if self.client.endpoint.path is None:
                raise EngineError(
                    f"{self.name} at {self.host}: use one on this machine, whose kernel Belljar can check"
                )
            return True
        if self._own_kernel:
            return False
        if link := environment.value("BELLJAR_LINK"):
            return link != "bridge"
        return self._is_here

    @cached_property
    def info(self) -> dict[str, Any]:
        info: dict[str, Any] = self.client.ask(
            "asking the engine about itself", "GET", "/info"
        )
        return info

    @cached_property
    def rootless(self) -> bool:
        """Whether it runs as an ordinary user of this machine, who then owns its socket."""
        path = self.client.endpoint.path
        try:
            return bool(path and os.stat(path).st_uid) and "name=rootless" in (
                self.info.get("SecurityOptions") or []
            )
        except OSError:
            return False

    def user(self, uid: int, gid: int, *, root: bool = False) -> User:
        if root:
            raise UsageError(
                f"--root needs a user namespace for each sandbox, which {self.name} does not have: "
                "use the engine oci (--engine oci)"
            )
        if self.rootless and uid == os.geteuid():
            return self.dialect.rootless_user(uid, gid)
        return User(uid, gid)

    # A container's life.

    def create(self, spec: SandboxSpec, name: str) -> str:
        doing = "creating the sandbox"
        with expected_shape(doing):
            if self._own_kernel:
                self._check_own_kernel(spec)
            try:
                self._image_links.refuse(spec)
                body = create_body(spec, self.dialect)
                path = f"/containers/create?name={quote(name)}"
                with self.dialect.creating(spec):
                    id = _id(
                        self.client.ask(doing, "POST", path, body, seconds=SLOW_SECONDS)
                    )
                if self.dialect.ignores_ulimits(self.rootless):
                    self._late_ulimits[id] = spec.ulimits
                return id
            except Answered as error:
                if (
                    "cpus" in error.message.lower()
                ):  # only the engine knows how many its machine has
                    raise UsageError(
                        f"cpus: {error.message}; ask for no more than that"
                    ) from error
                if error.status == 404:
                    raise ImageMissing(
                        f"{error.message}; `belljar images list` lists the images"
                    ) from error
                if (
                    error.status != 409 and "already in use" not in error.message
                ):  # Podman answers with 500
                    raise
                return _id(
                    self._document(name, doing)
                )  # made by our own earlier request, whose answer was lost

    def _check_own_kernel(self, spec: SandboxSpec) -> None:
        """Such a runtime is told by its own arguments what it would otherwise leave out without a word."""
        known = (self.info.get("Runtimes") or {}).get(self.runtime)
        if known and not set(OWN_KERNEL_ARGUMENTS) <= set(
            known.get("runtimeArgs") or ()
        ):
            raise EngineError(
                f"Docker does not tell {self.runtime} to put our seccomp profile in force: its entry in "
                f'/etc/docker/daemon.json needs "runtimeArgs": {json.dumps(OWN_KERNEL_ARGUMENTS)} beside its "path"; '
                "then `systemctl reload docker`"
            )

    def start(self, id: str) -> Launched:
        self.client.ask(
            "starting the sandbox",
            "POST",
            f"/containers/{quote(id)}/start",
            {},
            seconds=SLOW_SECONDS,
        )
        launched = self.inspect(id)
        if launched.pid and (ulimits := self._late_ulimits.pop(id, None)):
            from belljar.engines.rlimits import impose

            impose(launched.pid, ulimits)
        return launched

    def inspect(self, id: str) -> Launched:
        doing = "looking at the sandbox"
        with expected_shape(doing):
            document = self._document(id, doing)
            pid = int(document["State"]["Pid"])
            claimed = claims(document, self.dialect, self.machine)
            if self._own_kernel and self._is_here:
                claimed = limited_by_its_group(claimed, pid)
            return Launched(_id(document), pid, claimed)

    def state(self, id: str) -> str | None:
        doing = "looking at the sandbox"
        with expected_shape(doing):
            try:
                return str(self._document(id, doing)["State"]["Status"])
            except Answered as error:
                if (
                    error.status == 404 or "no such container" in error.message
                ):  # Podman's 500 for one that just went
                    return None
                raise

    def _document(self, id: str, doing: str) -> dict[str, Any]:
        document: dict[str, Any] = self.client.ask(
            doing, "GET", f"/containers/{quote(id)}/json"
        )
        return document

    def destroy(self, id: str) -> None:
        # 404: it is gone; 409: somebody is removing it.
        self.client.ask(
            "removing the sandbox",
            "DELETE",
            f"/containers/{quote(id)}?force=1&v=1",
            expected=(200, 204, 404, 409),
            seconds=SLOW_SECONDS,
        )

    def pause(self, id: str) -> None:
        self._freeze("pausing the sandbox", id, "pause", wanted="paused")

    def resume(self, id: str) -> None:
        self._freeze("resuming the sandbox", id, "unpause", wanted="running")

    def _freeze(self, doing: str, id: str, verb: str, *, wanted: str) -> None:
        try:
            self.client.ask(
                doing,
                "POST",
                f"/containers/{quote(id)}/{verb}",
                {},
                seconds=SLOW_SECONDS,
            )
        except Answered:
            if self.state(id) != wanted:  # else it was so before
                raise

    def list(self) -> list[Listed]:
        doing = "listing sandboxes"
        filters = quote(json.dumps({"label": [LABEL + "session"]}))
        with expected_shape(doing):
            rows = self.client.ask(
                doing, "GET", f"/containers/json?all=1&filters={filters}"
            )
            return [
                Listed(row["Id"], row["State"], row.get("Labels") or {}) for row in rows
            ]

    def image(self, reference: str) -> Image | None:
        return self.images.image(reference)

    def describe(self) -> Description:
        with expected_shape("asking the engine about itself"):
            info = self.info
            options = " ".join(info.get("SecurityOptions") or [])
            return Description(
                version=f"{info.get('ServerVersion', '?')}, API {self.about.get('ApiVersion')}",
                cgroup_version=str(info.get("CgroupVersion", "1")),
                cgroup_driver=str(info.get("CgroupDriver", "?")),
                can_limit=self.dialect.can_limit(self.client, info),
                seccomp="name=seccomp" in options,
                rootless="name=rootless" in options,
                does_without=DOES_WITHOUT_THIS_KERNEL if self._own_kernel else (),
                user_remapping="name=userns" in options,
                access_control=next(
                    (
                        name
                        for name in ("apparmor", "selinux")
                        if f"name={name}" in options
                    ),
                    "",
                ),
                access_control_gap=self.dialect.access_control_gap(),
                storage=str(info.get("Driver", "?")),
                data_root=str(info.get("DockerRootDir") or ""),
            )

    # For engines that share no files: the init in a volume, the link through `exec`.

    def bridge(self, id: str, argv: Sequence[str]) -> Demultiplexed:
        from belljar.engines.docker.bridge import Demultiplexed

        doing = "connecting to the sandbox"
        body = {
            "Cmd": list(argv),
            "User": str(BRIDGE_USER),
            "Tty": False,
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
        }
        with expected_shape(doing):
            exec_id = self.client.ask(
                doing, "POST", f"/containers/{quote(id)}/exec", body
            )["Id"]
            return Demultiplexed(
                *self.client.stream(
                    doing, f"/exec/{quote(exec_id)}/start", {"Detach": False}
                )
            )

    def install_init(self, binary: Path, image: str) -> str:
        """Put the init into a volume of the engine, once per engine and version."""
        mode = (
            0o755 if self._own_kernel else 0o711
        )  # only root may read it; gVisor, though, reads it as the user
        name = f"belljar-init-{hashlib.sha256(binary.read_bytes()).hexdigest()[:16]}-{mode:o}"
        if name not in self._volumes:
            self._fill_volume(name, _tar(binary, mode), image)
            self._volumes.add(name)
        return name

    def _fill_volume(self, name: str, archive: bytes, image: str) -> None:
        doing, target = "installing the init", "/.belljar-init"
        mount = {
            "Type": "volume",
            "Source": name,
            "Target": target,
            "VolumeOptions": {"NoCopy": True},
        }
        body = {
            "Image": image,
            "Cmd": ["/none"],
            "Entrypoint": [],
            "HostConfig": {"Mounts": [mount]},
        }
        with expected_shape(doing):
            holder = quote(
                self.client.ask(
                    doing, "POST", "/containers/create", body, seconds=SLOW_SECONDS
                )["Id"]
            )
            try:
                path = f"/containers/{holder}/archive?path={quote(target)}"
                self.client.ask(doing, "PUT", path, archive, seconds=SLOW_SECONDS)
            finally:
                self.destroy(holder)  # also removes the volumes that the image declares


def _id(answer: Any) -> str:
    id = answer["Id"]
    if not isinstance(id, str):
        raise TypeError("its Id is not a string")
    return id


def _tar(binary: Path, mode: int) -> bytes:
    import io
    import tarfile

    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("init")
        entry.mode, entry.size = mode, binary.stat().st_size
        with binary.open("rb") as source:
            tar.addfile(entry, source)
    return archive.getvalue()
