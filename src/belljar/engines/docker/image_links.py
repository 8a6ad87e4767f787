"""Finds links in an image that would lead a mount into a directory of the host, before a container of it starts.

An engine creates a mount's missing target, and follows the image's links on the way. With /etc/passwd linked to
/workspace/x it would create an empty file in the workspace before we could verify anything. So we first inspect the
image in a container without mounts that never runs. An image's id stands for its content, so a harmless image is
remembered, on disk too.
"""

from __future__ import annotations

import base64
import hashlib
import json
import posixpath
import re
import threading
from collections.abc import Callable, Iterator
from functools import cache

from belljar import resources
from belljar.engines.docker.client import SLOW_SECONDS, Client, quote
from belljar.engines.spec import SandboxSpec
from belljar.errors import ProtectionMissing

HARMLESS = "harmless-images"
DOING = "looking for links in the image"
MOST_LINKS = 40  # the kernel's limit
# Where the engine itself mounts. Docker replaces what an image has there, Podman follows it.
_ENGINE_MOUNTS = (
    "/dev",
    "/proc",
    "/sys",
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
)
_KERNEL_MOUNTS = ("/dev", "/proc", "/sys")  # full of links that are not the image's
_LINK_MODE = 1 << 27  # os.ModeSymlink of Go
_FRESH = (
    "/tmp",
    "/var/tmp",
)  # empty in each sandbox: what an engine creates there does no harm

ReadLink = Callable[[str], str | None]
"""The target of the link at a path; None: there is no link."""


class ImageLinks:
    def __init__(self, client: Client, *, verbatim: bool) -> None:
        """`verbatim`: whether the engine copies a link out as a link; otherwise it only reports the final target."""
        self._client, self._verbatim = client, verbatim
        self._harmless: set[str] = set()
        self._lock = threading.Lock()

    def refuse(self, spec: SandboxSpec) -> None:
        """Raise ProtectionMissing if a link would lead a mount of this sandbox into another mount."""
        mounts: dict[str, str] = {
            mount.target: mount.kind
            for mount in spec.mounts
            if not _is_below(mount.target, spec.private)
        }
        key = hashlib.sha256(
            json.dumps([spec.image.ref, sorted(mounts.items())]).encode()
        ).hexdigest()
        if key in self._harmless:
            return
        with self._lock:
            if key not in self._harmless and not resources.is_remembered(HARMLESS, key):
                self._inspect(spec, mounts)
                resources.remember(HARMLESS, key)
            self._harmless.add(key)

    def _inspect(self, spec: SandboxSpec, mounts: dict[str, str]) -> None:
        tmpfs = dict.fromkeys(
            spec.image.volumes, ""
        )  # instead of volumes, into which the engine would copy files
        body = {
            "Image": spec.image.ref,
            "Entrypoint": ["/none"],
            "Cmd": [],
            "Labels": spec.all_labels,
            "NetworkDisabled": True,
            "HostConfig": {"NetworkMode": "none", "Tmpfs": tmpfs},
        }
        id = quote(
            self._client.ask(
                DOING, "POST", "/containers/create", body, seconds=SLOW_SECONDS
            )["Id"]
        )
        try:
            read_link = cache(lambda path: self._read_link(id, path))
            for target in sorted({*mounts, *_ENGINE_MOUNTS}):
                if (wrong := led_astray(target, mounts, read_link)) is not None:
                    raise ProtectionMissing(
                        f"the image has a link on the way to {target} that leads to {wrong}, where a mount of the "
                        "host's or the kernel's will be, so nothing was run; use an image without it"
                    )
        finally:
            path = f"/containers/{id}?force=1&v=1"
            self._client.ask(
                DOING,
                "DELETE",
                path,
                expected=(200, 204, 404, 409),
                seconds=SLOW_SECONDS,
            )

    def _read_link(self, id: str, path: str) -> str | None:
        url = f"/containers/{id}/archive?path={quote(path)}"
        head, _ = self._client.request(
            DOING, "HEAD", url, expected=(200, 404)
        )  # 404 from Podman: it leads nowhere
        header = re.search(
            rb"\r\nx-docker-container-path-stat: *([^\r]+)", head, re.IGNORECASE
        )
        status = json.loads(base64.b64decode(header[1])) if header else None
        if status is None or not status["mode"] & _LINK_MODE:
            return None
        if not self._verbatim:
            return str(status["linkTarget"])
        _, archive = self._client.request(DOING, "GET", url, expected=(200,))
        return _only_link(archive)


def _only_link(archive: bytes) -> str:
    import io
    import tarfile

    try:
        with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
            (entry,) = tar.getmembers()
            return entry.linkname
    except tarfile.TarError as error:
        raise ValueError(f"no archive: {error}") from error


def led_astray(target: str, mounts: dict[str, str], read_link: ReadLink) -> str | None:
    """The forbidden place that links on the way to `target` lead to: one in a mount of the host or the kernel, or one
    above another mount, which would then be made in this one. None: they lead to no such place."""
    shared = [
        path for path, kind in mounts.items() if kind != "tmpfs" and path not in _FRESH
    ]
    moved = [
        end
        for path in shared
        if path != target and (end := _end(path, mounts, read_link))
    ]
    for at, links in _steps(target, mounts, read_link):
        if links > MOST_LINKS or (
            links
            and any(_is_below(at, path) for path in (*shared, *moved, *_KERNEL_MOUNTS))
        ):
            return at
    end = _end(target, mounts, read_link)
    covered = [
        path
        for path in (*mounts, *_ENGINE_MOUNTS)
        if path != target and path.startswith(f"{end.rstrip('/')}/")
    ]
    return end if end and covered else None


def _end(target: str, mounts: dict[str, str], read_link: ReadLink) -> str:
    """Where links finally lead `target`; empty: there is no link on the way."""
    *_, (at, links) = _steps(target, mounts, read_link)
    return at if links else ""


def _steps(
    target: str, mounts: dict[str, str], read_link: ReadLink
) -> Iterator[tuple[str, int]]:
    """Each place on the way to `target`, and how many links led there."""
    at = "/"
    left = _parts(target)
    links = 0
    while left and links <= MOST_LINKS:
        at = posixpath.normpath(
            posixpath.join(at, left.pop(0))
        )  # no link is left in `at`, so normpath may drop `..`
        yield at, links
        if not links and left and at in mounts:
            return  # nothing of the image is below a mount
        if (text := read_link(at)) is not None:
            links += 1
            at = "/" if text.startswith("/") else posixpath.dirname(at)
            left = _parts(text) + left
    yield at, links


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
