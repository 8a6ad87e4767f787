"""Where an engine with Docker's API may answer: DOCKER_HOST, Docker's contexts, the usual sockets."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from belljar.errors import NamedEngineUnavailable
from belljar.records import record
from belljar.resources import read_json

DEFAULT = "unix:///var/run/docker.sock"


@record
class Endpoint:
    host: str
    """unix:///path or tcp://name:port."""
    certificates: str = ""
    """A directory with ca.pem, cert.pem and key.pem, where it speaks TLS."""
    named_by: str = ""
    """The setting that names it; no other engine may stand in for it then."""

    @property
    def path(self) -> str | None:
        """Of its socket, where it is one of this machine."""
        return self.host.removeprefix("unix://") if self.host.startswith("unix://") else None


def candidates(usual: tuple[str, ...]) -> list[Endpoint]:
    """The one that the settings name, or else the usual places of this kind of engine."""
    if host := os.environ.get("DOCKER_HOST"):
        certificates = (os.environ.get("DOCKER_CERT_PATH") or str(_config())) if _verifies() else ""
        return [Endpoint(host.replace("http+docker://", "unix://"), certificates, "DOCKER_HOST")]
    if named := _context():
        return [named]
    return [Endpoint(host) for host in dict.fromkeys(usual)]


def runtime_directory() -> str:
    return os.environ.get("XDG_RUNTIME_DIR", f"/run/user/{os.geteuid()}")


def _verifies() -> bool:
    return bool(os.environ.get("DOCKER_TLS_VERIFY"))


def _config() -> Path:
    return Path(os.environ.get("DOCKER_CONFIG") or os.path.expanduser("~/.docker"))


def _context() -> Endpoint | None:
    """Docker's own choice of an engine (`docker context use`), unless that is the default one."""
    chosen = read_json(_config() / "config.json") or {}  # if broken the docker command goes on with its defaults, too
    name = os.environ.get("DOCKER_CONTEXT") or str(chosen.get("currentContext") or "")
    if name in ("", "default"):
        return None
    id = hashlib.sha256(name.encode()).hexdigest()
    try:
        about = json.loads((_config() / "contexts/meta" / id / "meta.json").read_text())
        host = str(about["Endpoints"]["docker"]["Host"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise NamedEngineUnavailable(
            f"Docker's context {name!r} cannot be read; `docker context ls` lists them"
        ) from error
    certificates = _config() / "contexts/tls" / id / "docker"
    return Endpoint(host, str(certificates) if certificates.is_dir() else "", f"context {name}")


def podman_start() -> str:
    """The command that starts Podman's service, for the caller on this machine."""
    if not os.path.isdir("/run/systemd/system"):
        return "podman system service --time=0 &"
    return "systemctl start podman.socket" if os.geteuid() == 0 else "systemctl --user start podman.socket"
