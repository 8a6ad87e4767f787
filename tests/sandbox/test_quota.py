"""What one user's sandboxes may take together: counted, refused in one sentence, and never overrun by a race."""

from __future__ import annotations

import fcntl
import json
import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

import pytest

import belljar
from belljar import Host, Limits, Pool, Session, enforcement
from belljar.errors import QuotaExceeded, UsageError
from belljar.options import SandboxOptions
from belljar.sandbox import quota, rundir

SetQuota = Callable[[str], None]


@pytest.fixture
def set_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetQuota:
    """Of the user who runs the tests."""
    operator = tmp_path / "operator.toml"
    monkeypatch.setattr(enforcement, "OPERATOR", operator)
    monkeypatch.setattr(quota, "place", lambda uid: tmp_path / "claims")

    def write(lines: str) -> None:
        name = enforcement.user_name(os.geteuid())
        operator.write_text(f'[quota."{name}"]\n{lines}\n')
        operator.chmod(0o644)

    return write


@pytest.mark.engine
async def test_one_more_than_the_quota_is_refused_and_an_end_makes_room(
    set_quota: SetQuota, workspace: Path
) -> None:
    set_quota("sessions = 1")
    async with Session(workspace) as box:
        with pytest.raises(QuotaExceeded) as refused:
            await belljar.run("true", workspace)
        said = str(refused.value)
        assert "sessions: 1 of 1 taken, and this needs 1" in said
        assert f"{box.id} ({workspace})" in said
        assert "`belljar session stop ID` ends one" in said
    assert (await belljar.run("echo room", workspace)).stdout == "room\n"


@pytest.mark.engine
async def test_memory_cpus_and_disk_count_together(
    set_quota: SetQuota, workspace: Path
) -> None:
    set_quota('memory = "300m"\ncpus = 1.5\ndisk = "1g"')
    half = Limits(memory="200m", cpus=1, disk="512m")
    async with Session(workspace, limits=half) as box:
        for more, lacking in (
            (Limits(memory="200m", cpus=0.1, disk=0), "memory: 200 MiB of 300 MiB"),
            (Limits(memory="50m", cpus=1, disk=0), "cpus: 1 of 1.5 taken"),
            (Limits(memory="50m", cpus=0.1, disk="768m"), "disk: 512 MiB of 1 GiB"),
        ):
            with pytest.raises(QuotaExceeded, match=lacking) as refused:
                await belljar.run("true", workspace, limits=more)
            assert f"ask for less with --{lacking.partition(':')[0]}" in str(
                refused.value
            )
            assert f"{box.id} ({lacking.partition(':')[0]} " in str(refused.value)
        small = Limits(memory="50m", cpus=0.1, disk=0)
        assert (await belljar.run("echo fits", workspace, limits=small)).stdout


@pytest.mark.engine
async def test_no_variable_leads_around_it_and_pools_count_too(
    set_quota: SetQuota, workspace: Path, tmp_path: Path
) -> None:
    set_quota("sessions = 1")
    elsewhere = Host(run=tmp_path / "run", state=tmp_path / "state")
    async with Session(workspace):
        with pytest.raises(QuotaExceeded):
            await belljar.run("true", workspace, host=elsewhere)
        async with Pool(workspace, size=1, host=elsewhere) as pool:
            with pytest.raises(QuotaExceeded):
                await pool.ready()
    elsewhere.close()


@pytest.mark.engine
async def test_a_refused_start_leaves_nothing(
    set_quota: SetQuota, workspace: Path, tmp_path: Path
) -> None:
    set_quota("sessions = 0")
    host = Host(run=tmp_path / "run", state=tmp_path / "state")
    with pytest.raises(QuotaExceeded, match="None is allowed"):
        await belljar.run("true", workspace, host=host)
    assert not list((tmp_path / "run").glob("*bj-*"))
    assert not list((tmp_path / "claims").glob("bj-*"))
    host.close()


