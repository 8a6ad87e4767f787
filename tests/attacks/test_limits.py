"""Limits, seen from inside a sandbox: each is in force, and reaching one harms no other sandbox."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.attacks.conftest import Attacker

import belljar


async def test_memory_ends_the_command_and_not_the_sandbox(attacker: Attacker) -> None:
    result = await attacker.python(
        "x = bytearray(); \nwhile True: x += b'x' * (8 << 20)"
    )
    assert result.cause == "out_of_memory"
    assert (await attacker.bash("echo usable")).stdout == "usable\n"


async def test_no_swap_is_added_to_the_memory_limit(attacker: Attacker) -> None:
    script = "cat /sys/fs/cgroup/memory/memory.memsw.limit_in_bytes /sys/fs/cgroup/memory.swap.max 2>/dev/null"
    result = await attacker.bash(script)
    assert set(result.stdout.split()) <= {str(512 << 20), "0"}


FILL_SOCKETS = """
import socket
held, taken = [], 0
for _ in range(400):
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))
    receiver.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
    receiver.setblocking(False)
    held.append(receiver)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.connect(receiver.getsockname())
        sender.setblocking(False)
        try:
            for _ in range(100):
                sender.send(bytes(60000))
        except OSError:
            pass
for receiver in held:
    try:
        while True:
            taken += len(receiver.recv(60000))
    except BlockingIOError:
        pass
print(taken)
"""


@pytest.mark.root  # only root may write to the daemon's control groups
async def test_memory_held_by_sockets_is_bounded(attacker: Attacker) -> None:
    """Control groups version 1 do not count all of it, so one sandbox could use up the whole machine's share."""
    result = await attacker.python(FILL_SOCKETS)
    assert result.cause in ("exited", "out_of_memory")
    assert int(result.stdout or 0) < 512 << 20, result.output
    assert (await attacker.bash("echo usable")).stdout == "usable\n"


async def test_a_fork_bomb_stops_at_the_process_limit(attacker: Attacker) -> None:
    script = """
import os, time
count = 0
try:
    while True:
        if os.fork() == 0:
            time.sleep(60)
        count += 1
except OSError as error:
    print(error.errno, count)
"""
    result = await attacker.python(script)
    errno, count = map(int, result.stdout.split())
    assert errno == 11
    assert count < 256
    assert result.survivors_killed >= count
    assert (await attacker.bash("echo usable")).stdout == "usable\n"


async def test_a_file_cannot_outgrow_its_limit(attacker: Attacker) -> None:
    result = await attacker.bash(
        "trap '' XFSZ; truncate -s 1G big && echo made; truncate -s 1025M big && echo BREACH; rm -f big"
    )
    assert result.stdout == "made\n"


FILL = """for d in /tmp /var/tmp /run ~ /dev/shm; do
    head -c 200M /dev/zero > $d/fill; stat -c %s $d/fill; rm $d/fill
done"""


@pytest.mark.docker  # Podman: see engines/README.md
async def test_scratch_space_in_memory_is_bounded(
    base_image: str, workspace: Path
) -> None:
    async with belljar.Session(
        workspace=workspace, limits=belljar.Limits(tmp="120m", home="60m", shm="64m")
    ) as box:
        (workspace / "fill.sh").write_text(FILL)
        result = await box.run(["bash", "fill.sh"], timeout=60)
    sizes = [int(line) for line in result.stdout.split()]
    assert [round(size / (1 << 20)) for size in sizes] == [120, 16, 16, 60, 64]


@pytest.mark.docker  # Podman: see engines/README.md
@pytest.mark.root  # only root can mount a volume
async def test_scratch_space_on_disk_is_bounded(
    base_image: str, workspace: Path
) -> None:
    async with belljar.Session(
        workspace=workspace, limits=belljar.Limits(disk="64m", shm="64m")
    ) as box:
        (workspace / "fill.sh").write_text(FILL)
        result = await box.run(["bash", "fill.sh"], timeout=60)
    sizes = [int(line) for line in result.stdout.split()]
    tmp, var_tmp, run, home, shm = (round(size / (1 << 20)) for size in sizes)
    assert (run, shm) == (16, 64)
    assert all(32 < size < 64 for size in (tmp, var_tmp, home))


async def test_descriptors_are_bounded(attacker: Attacker) -> None:
    script = """
import os
opened = 0
try:
    while True:
        os.dup(0)
        opened += 1
except OSError as error:
    print(error.errno, opened)
"""
    errno, opened = map(int, (await attacker.python(script)).stdout.split())
    assert errno == 24
    assert 4000 < opened < 4096


async def test_a_crash_leaves_no_core(attacker: Attacker) -> None:
    result = await attacker.bash(
        "cd /tmp; ulimit -c; bash -c 'kill -ABRT $$'; ls -A /tmp | grep -c core"
    )
    assert result.stdout.split() == ["0", "0"]


async def test_memory_cannot_be_locked_beyond_its_limit(attacker: Attacker) -> None:
    script = "import ctypes; l = ctypes.CDLL(None); b = ctypes.create_string_buffer(1 << 20); print(l.mlock(b, 1 << 20))"
    assert (await attacker.python(script)).stdout == "-1\n"


@pytest.mark.docker  # Podman: see engines/README.md
async def test_the_number_of_files_in_memory_is_bounded(
    base_image: str, workspace: Path
) -> None:
    script = "for i in $(seq 1200); do : > /tmp/$i || break; done 2>/dev/null; ls /tmp | wc -l"
    async with belljar.Session(
        workspace=workspace, limits=belljar.Limits(inodes=1024)
    ) as box:
        assert int((await box.run(script, timeout=30)).stdout) < 1024


async def test_limits_that_the_caller_chose_are_in_force(
    base_image: str, workspace: Path
) -> None:
    limits = belljar.Limits(memory="64m", pids=32, nofile=128, tmp="2m", cpus=0.5)
    async with belljar.Session(workspace=workspace, limits=limits) as box:
        result = await box.run(
            "ulimit -n; df -k --output=size /tmp | tail -1", timeout=30
        )
        assert result.stdout.split() == ["128", "2048"]


async def test_the_oom_killer_takes_a_command_before_the_init(
    attacker: Attacker,
) -> None:
    result = await attacker.bash("cat /proc/self/oom_score_adj /proc/1/oom_score_adj")
    assert result.stdout.split() == ["1000", "500"]
    text = await attacker.box.run("cat /proc/$$/oom_score_adj", timeout=60)
    assert text.stdout == "1000\n"
