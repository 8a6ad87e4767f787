"""Links of an image that would lead a mount into a directory of the host, found before a container of it starts.

An engine makes what is missing of a mount's target, and follows the image's links on the way: with /etc/passwd leading
to /workspace/x, an empty file would be in the workspace before anything could be verified. So the image is looked at
first, in a container that has no mounts and never runs. An image's id is its content: what was harmless once is
remembered, also for other processes.
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
MOST_LINKS = 40  # as in the kernel
# Where the engine itself mounts. Docker replaces what an image has there, Podman follows it.
_ENGINES_OWN = ("/dev", "/proc", "/sys", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf")
_KERNELS = ("/dev", "/proc", "/sys")  # full of links that no image holds
_LINK_MODE = 1 << 27  # os.ModeSymlink of Go
_NEW = ("/tmp", "/var/tmp")  # empty in each sandbox: what an engine makes there is nobody's

Link = Callable[[str], str | None]
"""What a link says; None: there is none at that path."""


class ImageLinks:
    def __init__(self, client: Client, *, verbatim: bool) -> None:
        """`verbatim`: whether the engine hands out a link as it is, not only the path that it leads to."""
        self._client, self._verbatim = client, verbatim
        self._harmless: set[str] = set()
        self._lock = threading.Lock()

    def refuse(self, spec: SandboxSpec) -> None:
        """Raise ProtectionMissing if a mount of this sandbox would be led into another one of the host's."""
        mounts: dict[str, str] = {
            each.target: each.kind for each in spec.mounts if not _is_below(each.target, spec.private)
        }
        key = hashlib.sha256(json.dumps([spec.image.ref, sorted(mounts.items())]).encode()).hexdigest()
        if key in self._harmless:
            return
        with self._lock:
            if key not in self._harmless and not resources.is_remembered(HARMLESS, key):
                self._look(spec, mounts)
                resources.remember(HARMLESS, key)
            self._harmless.add(key)

    def _look(self, spec: SandboxSpec, mounts: dict[str, str]) -> None:
        covers = dict.fromkeys(spec.image.volumes, "")  # in the place of volumes, which would be filled first
        body = {
            "Image": spec.image.ref, "Entrypoint": ["/none"], "Cmd": [], "Labels": spec.all_labels,
            "NetworkDisabled": True, "HostConfig": {"NetworkMode": "none", "Tmpfs": covers},
        }  # fmt: skip
        id = quote(self._client.ask(DOING, "POST", "/containers/create", body, seconds=SLOW_SECONDS)["Id"])
        try:
            link = cache(lambda path: self._link(id, path))
            for target in sorted({*mounts, *_ENGINES_OWN}):
                if (wrong := led_astray(target, mounts, link)) is not None:
                    raise ProtectionMissing(
                        f"the image has a link on the way to {target} that leads to {wrong}, where a mount of the "
                        "host's or the kernel's will be, so nothing was run; use an image without it"
                    )
        finally:
            path = f"/containers/{id}?force=1&v=1"
            self._client.ask(DOING, "DELETE", path, expected=(200, 204, 404, 409), seconds=SLOW_SECONDS)

    def _link(self, id: str, path: str) -> str | None:
        where = f"/containers/{id}/archive?path={quote(path)}"
        head, _ = self._client.request(DOING, "HEAD", where, expected=(200, 404))  # 404 of Podman: it leads nowhere
        told = re.search(rb"\r\nx-docker-container-path-stat: *([^\r]+)", head, re.IGNORECASE)
        about = json.loads(base64.b64decode(told[1])) if told else None
        if about is None or not about["mode"] & _LINK_MODE:
            return None
        if not self._verbatim:
            return str(about["linkTarget"])
        _, archive = self._client.request(DOING, "GET", where, expected=(200,))
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


def led_astray(target: str, mounts: dict[str, str], link: Link) -> str | None:
    """The place that links lead to on the way to `target` where none may: in a mount of the host's or of the kernel's,
    or above another mount, which would then be made in this one. None: it is not led to such a place."""
    shown = [each for each, kind in mounts.items() if kind != "tmpfs" and each not in _NEW]
    moved = [end for each in shown if each != target and (end := _end(each, mounts, link))]
    for at, links in _way(target, mounts, link):
        if links > MOST_LINKS or (links and any(_is_below(at, each) for each in (*shown, *moved, *_KERNELS))):
            return at
    end = _end(target, mounts, link)
    covered = [each for each in (*mounts, *_ENGINES_OWN) if each != target and each.startswith(f"{end.rstrip('/')}/")]
    return end if end and covered else None


def _end(target: str, mounts: dict[str, str], link: Link) -> str:
    """Where links lead `target` to in the end; empty: there is none on the way."""
    *_, (at, links) = _way(target, mounts, link)
    return at if links else ""


def _way(target: str, mounts: dict[str, str], link: Link) -> Iterator[tuple[str, int]]:
    """Each place on the way to `target`, and how many links led there."""
    at, left, links = "/", _parts(target), 0
    while left and links <= MOST_LINKS:
        at = posixpath.normpath(posixpath.join(at, left.pop(0)))  # `at` has no link in it, so `..` is what it says
        yield at, links
        if not links and left and at in mounts:
            return  # below a mount there is nothing of the image
        if (text := link(at)) is not None:
            links += 1
            at = "/" if text.startswith("/") else posixpath.dirname(at)
            left = _parts(text) + left
    yield at, links


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _is_below(path: str, directory: str) -> bool:
    return path == directory or path.startswith(f"{directory}/")