def test_starts_at_once_never_take_the_same_rest(
    set_quota: SetQuota, tmp_path: Path
) -> None:
    set_quota("sessions = 5")
    fork = multiprocessing.get_context("fork")
    barrier, results = fork.Barrier(12), fork.Queue()

    def start(number: int) -> None:
        id = f"bj-{number:012x}"
        (tmp_path / id).mkdir()
        barrier.wait()
        try:
            quota.claim(id, tmp_path / id, SandboxOptions(), lambda: None)
            results.put(True)
        except QuotaExceeded:
            results.put(False)

    starts = [fork.Process(target=start, args=[number]) for number in range(12)]
    for each in starts:
        each.start()
    assert sorted(results.get(timeout=60) for _ in starts) == [False] * 7 + [True] * 5
    for each in starts:
        each.join()


def test_what_a_dead_process_left_is_reaped_first(
    set_quota: SetQuota, tmp_path: Path
) -> None:
    set_quota("sessions = 1")
    left, new = tmp_path / "bj-000000000001", tmp_path / "bj-000000000002"
    left.mkdir()
    quota.claim(left.name, left, SandboxOptions(), lambda: None)
    quota.claim(new.name, new, SandboxOptions(), left.rmdir)


def test_a_claim_that_is_no_claim_is_removed(
    set_quota: SetQuota, tmp_path: Path
) -> None:
    set_quota("sessions = 1")
    claims = tmp_path / "claims"
    claims.mkdir(mode=0o700)
    for number, text in enumerate(("", "[1]", '{"id": 1}', json.dumps({"x": []}))):
        (claims / f"bj-{number}.json").write_text(text)
    run_dir = tmp_path / "bj-000000000001"
    run_dir.mkdir()
    quota.claim(run_dir.name, run_dir, SandboxOptions(), lambda: None)
    assert [path.name for path in claims.glob("bj-*")] == [f"{run_dir.name}.json"]


def test_a_place_of_somebody_else_s_is_refused(
    set_quota: SetQuota, tmp_path: Path
) -> None:
    """Another user may have made it first: nothing starts uncounted."""
    set_quota("sessions = 1")
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    (tmp_path / "claims").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="claims must be a directory that only you"):
        quota.claim("bj-1", tmp_path, SandboxOptions(), lambda: None)


def test_without_a_quota_nothing_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enforcement, "OPERATOR", tmp_path / "none.toml")
    monkeypatch.setattr(quota, "place", lambda uid: tmp_path / "claims")
    quota.claim("bj-1", tmp_path, SandboxOptions(), lambda: None)
    assert not (tmp_path / "claims").exists()


def test_one_that_waits_for_the_local_server_is_named_with_its_own_end(
    set_quota: SetQuota, tmp_path: Path
) -> None:
    set_quota("sessions = 1")
    first, second = (tmp_path / f"bj-00000000000{n}" for n in (1, 2))
    for run_dir in (first, second):
        run_dir.mkdir()
    quota.claim(first.name, first, SandboxOptions(), lambda: None)
    rundir.write_session(first, {"waits": True})
    with pytest.raises(QuotaExceeded, match=r"waits for .*`belljar serve --stop`"):
        quota.claim(second.name, second, SandboxOptions(), lambda: None)


def test_claims_are_read_under_the_lock_also_for_an_error(
    set_quota: SetQuota, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another start may be removing dead ones."""
    set_quota("sessions = 1")
    options = SandboxOptions(workspace=str(tmp_path))
    quota.claim("bj-000000000001", tmp_path, options, lambda: None)
    living, read = quota._living, []

    def locked(at: Path) -> list[quota.Claim]:
        with (at / "lock").open() as lock, pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        read.append(at)
        return living(at)

    monkeypatch.setattr(quota, "_living", locked)
    with pytest.raises(QuotaExceeded, match="bj-000000000001"):
        quota.claim("bj-000000000002", tmp_path, options, lambda: None)
    assert len(read) == 3
