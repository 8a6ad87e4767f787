"""Commands that refuse to end, or that attack the processes that end them."""

from __future__ import annotations

import pytest
from tests.abuse.conftest import Victim


async def test_ignoring_every_signal_delays_the_end_by_the_grace_period_only(
    victim: Victim,
) -> None:
    result = await victim.python("""
import signal, time
for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
print("deaf", flush=True)
time.sleep(600)
""", timeout=5)  # fmt: skip
    assert (result.cause, result.signal, result.stdout) == ("timeout", 9, "deaf\n")


async def test_a_command_that_forks_away_from_signals_still_ends(
    victim: Victim,
) -> None:
    result = await victim.python("""
import os, signal
signal.signal(signal.SIGTERM, lambda *_: None)
while True:
    if os.fork():
        os._exit(0)
    os.setsid()
""", timeout=1)  # fmt: skip
    assert result.cause in (
        "exited",
        "timeout",
    )  # the first process exits at once, and that ends the command


async def test_a_stopped_command_ends_with_its_timeout(victim: Victim) -> None:
    result = await victim.bash("kill -STOP $$", timeout=1)
    assert result.cause == "timeout"


async def test_a_command_that_stops_everything_stops_only_itself(
    victim: Victim,
) -> None:
    result = await victim.bash(
        "kill -STOP -1; kill -STOP 1; kill -STOP $PPID; kill -STOP $$", timeout=1
    )
    assert result.cause == "timeout"


async def test_killing_everything_hurts_neither_the_sandbox_nor_another_command(
    victim: Victim,
) -> None:
    shell = await victim.box.start(["sleep", "600"])
    result = await victim.bash("kill -9 -1; echo still here; kill -9 $$", timeout=5)
    assert result.cause in ("signalled", "killed", "exited")
    assert await shell.poll() == "running"
    await shell.kill(0)
    await victim.box.cleanup()


async def test_killing_everything_ten_times_leaves_the_sandbox_usable(
    victim: Victim,
) -> None:
    for _ in range(10):
        result = await victim.run(["bash", victim.script("kill -9 -1")], timeout=60)
        assert result.cause in ("exited", "signalled", "killed")


@pytest.mark.parametrize("whom", ["1", "$PPID"])
async def test_no_signal_moves_pid_1_or_the_keeper(victim: Victim, whom: str) -> None:
    text = f"for s in $(seq 1 64); do kill -$s {whom}; done 2>/dev/null; echo tried"
    result = await victim.bash(text, timeout=5)
    assert result.cause in ("exited", "signalled", "killed", "timeout")
    assert victim.box.is_open


async def test_a_storm_of_signals_to_pid_1_and_the_keeper_does_no_harm(
    victim: Victim,
) -> None:
    result = await victim.python("""
import os, time
end = time.monotonic() + 1
while time.monotonic() < end:
    for pid in (1, os.getppid()):
        for number in (1, 2, 3, 10, 12, 13, 15, 17, 18):
            try:
                os.kill(pid, number)
            except PermissionError:
                pass  # out of its reach, where the kernel scopes signals
print("stormed")
""")  # fmt: skip
    assert result.stdout == "stormed\n"


async def test_a_command_that_ignores_interrupts_can_be_killed(victim: Victim) -> None:
    script = victim.script("trap '' INT; echo on; while :; do sleep 0.05; done")
    async with victim.box.stream(["bash", script], timeout=60) as run:
        async for event in run:
            if getattr(event, "data", b"") == b"on\n":
                run.interrupt()
                run.kill()
    assert run.result is not None
    assert run.result.cause in ("interrupted", "killed", "signalled")
