"""What a user does in the first ten minutes, with the engine that BELLJAR_ENGINE names.

`make vm-test` runs this on every platform; by hand: `python -m pytest tests/vm/smoke.py`. All timeouts are long enough
for an emulated processor.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import belljar

FAR = 600


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A directory of the caller, like a checkout."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "existing").write_text("one\n")
    return tmp_path / "project"


@pytest.fixture
async def box(project: Path) -> AsyncIterator[belljar.Session]:
    async with belljar.Session(workspace=str(project), policy="permissive") as session:
        yield session


async def test_a_throwaway_works_on_the_callers_files(project: Path) -> None:
    command = "id -u; cat existing; echo two >>existing; mkdir -p new/dir; touch new/dir/file ~/x /tmp/x"
    result = await belljar.run(command, workspace=str(project), timeout=FAR)
    assert (result.exit_code, result.stderr) == (0, "")
    assert (project / "existing").read_text() == "one\ntwo\n"
    made = (project / "new/dir/file").stat()
    assert (made.st_uid, made.st_gid) == (os.getuid(), os.getgid())


async def test_commands_have_no_capabilities_and_no_network(
    box: belljar.Session,
) -> None:
    seen = await box.run(
        "grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status; ls /sys/class/net",
        timeout=FAR,
    )
    assert seen.stdout.split() == [
        "CapEff:",
        "0" * 16,
        "NoNewPrivs:",
        "1",
        "Seccomp:",
        "2",
        "lo",
    ]
    root = await box.run("findmnt -no OPTIONS /", timeout=FAR)
    assert "ro" in root.stdout.strip().split(",")


async def test_limits_are_in_force_and_usage_is_reported(project: Path) -> None:
    limits = belljar.Limits(memory="96m", pids=40)
    async with belljar.Session(
        workspace=str(project), policy="permissive", limits=limits
    ) as box:
        result = await box.run(["python3", "-c", "x = bytearray(10**9)"], timeout=FAR)
        assert result.cause == "out_of_memory"
        many = await box.run(
            "for i in $(seq 100); do sleep 600 & done; echo over", timeout=FAR
        )
        assert "fork" in many.stderr
        used = await box.run("head -c 3000000 /dev/zero | sha1sum", timeout=FAR)
        assert used.peak_memory
        assert used.cpu_time


async def test_a_session_keeps_its_state_and_leaves_no_process(
    box: belljar.Session,
) -> None:
    await box.run("echo kept >/tmp/x", timeout=FAR)
    assert (await box.run("cat /tmp/x", timeout=FAR)).stdout == "kept\n"
    left = await box.run("setsid sleep 600 & echo", timeout=FAR)
    assert left.survivors_killed >= 1
    late = await box.run("echo begun; sleep 600", timeout=10)
    assert (late.cause, late.stdout) == ("timeout", "begun\n")


async def test_background_and_persistent_shells_work(box: belljar.Session) -> None:
    shell = await box.start("echo tick; read line; echo tock $line")
    await shell.write(b"two\n")
    assert (await shell.wait()).stdout == "tick\ntock two\n"
    tools = belljar.ToolRegistry(box)
    await tools.call("Bash", {"command": "cd /tmp; v=41"})
    assert (
        "42 in /tmp"
        in (await tools.call("Bash", {"command": 'echo "$((v+1)) in $PWD"'})).text
    )


async def test_a_pool_hands_out_sandboxes(project: Path) -> None:
    async with belljar.Pool(workspace=str(project), size=6) as pool:
        for number in range(7):
            async with pool.session() as box:
                assert (
                    await box.run(["echo", str(number)], timeout=FAR)
                ).stdout == f"{number}\n"
