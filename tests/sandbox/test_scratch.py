"""Scratch space on disk: it has a size limit, ends with its sandbox, and never fills the host's disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import belljar
from belljar import resources
from belljar.host import default
from belljar.sandbox import reaper, rundir, scratch
from belljar.sandbox.rundir import RunDir

pytestmark = pytest.mark.skipif(
    scratch.possible() is not None, reason=f"no volumes here: {scratch.possible()}"
)


@pytest.fixture(autouse=True)
def _volumes_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a separate directory: other tests have volumes at the same time."""
    monkeypatch.setenv(
        "XDG_STATE_HOME", f"{os.environ['XDG_STATE_HOME']}/{tmp_path.name}"
    )


@pytest.fixture
def run_dir() -> RunDir:
    return RunDir.create(rundir.new_session_id())


def mounted(path: Path) -> bool:
    return f" {path} " in Path("/proc/self/mountinfo").read_text()


def loops() -> set[str]:
    """The backing files of loop devices that are in this run's volume directory, even if deleted."""
    texts = []
    for path in Path("/sys/block").glob("loop*/loop/backing_file"):
        with suppress(OSError):  # one of another process may disappear at any moment
            texts.append(path.read_text())
    return {text for text in texts if os.environ["XDG_STATE_HOME"] in text}


def gone() -> bool:
    deadline = time.monotonic() + 120
    while loops() and time.monotonic() < deadline:
        time.sleep(0.05)
    return not loops()


def test_the_template_of_a_volume_is_sparse(run_dir: RunDir) -> None:
    with scratch.mounted(run_dir.path, None) as disk:
        assert disk is not None
    [template] = (resources.state_dir() / "scratch").glob("*ext4*")
    assert template.stat().st_size == scratch.DEFAULT_BYTES
    assert template.stat().st_blocks * 512 < 256 << 10
    run_dir.close()


def test_a_volume_has_its_size_and_leaves_nothing(run_dir: RunDir) -> None:
    with scratch.mounted(run_dir.path, 32 << 20) as disk:
        assert disk is not None
        assert mounted(disk.path)
        assert 24 << 20 < shutil.disk_usage(disk.path).total <= 32 << 20
        made = Path(disk.directory("tmp", 0o1777, (1234, 1235)))
        assert (
            made.stat().st_uid,
            made.stat().st_gid,
            made.stat().st_mode & 0o7777,
        ) == (1234, 1235, 0o1777)
        assert os.statvfs(disk.path).f_flag & os.ST_NOSUID
    assert not mounted(run_dir.path / scratch.MOUNT_NAME)
    assert gone()
    run_dir.close()


def test_a_volume_beyond_the_free_space_not_yet_promised_is_held_in_memory_or_refused(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = shutil.disk_usage(resources.run_root()).free
    other = RunDir.create(rundir.new_session_id())
    (other.path / scratch.PROMISE).write_text(str(free - (64 << 20)))
    monkeypatch.setattr(scratch, "RESERVE", 0)

    with scratch.mounted(run_dir.path, None) as disk:
        assert disk is None
    with (
        pytest.raises(scratch.NoScratch, match="do not fit"),
        scratch.mounted(run_dir.path, 128 << 20),
    ):
        pass
    other.close()
    with scratch.mounted(run_dir.path, 128 << 20) as disk:
        assert disk is not None, "a promise ends with its sandbox"
    run_dir.close()


def test_a_lock_that_is_a_symbolic_link_is_refused(
    run_dir: RunDir, tmp_path: Path
) -> None:
    victim, place = tmp_path / "victim", resources.state_dir() / "scratch"
    victim.write_text("kept")
    place.mkdir(exist_ok=True)
    (place / "lock").unlink(missing_ok=True)
    (place / "lock").symlink_to(victim)
    with (
        pytest.raises(scratch.NoScratch, match="symbolic links"),
        scratch.mounted(run_dir.path, 1 << 20),
    ):
        pass
    assert victim.read_text() == "kept"
    run_dir.close()


def test_a_missing_mkfs_is_named_with_an_alternative(
    run_dir: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_mkfs", lambda: None)

    said = r"mkfs\.ext4 is not installed.*; use --tmp and --home"
    with (
        pytest.raises(scratch.NoScratch, match=said),
        scratch.mounted(run_dir.path, 1 << 30),
    ):
        pass
    run_dir.close()


DYING = """
import os, sys
from pathlib import Path
from belljar.sandbox import rundir, scratch
from belljar.sandbox.rundir import RunDir
made = RunDir.create(sys.argv[1])
with scratch.mounted(made.path, 32 << 20) as disk:
    print(disk.path, flush=True)
    os.kill(os.getpid(), 9)
"""


def test_the_reaper_unmounts_the_volume_of_a_killed_process(base_image: str) -> None:
    id = rundir.new_session_id()
    died = subprocess.run(
        [sys.executable, "-c", DYING, id], capture_output=True, text=True, check=False
    )
    path = Path(died.stdout.strip())
    assert mounted(path), died.stderr

    assert id in reaper.reap(default().connect())

    assert not path.exists()
    assert not mounted(path)
    assert gone()


async def test_tmp_and_home_share_a_volume_that_ends_with_the_sandbox(
    base_image: str, workspace: Path
) -> None:
    async with belljar.Session(workspace, limits=belljar.Limits(disk="64m")) as box:
        result = await box.run(
            "df --output=source /tmp /var/tmp ~ | tail -3; touch /tmp/a ~/a /var/tmp/a && echo ok"
        )
        assert len(loops()) == 1
    lines = result.stdout.splitlines()
    assert lines[-1] == "ok"
    assert len(set(lines[:-1])) == 1
    assert gone()


async def test_tmp_with_its_own_size_is_held_in_memory_beside_a_volume(
    base_image: str, workspace: Path
) -> None:
    limits = belljar.Limits(disk="64m", tmp="2m")
    assert belljar.Limits(**limits.as_dict()) == limits
    async with belljar.Session(workspace, limits=limits) as box:
        result = await box.run("df --output=fstype,size /tmp ~ | tail -2")
    in_memory, on_disk = (line.split() for line in result.stdout.splitlines())
    assert in_memory == ["tmpfs", "2048"]
    assert on_disk[0] == "ext4"
