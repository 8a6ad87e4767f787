"""Run directories: who owns which session on the host."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from belljar import Host, doctor, resources
from belljar.engines.kernel_facts import boot_id
from belljar.errors import BelljarError, UsageError
from belljar.options import check_session_id
from belljar.sandbox import rundir
from belljar.sandbox.rundir import RunDir
from belljar.surfaces.cli import names


@pytest.fixture(autouse=True)
def run_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("BELLJAR_RUN", str(tmp_path / "run"))
    return tmp_path / "run"


def test_a_run_directory_is_owned_while_its_process_lives(run_root: Path) -> None:
    directory = RunDir.create(rundir.new_session_id())
    assert rundir.owned(directory.path)
    assert rundir.run_dirs() == [directory.path]
    directory.close()
    assert not directory.path.exists()


def test_the_run_directory_of_a_dead_process_is_not_owned(run_root: Path) -> None:
    making = "from belljar.sandbox.rundir import *; print(RunDir.create(new_session_id()).path, flush=True)"
    program = f"{making}; os.kill(os.getpid(), 9)"
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    path = Path(made.stdout.strip())
    assert path.is_dir()
    assert not rundir.owned(path)


def test_a_released_run_directory_stays_without_an_owner(run_root: Path) -> None:
    directory = RunDir.create(rundir.new_session_id())
    rundir.write_session(directory.path, {"id": directory.path.name})
    directory.release()
    assert rundir.read_session(directory.path) == {"id": directory.path.name}
    assert not rundir.owned(directory.path)


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"\xff"])
def test_a_damaged_session_file_is_no_session(run_root: Path, damage: bytes) -> None:
    directory = RunDir.create(rundir.new_session_id())
    (directory.path / "session.json").write_bytes(damage)
    assert rundir.read_session(directory.path) is None
    directory.close()


def test_a_run_root_that_others_can_enter_is_refused(run_root: Path) -> None:
    run_root.mkdir(mode=0o755)
    with pytest.raises(BelljarError, match="only you can enter"):
        RunDir.create(rundir.new_session_id())


@pytest.mark.root
def test_a_run_root_that_another_user_could_replace_is_refused(run_root: Path) -> None:
    theirs = run_root.parent / "theirs"
    theirs.mkdir()
    os.chown(theirs, 1000, 1000)
    with pytest.raises(BelljarError, match="set BELLJAR_RUN"):
        RunDir.create(rundir.new_session_id(), theirs / "run")
    assert not list(theirs.iterdir())


@pytest.mark.root
def test_sessions_made_by_another_user_are_ignored(run_root: Path) -> None:
    """In /tmp another user may create the directory first. His files would choose the container and what runs in it."""
    planted = run_root / "bj-0123456789ab"
    planted.mkdir(parents=True)
    (planted / "session.json").write_text('{"id": "bj-0123456789ab"}')
    (planted / "owner").symlink_to(run_root.parent / "made")
    os.chown(run_root, 1000, 1000)
    looks: list[Callable[[], object]] = [
        rundir.run_dirs,
        rundir.unborn_dirs,
        names.known,
        lambda: Host(run=run_root).run_root,
    ]
    for look in looks:
        with pytest.raises(BelljarError, match="only you can enter"):
            look()
    assert not (run_root.parent / "made").exists()
    assert [(check.name, check.ok) for check in doctor.examine()] == [
        ("run directory", False)
    ]


@pytest.mark.root
def test_a_run_root_in_tmp_is_made_for_the_caller_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("BELLJAR_RUN", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    os.seteuid(54321)
    try:
        root = resources.run_root()
    finally:
        os.seteuid(0)
    assert root == Path("/tmp/belljar-54321")
    assert (root.stat().st_uid, root.stat().st_mode & 0o777) == (54321, 0o700)
    root.rmdir()


def test_a_run_root_that_cannot_be_made_is_one_clear_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("BELLJAR_RUN", "/proc/no/where")
    with pytest.raises(BelljarError, match="BELLJAR_RUN"):
        RunDir.create(rundir.new_session_id())


@pytest.mark.parametrize(
    "name", ["", "x", "../../etc", "bj-XYZ", "bj-0123456789ab/..", "bj-0123456789ab\n"]
)
def test_what_is_not_a_session_id_never_becomes_a_path(name: str) -> None:
    with pytest.raises(UsageError):
        check_session_id(name)


def test_an_owner_counts_as_gone_only_with_proof() -> None:
    own = rundir.owner_labels("bj-0123456789ab", 30, False)["org.belljar.owner"]
    pid, ticks, world = own.split(":", 2)
    assert not rundir.owner_is_gone(own)
    assert rundir.owner_is_gone(f"{pid}:{int(ticks) + 1}:{world}"), (
        "the pid was given to another process"
    )
    assert rundir.owner_is_gone(f"4194304:1:{world}")
    assert not rundir.owner_is_gone(
        f"4194304:1:other-boot:{os.stat('/proc/self/ns/pid').st_ino}"
    )
    assert not rundir.owner_is_gone(f"4194304:1:{boot_id()}:1"), "another PID namespace"
    assert not rundir.owner_is_gone("rubbish")
