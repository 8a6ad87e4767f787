"""Root file systems: an image's own files cannot redirect a mount."""

from __future__ import annotations

import os
import secrets
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from tests.engines.oci.conftest import needs_runc
from tests.images.archives import directory, link, member, tar

import belljar
from belljar.engines.oci import OciEngine, rootfs
from belljar.errors import EngineError
from belljar.host import Host
from belljar.images import catalog
from belljar.images.importing import import_root
from belljar.images.store import Store

pytestmark = needs_runc


@pytest.mark.parametrize(
    "trap",
    [
        [link("workspace", "/etc")],
        [link("tmp", "/proc"), link("home", "/usr")],
        [link("etc", "/usr/etc"), directory("usr/etc")],
        [directory("home"), link("home/sandbox", "../../../../etc")],
        [member("workspace", b"a file"), member("proc", b"a file")],
        [link("proc", "/tmp"), link("sys", "/tmp"), link("dev", "/tmp")],
    ],
)
def test_an_image_s_links_lead_no_mount_astray(
    host: Host, engine: OciEngine, workspace: Path, tmp_path: Path, trap: list[object]
) -> None:
    """The top layer replaces the mount points by links. The layers below are those of `base`."""
    base = engine._store.find(catalog.reference("base"))
    assert base is not None
    (tmp_path / "trap.tar").write_bytes(tar(trap))  # type: ignore[arg-type]
    store, name = Store(), f"belljar-test-trap-{os.getpid()}"
    image = import_root(store, tmp_path / "trap.tar", [name], {"test": repr(trap)})
    combined = replace(
        image, id=secrets.token_hex(32), layers=(*base.layers, *image.layers)
    )
    with store.adding() as work:
        store.add_image(work, combined, [name])
    try:
        (workspace / "there").write_text("yes")

        async def story() -> str:
            async with belljar.Session(workspace, image=name, host=host) as box:
                return (
                    await box.run(
                        "cat there; touch /tmp/x ~/x && ls -d /proc/self >/dev/null && echo fine"
                    )
                ).output

        assert anyio.run(story) == "yesfine\n"
        assert not (Path("/etc") / "there").exists()
    finally:
        store.remove(name)
        store.prune()


def test_the_mount_place_hides_no_path_that_is_needed() -> None:
    assert rootfs.place(["/home/me/project"]) == "/mnt"
    assert rootfs.place(["/mnt/data/project"]) == "/media"
    assert rootfs.place(["/mnt", "/mediadata"]) == "/media"
    with pytest.raises(EngineError):
        rootfs.place(list(rootfs.PLACES))


def test_a_caller_s_umask_does_not_close_the_sandbox_s_own_directories(
    host: Host, workspace: Path
) -> None:
    async def story() -> belljar.Result:
        async with belljar.Session(workspace, host=host) as box:
            return await box.run("ls / ~ /tmp && touch made")

    before = os.umask(0o077)
    try:
        assert anyio.run(story).exit_code == 0
    finally:
        os.umask(before)
