"""Where to look for an engine with Docker's API: DOCKER_HOST, Docker's contexts, the default sockets."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from belljar import environment
from belljar.ancestry import untrusted
from belljar.errors import NamedEngineUnavailable
from belljar.records import record
from belljar.resources import read_json

DEFAULT = "unix:///var/run/docker.sock"


@record
class Endpoint:
    host: str
    """unix:///path or tcp://name:port."""
    certificates: str = ""
    """With TLS: a directory with ca.pem, cert.pem and key.pem."""
    named_by: str = ""
    """The setting that names it; then no other engine may be used instead."""

    @property
    def path(self) -> str | None:
        """The path of its socket, if it is on this machine."""
        return (
            self.host.removeprefix("unix://")
            if self.host.startswith("unix://")
            else None
        )


def candidates(sockets: tuple[str, ...]) -> list[Endpoint]:
    """The endpoint that the settings name, or else these sockets."""
    if host := environment.value("DOCKER_HOST"):
        verifies = environment.value("DOCKER_TLS_VERIFY")
        certificates = (
            environment.value("DOCKER_CERT_PATH", str(_config())) if verifies else ""
        )
        return [
            Endpoint(
                host.replace("http+docker://", "unix://"), certificates, "DOCKER_HOST"
            )
        ]
    if named := _context():
        return [named]
    # Not where another user may listen (`sudo -E` brings his XDG_RUNTIME_DIR).
    places = [
        host
        for host in dict.fromkeys(sockets)
        if not untrusted(os.path.dirname(host.removeprefix("unix://")))
    ]
    return [Endpoint(host) for host in places]


def runtime_directory() -> str:
    return environment.value("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")


def _config() -> Path:
    return Path(environment.value("DOCKER_CONFIG", os.path.expanduser("~/.docker")))


def _context() -> Endpoint | None:
    """The engine chosen with `docker context use`, unless it is the default one."""
    config = (
        read_json(_config() / "config.json") or {}
    )  # the docker command ignores a broken file, too
    name = environment.value("DOCKER_CONTEXT") or str(
        config.get("currentContext") or ""
    )
    if name in ("", "default"):
        return None
    id = hashlib.sha256(name.encode()).hexdigest()
    meta = _config() / "contexts/meta" / id / "meta.json"
    for file in (
        _config() / "config.json",
        meta,
    ):  # root with another user's HOME would be led to an engine of his
        if found := untrusted(file):
            raise NamedEngineUnavailable(
                f"Docker's context {name!r} is not used: others own {found} or may write to it; DOCKER_HOST names an "
                "engine, DOCKER_CONTEXT=default takes this machine's"
            )
    try:
        context = json.loads(meta.read_text())
        host = str(context["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NamedEngineUnavailable(
            f"Docker's context {name!r} cannot be read; `docker context ls` lists them"
        ) from error
    certificates = _config() / "contexts/tls" / id / "docker"
    return Endpoint(
        host, str(certificates) if certificates.is_dir() else "", f"context {name}"
    )


def podman_start() -> str:
    """The command that starts Podman's service, for the caller on this machine."""
    if not os.path.isdir("/run/systemd/system"):
        return "podman system service --time=0 &"
    if os.geteuid() == 0:
        return "systemctl start podman.socket"
    return "systemctl --user start podman.socket"
