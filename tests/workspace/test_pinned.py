"""The workspace: resolved once, held open, and mapped to an unprivileged user."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from tests import descriptors
from tests.workspace.conftest import as_root, new_directory

import belljar
from belljar.audit.writer import Audit
from belljar.errors import ProtectionMissing, WorkspaceError
from belljar.workspace import idmap, pinned
from belljar.workspace.pinned import (
    Identity,
    Workspace,
    choose_identity,
    mount_points,
    release_mount,
)


def status_of(uid: int, gid: int) -> os.stat_result:
    return os.stat_result((0o40755, 1, 1, 2, uid, gid, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("owner", "caller", "expected"),
    [
        ((0, 0), (501, 20), Identity(501, 20)),
        ((7, 8), (501, 20), Identity(501, 20)),
        ((7, 8), (0, 0), Identity(7, 8)),
        ((7, 0), (0, 0), Identity(7, 7)),
        ((7, 8), (501, 0), Identity(501, 501)),
        ((0, 0), (0, 0), Identity(65534, 65534)),
        ((0, 8), (0, 0), Identity(65534, 65534)),
    ],
)
def test_commands_never_run_as_root(
    owner: tuple[int, int], caller: tuple[int, int], expected: Identity
) -> None:
    assert choose_identity(status_of(*owner), *caller) == expected


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "new\nline",
        "co:lon",
        "com,ma",
        "ünïcødé ☃",
        "n" * 200,
        "'quote\"",
        "-dash",
        "tab\t",
        "back\\slash",
    ],
)
def test_odd_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.mkdir()
    with Workspace.open(path) as workspace:
        assert workspace.path == str(path)


def test_a_name_that_is_not_utf8_is_one_clear_error(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/\xff\xfe"
    os.mkdir(path)
    with pytest.raises(WorkspaceError, match="UTF-8"):
        Workspace.open(os.fsdecode(path))


def test_a_directory_that_the_caller_may_not_read_is_one_clear_error() -> None:
    with TemporaryDirectory(dir="/tmp") as path:
        os.chmod(path, 0)
        caller = os.geteuid()
        try:
            if caller == 0:
                os.seteuid(65534)
            with pytest.raises(
                WorkspaceError,
                match="you may not read it; choose a directory of your own",
            ):
                Workspace.open(path)
        finally:
            os.seteuid(caller)
            os.chmod(path, 0o700)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/no/such/place", "does not exist"),
        ("/etc/passwd", "not a directory"),
        ("", "empty"),
        ("a\0b", "NUL"),
        ("n" * 300, "cannot be opened"),
        ("/", "system directory"),
        ("/proc/self", "system directory"),
        ("/sys", "system directory"),
        ("/dev/shm", "system directory"),
        ("/etc", "system directory"),
        ("/tmp", "system directory"),
    ],
)
def test_an_unsuitable_path_is_one_clear_error(path: str, message: str) -> None:
    with pytest.raises(WorkspaceError, match=message):
        Workspace.open(path)


def test_a_symlink_to_the_root_is_still_the_root(tmp_path: Path) -> None:
    (tmp_path / "innocent").symlink_to("/")
    with pytest.raises(WorkspaceError, match="system directory"):
        Workspace.open(tmp_path / "innocent")


@pytest.mark.parametrize("relation", ["own", "own/below", "."])
def test_belljar_s_own_directories_are_refused_as_workspaces(
    tmp_path: Path, relation: str
) -> None:
    own = tmp_path / "own"
    (own / "below").mkdir(parents=True)
    with pytest.raises(WorkspaceError, match="Belljar's own files"):
        Workspace.open(tmp_path / relation, reserved=[own])


def test_a_workspace_is_closed_at_the_end_of_its_block(tmp_path: Path) -> None:
    with Workspace.open(new_directory(tmp_path / "w")) as opened:
        held = descriptors.open_paths(str(tmp_path))
    assert held
    assert opened.descriptor == -1
    assert not descriptors.open_paths(str(tmp_path))


def test_a_directory_that_is_removed_while_it_is_opened_is_one_clear_error(
    tmp_path: Path,
) -> None:
    descriptor = os.open(new_directory(tmp_path / "w"), os.O_PATH | os.O_DIRECTORY)
    (tmp_path / "w").rmdir()
    with pytest.raises(WorkspaceError, match="was removed"):
        pinned._real_path(descriptor)
    os.close(descriptor)


def test_a_refused_workspace_leaves_no_descriptor_open(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError):
        Workspace.open(tmp_path, reserved=[tmp_path])
    assert descriptors.open_paths(str(tmp_path)) == []


def test_a_symlink_is_followed_once_and_then_forgotten(tmp_path: Path) -> None:
    first, second, link = tmp_path / "first", tmp_path / "second", tmp_path / "link"
    first.mkdir()
    second.mkdir()
    link.symlink_to(first)
    with Workspace.open(link) as workspace:
        link.unlink()
        link.symlink_to(second)
        assert workspace.path == str(first)


def test_a_directory_that_was_swapped_is_noticed_before_the_mount(
    workspace: Path, tmp_path: Path
) -> None:
    with Workspace.open(workspace) as pinned:
        workspace.rename(tmp_path / "moved")
        workspace.symlink_to("/etc")
        with (
            pytest.raises(WorkspaceError, match="replaced"),
            pinned.shown(tmp_path / "run", shared=False),
        ):
            pass
        with pytest.raises(WorkspaceError, match="replaced"):
            pinned.check_mounted(None)


def test_a_directory_that_was_removed_is_noticed(
    workspace: Path, tmp_path: Path
) -> None:
    with Workspace.open(workspace) as pinned:
        workspace.rmdir()
        with (
            pytest.raises(WorkspaceError, match="gone"),
            pinned.shown(tmp_path / "run", shared=False),
        ):
            pass


@as_root
def test_a_container_that_got_another_directory_is_stopped(workspace: Path) -> None:
    script = (
        "import os,sys; os.chroot(sys.argv[1]); print(flush=True); sys.stdin.read()"
    )
    root = workspace / "root"
    (root / "workspace").mkdir(parents=True)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(root)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert process.stdout
    assert process.stdin
    with (
        process,
        Workspace.open(workspace) as other,
        Workspace.open(root / "workspace") as same,
    ):
        process.stdout.readline()
        same.check_mounted(process.pid)
        with pytest.raises(ProtectionMissing, match="workspace"):
            other.check_mounted(process.pid)
        process.stdin.close()


def test_a_remote_engine_gets_the_path_unchanged(
    workspace: Path, tmp_path: Path
) -> None:
    with (
        Workspace.open(workspace) as pinned,
        pinned.shown(tmp_path / "run", shared=False) as source,
    ):
        assert source == str(workspace)
        assert not (tmp_path / "run").exists()


@as_root
def test_mounts_below_the_workspace_are_not_carried_along(
    root_workspace: Path, tmp_path: Path
) -> None:
    below = root_workspace / "below"
    below.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", below], check=True)
    try:
        (below / "secret").touch()
        with (
            Workspace.open(root_workspace) as pinned,
            pinned.shown(tmp_path / "run") as source,
        ):
            assert list((Path(source) / "below").iterdir()) == []
    finally:
        subprocess.run(["umount", below], check=True)


@as_root
def test_a_pinned_workspace_is_mounted_even_when_its_path_was_swapped(
    root_workspace: Path, tmp_path: Path
) -> None:
    (root_workspace / "mine").touch()
    with Workspace.open(root_workspace) as pinned:
        root_workspace.rename(tmp_path / "moved")
        root_workspace.symlink_to("/etc")
        with pinned.shown(tmp_path / "run") as source:
            assert os.listdir(source) == ["mine"]


@as_root
def test_a_mount_left_by_a_killed_process_can_be_released(
    root_workspace: Path, tmp_path: Path
) -> None:
    (root_workspace / "precious").touch()
    target = tmp_path / "run" / "workspace"
    target.mkdir(parents=True)
    descriptor = os.open(root_workspace, os.O_PATH | os.O_DIRECTORY)
    idmap.mount_exchanged(descriptor, target, (0, 1000), (0, 1000))
    os.close(descriptor)
    release_mount(target)
    assert not target.exists()
    assert (root_workspace / "precious").exists()
    release_mount(target)


def test_releasing_never_removes_a_directory_with_files(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "precious").touch()
    with pytest.raises(OSError, match="not empty"):
        release_mount(tmp_path / "workspace")


@as_root
def test_a_workspace_that_cannot_be_mapped_again_is_used_by_its_owner(
    tmp_path: Path,
) -> None:
    with (
        Workspace.open(new_directory(tmp_path / "workspace")) as pinned,
        pinned.shown(tmp_path / "first") as source,
        Workspace.open(source) as again,
        again.shown(tmp_path / "second") as as_it_is,
    ):
        assert as_it_is == source
        assert again.identity == Identity(*(pinned.identity.uid,) * 2)


@pytest.mark.parametrize(
    "name",
    [
        "with space",
        "new\nline",
        "co:lon",
        "com,ma",
        "ünïcødé ☃",
        "n" * 200,
        "-dash",
        "$(id)",
    ],
)
@pytest.mark.parametrize("owner", [0, 1000], ids=["root", "user"])
async def test_odd_names_are_mounted_as_they_are(
    base_image: str, tmp_path: Path, name: str, owner: int
) -> None:
    path = tmp_path / name
    path.mkdir()
    if os.geteuid() == 0:
        os.chown(path, owner, owner)
    (path / "here").write_text("found")
    async with belljar.Session(workspace=path) as box:
        result = await box.run("cat here; touch made", timeout=60)
    assert result.stdout == "found"
    assert (path / "made").stat().st_uid == path.stat().st_uid


async def test_no_mount_is_left_once_a_sandbox_runs(
    base_image: str, root_workspace: Path
) -> None:
    async with belljar.Session(workspace=root_workspace) as box:
        assert box.id not in Path("/proc/self/mountinfo").read_text()
        (root_workspace / "late").write_text("seen")
        assert (await box.run("cat late", timeout=60)).stdout == "seen"


# Homes and our own directories.


@pytest.mark.parametrize("relation", ["", ".."])
def test_a_home_is_no_workspace_unless_it_is_allowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, relation: str
) -> None:
    home = tmp_path / "homes" / "me"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(WorkspaceError, match="--allow-home"):
        Workspace.open(home / relation)
    Workspace.open(home / "project").close()
    Workspace.open(home / relation, allow_home=True).close()


def test_the_home_of_the_account_counts_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HOME", "/nonexistent")
    with pytest.raises(WorkspaceError, match="home directory"):
        Workspace.open(pwd.getpwuid(os.geteuid()).pw_dir)


@as_root
def test_the_home_of_the_user_behind_sudo_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    user = next(
        each
        for each in pwd.getpwall()
        if each.pw_dir != "/root" and Path(each.pw_dir).is_dir()
    )
    monkeypatch.delenv("SUDO_USER", raising=False)
    without = pinned.homes()
    monkeypatch.setenv("SUDO_USER", user.pw_name)
    assert pinned.homes() - without == {Path(os.path.realpath(user.pw_dir))}


@pytest.mark.parametrize("place", ["run", "state"])
async def test_a_workspace_with_belljar_s_own_files_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    own = tmp_path / "project" / "own"
    own.mkdir(parents=True, mode=0o700)
    monkeypatch.setenv(f"BELLJAR_{place.upper()}", str(own))
    with pytest.raises(WorkspaceError, match="Belljar's own files"):
        await belljar.Session(tmp_path / "project", allow_home=True).open()


async def test_an_audit_trail_inside_the_workspace_is_refused(workspace: Path) -> None:
    trail = Audit(workspace / "trail")
    with pytest.raises(WorkspaceError, match="Belljar's own files"):
        await belljar.Session(workspace, audit=trail).open()


# Set-id files.


def test_a_container_with_a_mount_inside_the_workspace_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However an image or an engine managed to mount something there."""
    monkeypatch.setattr(
        pinned, "mount_points", lambda _: ["/", "/workspace", "/workspace/deep"]
    )
    workspace = Workspace.open(tmp_path)
    with pytest.raises(
        ProtectionMissing, match="mounted inside it, at /workspace/deep"
    ):
        workspace.check_mounted(os.getpid())
    workspace.close()


def test_mount_points_are_read_as_the_kernel_writes_them() -> None:
    line = "36 35 98:0 /mnt1 /workspace/with\\040space rw,noatime master:1 - ext3 /dev/root rw\n"
    assert mount_points(line) == ["/workspace/with space"]
