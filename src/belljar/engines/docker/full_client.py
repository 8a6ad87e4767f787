"""The Docker engine (and what speaks its API, such as Podman): a container's life, never its commands.

Blocking: callers use a thread. Every request is bounded by REQUEST_SECONDS.

Repeating is safe for all verbs: a container has a name of its own, so a create that was lost on the way is found again
by that name; starting, destroying and looking are idempotent. Commands go over the link and are never repeated.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import requests
from docker import APIClient, errors
from docker.context import ContextAPI
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_random_exponential

from belljar.engines.base import Launched, Listed
from belljar.engines.docker.bridge import Demultiplexed
from belljar.engines.docker.images import DockerImages
from belljar.errors import EngineError, EngineUnavailable, ImageMissing
from belljar.sandbox.rundir import LABEL

if TYPE_CHECKING:
    from belljar.engines.spec import ContainerSpec

REQUEST_SECONDS = 4.5  # the promise is an answer within 5 s, never a hang
RETRY_SECONDS = 2.0
MINIMUM_API = (1, 41)
BRIDGE_USER = "65533:65533"  # nobody else's, so that no command in the sandbox can signal the bridge

F = TypeVar("F", bound=Callable[..., Any])


class _Transient(EngineUnavailable):
    """The engine could not be reached this time."""


def _retried(verb: F) -> F:
    return retry(  # type: ignore[return-value]
        retry=retry_if_exception_type(_Transient),
        stop=stop_after_delay(RETRY_SECONDS),
        wait=wait_random_exponential(multiplier=0.02, max=0.3),
        reraise=True,
    )(verb)


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    """Foreign exceptions become ours here, once."""
    try:
        yield
    except errors.ImageNotFound as error:
        raise ImageMissing(f"{error.explanation}; `belljar images list` shows what there is") from error
    except errors.APIError as error:
        raise EngineError(f"{doing}: {error.explanation or error}") from error
    except requests.exceptions.Timeout as error:
        raise EngineError(f"{doing}: the engine did not answer in time") from error
    except (requests.exceptions.ConnectionError, requests.exceptions.ChunkedEncodingError) as error:
        raise _Transient(
            f"{doing}: the engine cannot be reached; is it running? `belljar doctor` tells more"
        ) from error
    except (errors.DockerException, requests.exceptions.RequestException, OSError, ValueError) as error:
        raise EngineError(f"{doing}: {error}") from error
    except (KeyError, TypeError, AttributeError) as error:
        raise EngineError(f"{doing}: the engine's answer makes no sense ({error!r})") from error


def candidates() -> list[str]:
    """Where an engine may answer, most particular first."""
    if host := os.environ.get("DOCKER_HOST"):
        return [host]
    found = []
    try:
        context = ContextAPI.get_current_context()
        found.append(context.Host if context else "")
    except (errors.DockerException, OSError, KeyError, ValueError):
        pass  # a broken context file is no reason not to try the usual places
    runtime = os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")
    found += ["unix:///var/run/docker.sock", f"unix://{runtime}/docker.sock", f"unix://{runtime}/podman/podman.sock"]
    return list(dict.fromkeys(host for host in [*found, "unix:///run/podman/podman.sock"] if host))


class DockerEngine(DockerImages):
    def __init__(self, host: str) -> None:
        super().__init__(self._client)
        self.host = host.replace("http+docker://", "unix://")
        self._volumes: set[str] = set()
        with _translated(f"connecting to {self.host}"):
            self.api = self._client(REQUEST_SECONDS)
        self._check_version()
        about = self.info()
        self.machine = str(about.get("Architecture", "x86_64"))
        self.shares_files = self._shares_files(about)

    def close(self) -> None:
        self.api.close()

    @classmethod
    def find(cls) -> DockerEngine:
        tried = []
        for host in candidates():
            try:
                return cls(host)
            except EngineUnavailable:
                raise
            except EngineError as error:
                tried.append(f"{host} ({str(error).rsplit(': ', 1)[-1][:80]})")
        raise EngineUnavailable(
            "No container engine answers. Start Docker or Podman, or set DOCKER_HOST (`make engine` installs one). "
            f"Tried: {'; '.join(tried)}"
        )

    def _client(self, timeout: float | None) -> APIClient:
        tls: dict[str, Any] = {}
        if self.host.startswith("tcp://") and os.environ.get("DOCKER_TLS_VERIFY"):
            from docker.utils import kwargs_from_env

            tls = {"tls": kwargs_from_env()["tls"]}
        # docker-py keeps a pool of connections for every single URL: those of containers long gone too, if it may.
        return APIClient(base_url=self.host, version="auto", timeout=timeout, num_pools=1, max_pool_size=32, **tls)

    def _check_version(self) -> None:
        version = tuple(int(part) for part in self.api.api_version.split("."))
        if version < MINIMUM_API:
            raise EngineError(
                f"{self.host} speaks API {self.api.api_version}; Belljar needs 1.41 (Docker 20.10) or newer"
            )

    def _shares_files(self, about: dict[str, Any]) -> bool:
        if told := os.environ.get("BELLJAR_LINK"):
            return told != "bridge"
        if not self.host.startswith("unix://"):
            return False
        return "Docker Desktop" not in str(about.get("OperatingSystem", ""))

    @_retried
    def info(self) -> dict[str, Any]:
        with _translated("asking the engine about itself"):
            found: dict[str, Any] = self.api.info()
            return found

    # A container's life.

    @_retried
    def create(self, spec: ContainerSpec, name: str) -> str:
        with _translated("creating the sandbox"):
            try:
                made = self._post("/containers/create", spec.create_body(), params={"name": name})
            except errors.APIError as error:
                if error.status_code != 409:
                    raise
                return str(self.api.inspect_container(name)["Id"])  # our own earlier try, whose answer was lost
            return str(made["Id"])

    def _post(self, path: str, body: dict[str, Any], **options: Any) -> dict[str, Any]:
        # Spec as data: docker-py's own create builds its body from keyword arguments and cannot say all of ours.
        url = f"{self.api.base_url}/v{self.api.api_version}{path}"
        response = self.api.post(url, json=body, timeout=REQUEST_SECONDS, **options)
        if response.status_code == 404:
            raise errors.ImageNotFound("", response=response, explanation=response.json().get("message", ""))
        self.api._raise_for_status(response)
        found: dict[str, Any] = response.json()
        return found

    def start(self, id: str) -> Launched:
        self._start(id)
        return self.inspect(id)

    @_retried
    def _start(self, id: str) -> None:
        with _translated("starting the sandbox"):
            self.api.start(id)

    @_retried
    def inspect(self, id: str) -> Launched:
        with _translated("looking at the sandbox"):
            facts = self.api.inspect_container(id)
            return Launched(facts["Id"], int(facts["State"]["Pid"]), facts)

    @_retried
    def state(self, id: str) -> str | None:
        with _translated("looking at the sandbox"):
            try:
                return str(self.api.inspect_container(id)["State"]["Status"])
            except errors.NotFound:
                return None

    @_retried
    def destroy(self, id: str) -> None:
        with _translated("removing the sandbox"):
            try:
                self.api.remove_container(id, force=True, v=True)
            except errors.NotFound:
                return
            except errors.APIError as error:
                if error.status_code != 409:  # 409: it is being removed already
                    raise

    @_retried
    def list(self) -> list[Listed]:
        with _translated("listing sandboxes"):
            rows = self.api.containers(all=True, filters={"label": LABEL + "session"})
        return [
            Listed(r["Id"], r["State"], r.get("Labels") or {}, r.get("Image", ""), int(r.get("Created", 0)))
            for r in rows
        ]

    @_retried
    def image_facts(self, reference: str) -> dict[str, Any] | None:
        """What the engine says of an image; None: it has no such image."""
        with _translated(f"looking at image {reference}"):
            try:
                found: dict[str, Any] = self.api.inspect_image(reference)
            except errors.ImageNotFound:
                return None
            return found

    # Where files are not shared: the init in a volume, the link through `exec`.

    def bridge(self, id: str) -> Demultiplexed:
        with _translated("connecting to the sandbox"):
            bridge = ["/.belljar/init", "--bridge"]
            made = self.api.exec_create(id, bridge, stdin=True, stdout=True, stderr=True, user=BRIDGE_USER)
            return Demultiplexed(self.api.exec_start(made["Id"], socket=True))

    def install_init(self, binary: Path, image: str) -> str:
        """Put the init into a volume of the engine, once per engine and version."""
        name = f"belljar-init-{hashlib.sha256(binary.read_bytes()).hexdigest()[:16]}"
        if name not in self._volumes:
            self._fill_volume(name, binary, image)
            self._volumes.add(name)
        return name

    @_retried
    def _fill_volume(self, name: str, binary: Path, image: str) -> None:
        with _translated("installing the init"):
            mount = {"Type": "volume", "Source": name, "Target": "/.belljar"}
            body = {"Image": image, "Cmd": ["/none"], "Entrypoint": [], "HostConfig": {"Mounts": [mount]}}
            holder = self._post("/containers/create", body)["Id"]
            try:
                self.api.put_archive(holder, "/.belljar", _tar(binary))
            finally:
                self.api.remove_container(holder, force=True, v=True)  # with the volumes that the image declares


def _tar(binary: Path) -> bytes:
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        entry = tarfile.TarInfo("init")
        entry.mode, entry.size = 0o711, binary.stat().st_size  # executable, but readable by root alone
        with binary.open("rb") as source:
            tar.addfile(entry, source)
    return archive.getvalue()
