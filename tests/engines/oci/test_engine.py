"""The engine `oci` where the contract does not look: faults, and images that try to redirect it."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import sys
import time
from pathlib import Path

import anyio
import pytest
from tests.engines.oci.conftest import groups, needs_runc

import belljar
from belljar import resources
from belljar.engines.oci import OciEngine, rootfs
from belljar.engines.oci.runtime import containers
from belljar.errors import EngineError, EngineUnavailable
from belljar.host import Host
from belljar.options import SandboxOptions
from belljar.sandbox import reaper, rundir
from belljar.sandbox.launch import launch

pytestmark = [needs_runc, pytest.mark.oci]


def mounts() -> list[str]:
    """Mounts in this run directory, and where root file systems are assembled."""
    points = [
        line.split(" ")[4]
        for line in Path("/proc/self/mountinfo").read_text().splitlines()
    ]
    return [
        point
        for point in points
        if point.startswith((str(resources.run_root()), *rootfs.PLACES))
    ]


@pytest.mark.parametrize("options", ["noexec,nosuid,nodev", "noatime,nodiratime"])
async def test_a_run_directory_on_a_noexec_or_noatime_mount_works(
    options: str, workspace: Path
) -> None:
    """/run is noexec on Debian 13. A user namespace may not remove such a flag."""
    run = resources.run_root() / "mounted"
    run.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"mode=700,{options}", "tmpfs", run], check=True
    )
    try:
        async with belljar.Session(workspace, host=Host(engine="oci", run=run)) as box:
            assert (await box.run("echo made >file && cat file")).stdout == "made\n"
    finally:
        subprocess.run(
            ["umount", "--lazy", run], check=True
        )  # lazy: the host keeps its engine
        run.rmdir()


def test_a_sandbox_leaves_no_mount_group_or_directory(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    before = mounts()
    made = launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)
    assert len(groups(engine)) == 1
    assert mounts() == before, (
        "the root file system is mounted where only the sandbox sees it"
    )
    made.discard()

    assert groups(engine) == set()
    assert engine._boxes.names() == []
    assert containers(engine._runtime_states) == set()
    assert engine._store.held().keys() & {engine._prefix + made.launched.id} == set()


def test_no_inside_user_is_a_real_user_outside(host: Host, workspace: Path) -> None:
    made = launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)
    try:
        maps = [
            line.split()
            for line in Path(f"/proc/{made.launched.pid}/uid_map")
            .read_text()
            .splitlines()
        ]
        own = made.workspace.identity.uid
        for inside, outside, count in ((int(a), int(b), int(c)) for a, b, c in maps):
            assert (inside, outside, count) == (own, own, 1) or outside >= 0x70000000
    finally:
        made.discard()


NS_GET_OWNER_UID = 0xB704


def test_the_user_namespace_is_the_sandbox_s_own_user_s_not_root_s(
    host: Host, workspace: Path
) -> None:
    """The kernel also charges per-user quotas to the namespace's owner. If root owned all, they would share one."""
    made = launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)
    try:
        with open(f"/proc/{made.launched.pid}/ns/user") as namespace:
            owner = struct.unpack(
                "I", fcntl.ioctl(namespace, NS_GET_OWNER_UID, bytes(4))
            )[0]
        assert owner == made.workspace.identity.uid != 0
    finally:
        made.discard()


KILLED = """
import os, signal, subprocess, sys, threading, time
from belljar.host import default
from belljar.engines.oci import runtime
from belljar.sandbox.launch import launch
from belljar.options import SandboxOptions
default().reaping.acquire()
real = subprocess.Popen

class Watched(real):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        time.sleep(float(sys.argv[3]))
        os.kill(self.pid if sys.argv[4] == "runc" else os.getpid(), signal.SIGKILL)

runtime.subprocess.Popen = Watched
launch(SandboxOptions(sys.argv[1], lease=2), sys.argv[2], default())
"""


