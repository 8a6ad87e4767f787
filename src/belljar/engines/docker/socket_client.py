"""Docker's everyday verbs, spoken straight to its local socket.

The full client takes longer to import than a sandbox takes to start. So where the engine is a socket of this machine,
what every command needs is plain HTTP here. Everything else, and whatever does not go as expected, is left to the full
client: it is loaded then, repeats the verb (all are idempotent), knows how to retry and what to say.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable
from functools import cached_property, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from belljar.engines.base import Launched, Listed
from belljar.errors import EngineError, EngineUnavailable
from belljar.sandbox.rundir import LABEL

if TYPE_CHECKING:
    from belljar.engines.docker.full_client import DockerEngine
    from belljar.engines.spec import ContainerSpec

REQUEST_SECONDS = 4.5  # the promise is an answer within 5 s, never a hang: what did not come is not asked for again
ANSWER_MAX = 64 << 20
MINIMUM_API = (1, 41)
F = TypeVar("F", bound=Callable[..., Any])
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


class _Unexpected(Exception):
    """Not what the fast lane is for."""


def socket_path() -> str | None:
    """The socket of this machine's own engine, where nothing says that another one is meant."""
    host = os.environ.get("DOCKER_HOST") or "unix:///var/run/docker.sock"
    if os.environ.get("DOCKER_CONTEXT") or os.environ.get("BELLJAR_LINK") or not host.startswith("unix://"):
        return None
    if "DOCKER_HOST" not in os.environ and not _default_context():
        return None
    return host.removeprefix("unix://")


def _default_context() -> bool:
    home = Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker"))
    try:
        settings = json.loads((home / "config.json").read_text())
    except FileNotFoundError:
        return True
    except (OSError, ValueError):
        return False
    return isinstance(settings, dict) and settings.get("currentContext", "default") in ("", "default")


def _or_full(verb: F) -> F:
    """Take the fast lane, and the full client's where that does not lead to the expected answer."""

    @wraps(verb)
    def call(self: LocalDocker, *args: Any) -> Any:
        try:
            return verb(self, *args)
        except (_Unexpected, OSError, ValueError, KeyError, TypeError):
            return getattr(self._full, verb.__name__)(*args)

    return cast("F", call)


def quote(text: str) -> str:
    """For a path or a query; urllib's would cost more time than the request."""
    return "".join(c if (c.isalnum() and c.isascii()) or c in "-._~/:@" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return "".join(f"%{byte:02X}" for byte in character.encode())


class LocalDocker:
    shares_files = True

    def __init__(self, path: str) -> None:
        self._path = path
        self.host = f"unix://{path}"
        about = self._ask("GET", "/version", 200)
        version = tuple(int(part) for part in about["ApiVersion"].split("."))
        if version < MINIMUM_API or about["Os"] != "linux" or "Desktop" in str(about.get("Platform")):
            raise _Unexpected
        self.machine: str = _MACHINES.get(about["Arch"], about["Arch"])

    @classmethod
    def find(cls) -> LocalDocker | None:
        path = socket_path()
        try:
            return cls(path) if path else None
        except (_Unexpected, OSError, ValueError, KeyError, TypeError, AttributeError):
            return None

    @cached_property
    def _full(self) -> DockerEngine:
        from belljar.engines.docker.full_client import DockerEngine

        return DockerEngine(self.host)

    def close(self) -> None:
        if "_full" in self.__dict__:
            self._full.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._full, name)

    @_or_full
    def create(self, spec: ContainerSpec, name: str) -> str:
        return str(self._ask("POST", f"/containers/create?name={quote(name)}", 201, spec.create_body())["Id"])

    @_or_full
    def start(self, id: str) -> Launched:
        self._ask("POST", f"/containers/{quote(id)}/start", 204, {})
        return self.inspect(id)

    @_or_full
    def inspect(self, id: str) -> Launched:
        facts = self._ask("GET", f"/containers/{quote(id)}/json", 200)
        return Launched(facts["Id"], int(facts["State"]["Pid"]), facts)

    @_or_full
    def state(self, id: str) -> str | None:
        return str(self._ask("GET", f"/containers/{quote(id)}/json", 200)["State"]["Status"])

    @_or_full
    def destroy(self, id: str) -> None:
        self._ask("DELETE", f"/containers/{quote(id)}?force=1&v=1", 204)

    @_or_full
    def list(self) -> list[Listed]:
        wanted = quote(json.dumps({"label": [LABEL + "session"]}))
        rows = self._ask("GET", f"/containers/json?all=1&filters={wanted}", 200)
        return [Listed(r["Id"], r["State"], r.get("Labels") or {}, r["Image"], int(r["Created"])) for r in rows]

    @_or_full
    def image_facts(self, reference: str) -> dict[str, Any] | None:
        found: dict[str, Any] = self._ask("GET", f"/images/{quote(reference)}/json", 200)
        return found

    def _ask(self, method: str, path: str, expected: int, body: dict[str, Any] | None = None) -> Any:
        """One request on a connection of its own, which on a local socket costs next to nothing."""
        data = b"" if body is None else json.dumps(body).encode()
        head = (
            f"{method} {path} HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
        )
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC) as connection:
            try:
                connection.settimeout(REQUEST_SECONDS)
                connection.connect(self._path)
                connection.sendall(f"{head}\r\n\r\n".encode() + data)
                answer = _receive(connection, time.monotonic() + REQUEST_SECONDS)
            except TimeoutError:
                raise EngineUnavailable(f"the engine at {self.host} did not answer in time") from None
        start, _, content = answer.partition(b"\r\n\r\n")
        if start.split(b" ", 2)[1:2] != [str(expected).encode()]:
            raise _Unexpected
        return json.loads(content) if content else {}


def _receive(connection: socket.socket, deadline: float) -> bytes:
    """All that comes until the other side closes; an engine that drips is no better than one that is silent."""
    answer = bytearray()
    while part := connection.recv(1 << 16):
        answer += part
        if len(answer) > ANSWER_MAX:
            raise EngineError("the engine's answer has no end")
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        connection.settimeout(left)
    return bytes(answer)
