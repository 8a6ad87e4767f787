"""Mounts that exchange two ids."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
from tests.workspace.conftest import as_root, new_directory

from belljar.workspace import idmap, uids
from belljar.workspace.pinned import (
    Workspace,
    WorkspaceUnmappable,
)

NS_GET_OWNER_UID = 0xB704


@as_root
@pytest.mark.parametrize("owner", [0, 1000])
def test_files_made_by_the_unprivileged_user_belong_to_the_owner_on_disk(
    root_workspace: Path, tmp_path: Path, owner: int
) -> None:
    (root_workspace / "old").touch()
    for path in (root_workspace, root_workspace / "old"):
        os.chown(path, owner, owner)
    run = tmp_path / "run"
    with Workspace.open(root_workspace) as pinned, pinned.shown(run) as source:
        uid = pinned.identity.uid
        assert not uids.has_account(uid)
        assert (Path(source) / "old").stat().st_uid == uid
        subprocess.run(
            ["touch", "new"],
            check=True,
            cwd=source,
            user=uid,
            group=uid,
            extra_groups=[],
        )
        assert (Path(source) / "new").stat().st_uid == uid
        os.chown(root_workspace / "old", uid, uid)
        assert (Path(source) / "old").stat().st_uid == owner, (
            "exchanged, so every id stays expressible"
        )
    assert (root_workspace / "new").stat().st_uid == owner
    assert (root_workspace / "new").stat().st_gid == owner
    assert not (run / "workspace").exists()


@as_root
def test_a_file_system_that_cannot_be_mapped_is_one_clear_error(tmp_path: Path) -> None:
    # An idmapped mount cannot be mapped again. Here it stands in for a file system without such mounts.
    with (
        Workspace.open(new_directory(tmp_path / "workspace")) as pinned,
        pinned.shown(tmp_path / "first") as source,
    ):
        with Workspace.open(source) as again:
            again._status = (
                pinned._status
            )  # pretend that it is root's: the mount shows another owner
            with (
                pytest.raises(WorkspaceUnmappable, match="not root"),
                again.shown(tmp_path / "second"),
            ):
                pass
        assert not (tmp_path / "second" / "workspace").exists()


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        ((0, 1000), "0 1000 1\n1 1 999\n1000 0 1\n1001 1001 4294966294"),
        ((1000, 0), "0 1000 1\n1 1 999\n1000 0 1\n1001 1001 4294966294"),
        ((7, 8), "0 0 7\n7 8 1\n8 7 1\n9 9 4294967286"),
        ((7, 7), "0 0 4294967295"),
    ],
)
def test_an_exchange_covers_every_id_once(pair: tuple[int, int], expected: str) -> None:
    assert idmap._exchange(*pair) == expected


def children() -> set[str]:
    found = set[str]()
    for task in Path("/proc/self/task").iterdir():
        with suppress(
            FileNotFoundError, ProcessLookupError
        ):  # the thread has just ended
            found |= set((task / "children").read_text().split())
    return found


@as_root
def test_the_child_that_lends_its_namespace_is_gone_at_once(
    root_workspace: Path, tmp_path: Path
) -> None:
    before = children()
    with Workspace.open(root_workspace) as pinned, pinned.shown(tmp_path / "run"):
        new = {Path(f"/proc/{child}/comm").read_text() for child in children() - before}
    assert not any(name.startswith(("python", "pytest")) for name in new)


@as_root
@pytest.mark.parametrize("owner", [(1000, 1000), (0, 0)])
def test_a_namespace_belongs_to_its_owner_and_this_thread_stays_root(
    owner: tuple[int, int],
) -> None:
    namespace = idmap.owned_namespace("0 1000 1", "0 1000 1", owner)
    try:
        of_namespace = struct.unpack(
            "I", fcntl.ioctl(namespace, NS_GET_OWNER_UID, bytes(4))
        )
    finally:
        os.close(namespace)
    assert of_namespace == owner[:1]
    status = Path("/proc/thread-self/status").read_text()
    assert "\nUid:\t0\t0\t0\t0\n" in status
    assert "\nGid:\t0\t0\t0\t0\n" in status
    assert (
        idmap.libc.prctl(idmap._PR_GET_SECUREBITS, 0, 0, 0, 0)
        & idmap._SECBIT_NO_SETUID_FIXUP
        == 0
    )