@pytest.mark.parametrize("victim", ["runc", "host"])
@pytest.mark.parametrize("delay", [0.0, 0.01, 0.02, 0.03])
def test_a_kill_in_the_middle_of_a_start_leaves_nothing(
    engine: OciEngine, workspace: Path, victim: str, delay: float
) -> None:
    before = mounts()
    id = rundir.new_session_id()
    environment = {**os.environ, "BELLJAR_ENGINE": "oci"}
    subprocess.run(
        [sys.executable, "-c", KILLED, str(workspace), id, str(delay), victim],
        env=environment,
        capture_output=True,
    )

    reaper.reap(engine)
    deadline = (
        time.monotonic() + 120
    )  # a runtime that outlived its caller may still finish its work
    while (
        groups(engine) or containers(engine._runtime_states)
    ) and time.monotonic() < deadline:
        time.sleep(0.1)
        reaper.reap(engine)

    assert groups(engine) == set()
    assert engine._boxes.names() == []
    assert containers(engine._runtime_states) == set()
    assert not (resources.run_root() / id).exists()
    assert mounts() == before


def test_a_running_session_survives_the_loss_of_the_state_directory(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    async def story() -> str:
        async with belljar.Session(workspace, host=host) as box:
            shutil.rmtree(engine._state)
            return (await box.run("echo still here")).output

    assert anyio.run(story) == "still here\n"
    deadline = time.monotonic() + 120
    while groups(engine) and time.monotonic() < deadline:
        engine.list()
        time.sleep(0.05)
    assert groups(engine) == set()


def test_a_kept_sandbox_whose_state_is_lost_ends_at_the_next_prune(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    """No one could attach to it any more, and its lease may last for hours."""
    kept = launch(
        SandboxOptions(str(workspace), keep=True, lease=3600),
        rundir.new_session_id(),
        host,
    )
    kept.transport.close()
    assert kept.held is not None
    kept.held.release()
    living = launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)
    shutil.rmtree(engine._state)

    assert kept.id in reaper.reap(engine)

    assert groups(engine) == {engine._group(living.launched.id)}
    assert engine._caller.groups.processes(engine._group(living.launched.id))
    living.discard()
    assert groups(engine) == set()


def test_an_image_held_for_a_lost_state_directory_is_released(
    host: Host, engine: OciEngine, workspace: Path
) -> None:
    """The image store outlives the state directory. Images of running sandboxes and of the last hour stay."""
    uses = engine._store.root / "uses"
    living = launch(SandboxOptions(str(workspace)), rundir.new_session_id(), host)
    dead, recent = (f"belljar-00000000-belljar-bj-{digit * 12}" for digit in "de")
    for name in (dead, recent, engine._group(living.launched.id)):
        (uses / name).touch()
        if name != recent:
            os.utime(uses / name, (1, 1))
    other = OciEngine(workspace.parent / "another", store=engine._store)
    try:
        other.list()
        assert not (uses / dead).exists()
        assert (uses / recent).exists()
        assert (uses / engine._group(living.launched.id)).exists()
    finally:
        living.discard()
        (uses / recent).unlink()


@pytest.mark.parametrize("pages", [2, 3, 5, 8])
def test_a_full_disk_is_a_clear_error_and_nothing_is_left(
    engine: OciEngine, workspace: Path, tmp_path: Path, pages: int
) -> None:
    """The disk is full at a different write in each case."""
    state = tmp_path / "small"
    state.mkdir()
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={pages * 4}k", "tmpfs", str(state)],
        check=True,
    )
    try:
        small = OciEngine(state, store=engine._store)
        full = Host(engine="oci")
        full._engine = small
        with pytest.raises(EngineError, match=r"(?i)no space left") as failed:
            launch(SandboxOptions(str(workspace)), rundir.new_session_id(), full)
        assert "\n" not in str(failed.value)
        small.list()
        assert groups(small) == set()
        assert small._boxes.names() == []
        assert not [
            name for name in small._store.held() if name.startswith(small._prefix)
        ]
    finally:
        subprocess.run(["umount", str(state)], check=True)


def test_full_network_access_is_refused(host: Host, workspace: Path) -> None:
    with pytest.raises(EngineError, match="no network"):
        launch(
            SandboxOptions(str(workspace), network="full"),
            rundir.new_session_id(),
            host,
        )


def test_oci_is_chosen_where_neither_docker_nor_podman_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from belljar import engines
    from belljar.engines import docker, podman

    def nobody(runtime: str, state: object = None) -> OciEngine:
        raise EngineUnavailable("nobody answers")

    monkeypatch.delenv("BELLJAR_ENGINE", raising=False)
    monkeypatch.setattr(docker, "find", nobody)
    monkeypatch.setattr(podman, "find", nobody)

    assert engines.connect().name == "oci"
