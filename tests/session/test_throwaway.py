"""One command in its own sandbox."""

from pathlib import Path

import belljar


async def test_a_throwaway_leaves_nothing_to_the_next(workspace: Path) -> None:
    await belljar.run("touch /tmp/trace ~/trace", workspace)
    assert (await belljar.run("ls /tmp ~", workspace)).stdout.split() == [
        "/home/sandbox:",
        "/tmp:",
    ]


async def test_limits_of_a_throwaway_are_in_force(workspace: Path) -> None:
    limits = belljar.Limits(memory="64m", pids=32, tmp="2m")
    async with belljar.Session(workspace, limits=limits) as small:
        hog = await small.run(["python3", "-c", "x = bytearray(200_000_000)"])
        assert hog.cause == "out_of_memory"
        full = await small.run("head -c 5000000 /dev/zero > /tmp/fill")
        assert full.exit_code != 0
        assert (await small.run("echo fine")).stdout == "fine\n"
