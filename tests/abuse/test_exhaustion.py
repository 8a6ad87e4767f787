"""Commands that use up all they can get: processes, memory, disk, processor, descriptors."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest
from tests.abuse.conftest import LIMITS, PROMPT, Victim

import belljar

# Processes.

FORK_BOMBS = {
    "classic": ":(){ :|:& };:; sleep 600",
    "that ignores signals": "trap '' TERM INT HUP; b() { b & b & }; b; while :; do sleep 1; done",
    "of daemons": 'b() { for i in 1 2; do setsid bash -c "$(declare -f b); b" & done; }; b; sleep 600',
}


@pytest.mark.parametrize("name", FORK_BOMBS)
async def test_a_fork_bomb_ends_with_its_timeout(victim: Victim, name: str) -> None:
    result = await victim.bash(FORK_BOMBS[name], timeout=1.5)
    assert result.cause == "timeout"
    assert result.exit_code == 124


async def test_a_fork_bomb_whose_first_process_exits_is_cleaned_up(
    victim: Victim,
) -> None:
    result = await victim.python("""
import os
for _ in range(4):
    os.fork()
if os.getpid() % 2:
    while True:
        try:
            os.fork()
        except OSError:
            pass
""", timeout=2)  # fmt: skip
    assert result.cause in ("exited", "timeout")


async def test_a_bomb_of_threads_ends_with_its_timeout(victim: Victim) -> None:
    result = await victim.python("""
import threading, time
while True:
    try:
        threading.Thread(target=time.sleep, args=[600], daemon=True).start()
    except RuntimeError:
        pass
""", timeout=1.5)  # fmt: skip
    assert result.cause == "timeout"


# Memory.


async def test_a_memory_bomb_ends_as_out_of_memory(victim: Victim) -> None:
    result = await victim.python("x = []\nwhile True: x.append(bytearray(4 << 20))")
    assert result.cause == "out_of_memory"
    assert result.oom_kills >= 1
    assert result.signal == 9


async def test_several_memory_bombs_at_once_end(victim: Victim) -> None:
    result = await victim.bash(
        "for i in $(seq 4); do tail /dev/zero & done; wait", timeout=30
    )
    assert result.oom_kills >= 4
    assert result.cause in ("exited", "out_of_memory")


async def test_an_out_of_memory_child_is_counted_though_its_parent_lives_on(
    victim: Victim,
) -> None:
    result = await victim.bash("tail /dev/zero; echo went on")
    assert result.stdout == "went on\n"
    assert (result.cause, result.oom_kills) == ("exited", 1)


@pytest.mark.docker  # Podman: see engines/README.md
async def test_memory_hidden_in_files_leaves_room_for_the_next_command(
    victim: Victim,
) -> None:
    places = "/run /dev/shm"
    result = await victim.bash(
        f"for d in {places}; do head -c 200M /dev/zero > $d/fill; done"
    )
    assert result.stderr.count("No space left") == 2
    assert (await victim.bash("echo room")).stdout == "room\n"
    result = await victim.python(f"""
import os
for d in "{places}".split():
    os.unlink(d + "/fill")
    try:
        for n in range(100_000):
            open(f"{{d}}/{{n}}", "w")
    except OSError as error:
        print(error.errno)
""")
    assert result.stdout == "28\n" * 2, result
    result = await victim.bash(
        f"echo room; for d in {places}; do find $d -maxdepth 1 -type f -delete; done"
    )
    assert result.stdout == "room\n"


# Disk.


@pytest.mark.parametrize(
    "place",
    ["/tmp", pytest.param("/home/sandbox", marks=pytest.mark.docker), "/dev/shm"],
)
async def test_a_full_scratch_space_fails_only_the_command(
    base_image: str, workspace: Path, place: str
) -> None:
    limits = belljar.Limits(tmp="4m", home="4m", shm="4m")
    async with belljar.Session(workspace, limits=limits) as box:
        result = await box.run(
            f"head -c 20M /dev/zero > {place}/fill; stat -c %s {place}/fill", timeout=60
        )
        assert "No space left" in result.stderr
        assert int(result.stdout) == 4 << 20
        assert (await box.run(f"rm {place}/fill; echo usable")).stdout == "usable\n"


async def test_a_file_beyond_the_size_limit_is_refused(victim: Victim) -> None:
    result = await victim.bash("trap '' XFSZ; truncate -s 17G sparse || echo refused")
    assert result.stdout == "refused\n"


# Processor and descriptors.


async def test_burning_the_processor_ends_with_its_timeout(victim: Victim) -> None:
    result = await victim.bash(
        "for i in 1 2 3 4; do (while :; do :; done) & done; while :; do :; done",
        timeout=2,
    )
    assert result.cause == "timeout"
    assert result.cpu_time <= 1.2 * LIMITS.cpus * result.duration + 0.5, (
        "no more than its share"
    )


async def test_exhausted_descriptors_fail_only_the_command(victim: Victim) -> None:
    result = await victim.python("""
import os, socket
held = []
try:
    while True:
        held += [*os.pipe(), socket.socket(), open("/dev/null")]
except OSError as error:
    print(error.errno)
""")  # fmt: skip
    assert result.stdout == "24\n"


async def test_a_hoard_of_inotify_instances_keeps_no_other_sandbox_from_starting(
    victim: Victim,
) -> None:
    """The kernel counts them per user, and the sandboxes of an ordinary user share his id."""
    hoard = """
import ctypes, time
libc = ctypes.CDLL(None)
while libc.inotify_init() >= 0:
    pass
print("all", flush=True)
time.sleep(600)
"""
    shell = await victim.box.start(["python3", victim.script(hoard)])
    try:
        with anyio.fail_after(PROMPT):
            while "all" not in (await shell.read(offset=0, wait=1)).stdout:
                pass
            await belljar.run("true", victim.workspace)
            kept = await belljar.Session(victim.workspace, keep=True).open()
            other = await belljar.Session.attach(kept.id)
            assert (await other.run("echo in")).stdout == "in\n"
            await other.close()
            await kept.stop()
    finally:
        await shell.kill(0)
        await victim.box.cleanup()


async def test_processes_that_all_exhaust_their_descriptors_are_ended_and_counted(
    victim: Victim,
) -> None:
    result = await victim.python("""
import os, time
for _ in range(30):
    if os.fork() == 0:
        try:
            while True:
                os.pipe()
        except OSError:
            time.sleep(600)
time.sleep(1)
print("done")
""")  # fmt: skip
    assert (result.stdout, result.survivors_killed) == ("done\n", 30)
