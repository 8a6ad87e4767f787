"""Links in an image, on the paths where Belljar mounts something."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from belljar.engines.docker.client import Client
from belljar.engines.docker.engine import DockerEngine
from belljar.engines.docker.image_links import ImageLinks, led_astray
from belljar.engines.spec import Image, SandboxSpec

MOUNTS = {
    "/workspace": "bind",
    "/tmp": "bind",
    "/run": "tmpfs",
    "/home/sandbox": "bind",
    "/home/sandbox/.x": "bind",
}
NONE: Mapping[str, str] = {}


@pytest.mark.parametrize(
    ("target", "links", "place"),
    [
        ("/etc/passwd", NONE, None),
        ("/etc/passwd", {"/etc/passwd": "/workspace/x"}, "/workspace"),
        ("/etc/passwd", {"/etc/passwd": "../workspace/x"}, "/workspace"),
        ("/etc/passwd", {"/etc": "/a/b", "/a/b": "../workspace"}, "/workspace"),
        ("/etc/passwd", {"/etc/passwd": "/workspace/deep/../../x"}, "/workspace"),
        (
            "/etc/passwd",
            {"/etc/passwd": "/a/../b", "/a": "/workspace/deep"},
            "/workspace",
        ),
        ("/etc/passwd", {"/etc/passwd": "/etc/passwd"}, "/"),
        ("/etc/passwd", {"/etc/passwd": "/nix/store/passwd", "/workspace": "/x"}, None),
        ("/etc/passwd", {"/etc/passwd": "/run/passwd"}, None),
        ("/etc/passwd", {"/etc/passwd": "/workspaces/x"}, None),
        ("/var/tmp", {"/var/tmp": "../tmp"}, None),
        ("/workspace", {"/workspace": "/elsewhere"}, None),
        ("/workspace", {"/workspace": "/home/sandbox/x"}, "/home/sandbox"),
        ("/home/sandbox/.x", {"/home/sandbox/.x": "/workspace"}, None),
        ("/home/sandbox/.x", {"/home": "/workspace"}, "/workspace"),
        ("/workspace", {"/workspace": "/etc"}, "/etc"),
        ("/workspace", {"/workspace": "/home"}, "/home"),
        ("/workspace", {"/workspace": "/"}, "/"),
        ("/workspace", {"/workspace": "/dev"}, "/dev"),
        ("/etc/passwd", {"/etc/passwd": "/moved/x", "/workspace": "/moved"}, "/moved"),
        ("/etc/group", {"/etc/group": "/proc/1/root/workspace/x"}, "/proc"),
        (
            "/etc/group",
            {"/etc/group": "/a", "/a": "/proc/thread-self/root/workspace/x"},
            "/proc",
        ),
    ],
)
def test_a_mount_target_that_a_link_leads_elsewhere_is_found(
    target: str, links: Mapping[str, str], place: str | None
) -> None:
    assert led_astray(target, MOUNTS, links.get) == place


@pytest.mark.parametrize("verbatim", [True, False])
def test_the_links_of_an_image_are_read_once(
    engine: DockerEngine, base_image: str, spec: SandboxSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    verbatim: bool,
) -> None:  # fmt: skip
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    image = engine.image(base_image)
    assert image is not None
    looks: list[str] = []

    class Counting(Client):
        def request(
            self, doing: str, method: str, path: str, *rest: object, **more: object
        ) -> tuple[bytes, bytes]:
            looks.append(method)
            return super().request(doing, method, path, *rest, **more)  # type: ignore[arg-type]

    asked = replace(spec, image=image)
    client = Counting(engine.client.endpoint)
    ImageLinks(client, verbatim=verbatim).refuse(asked)
    assert {"POST", "HEAD", "DELETE"} <= set(looks)
    looks.clear()
    elsewhere = tuple(
        replace(each, target=each.target.replace(spec.private, "/.belljar-2"))
        for each in spec.mounts
    )
    ImageLinks(client, verbatim=verbatim).refuse(
        replace(asked, private="/.belljar-2", mounts=elsewhere)
    )
    assert looks == []
    ImageLinks(client, verbatim=verbatim).refuse(
        replace(asked, mounts=asked.mounts[:2])
    )
    assert "HEAD" in looks


def test_links_are_read_again_where_the_cache_cannot_be_written(
    engine: DockerEngine,
    base_image: str,
    spec: SandboxSpec,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "none"))
    (tmp_path / "none").write_text("no directory")
    links = ImageLinks(engine.client, verbatim=engine.dialect.copies_links)
    links.refuse(replace(spec, image=Image(base_image)))
    links.refuse(replace(spec, image=Image(base_image)))
