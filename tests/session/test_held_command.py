"""Held commands: nothing of their output is lost, whoever reads it and whenever."""

from __future__ import annotations

from pathlib import Path

import pytest

import belljar
from belljar.errors import CommandNotFound
from belljar.session.held_command import RING, HeldCommand, Taken

pytestmark = pytest.mark.engine


async def _rest(
    held: HeldCommand, position: tuple[int, int] = (0, 0)
) -> tuple[bytes, bytes, Taken]:
    out, err = bytearray(), bytearray()
    while True:
        taken = await held.take(position, wait=20)
        assert taken.start == position
        out += taken.stdout
        err += taken.stderr
        position = taken.next
        held.confirm(position)
        if taken.is_last:
            return bytes(out), bytes(err), taken


async def test_output_waits_for_a_later_process(workspace: Path) -> None:
    box = await belljar.Session(workspace, keep=True, lease=60).open()
    expected = "".join(f"{i}\n" for i in range(1, 1_000_001)).encode()
    assert len(expected) > 2 * RING
    await box.hold(await box.admit("seq 1000000; echo end >&2; exit 3"), "mine")
    id = box.id
    await box.close()
    again = await belljar.Session.attach(id)
    try:
        held = (await again.held())["mine"]
        part = await held.take((0, 0), wait=20, most=1000)
        assert part.stdout == expected[:1000]
        out, err, last = await _rest(held)
        assert (out, err) == (expected, b"end\n")
        assert last.ended is not None
        assert last.ended.exit_code == 3
        held.forget()
        assert await again.held() == {}
    finally:
        await again.stop()


async def test_a_held_command_takes_a_shell_that_waits(workspace: Path) -> None:
    async with belljar.Session(workspace) as box:
        for number in range(20):
            known = (await box.run("echo /proc/[0-9]*")).stdout.split()
            held = await box.hold(await box.admit("true"), str(number))
            assert (await _rest(held))[2].ended is not None
            if f"/proc/{held.pid}" in known:
                return
        raise AssertionError("each had to start a shell of its own")


async def test_what_was_not_confirmed_stays_after_the_end(workspace: Path) -> None:
    async with belljar.Session(workspace) as box:
        for number in range(
            40
        ):  # together far more than the init keeps of ended background shells
            await box.hold(
                await box.admit(f"head -c 900000 /dev/zero; echo {number}"),
                f"c-{number}",
            )
        for tag, held in sorted((await box.held()).items()):
            out, _, _ = await _rest(held)
            assert out == bytes(900_000) + f"{tag.removeprefix('c-')}\n".encode()


async def test_input_is_delivered_and_a_start_can_fail(workspace: Path) -> None:
    async with belljar.Session(workspace) as box:
        held = await box.hold(await box.admit(["cat"], stdin_open=True), "cat")
        await held.write(b"line\n" * 50_000)
        held.close_input()
        out, _, _ = await _rest(held)
        assert out == b"line\n" * 50_000
        with pytest.raises(CommandNotFound):
            await box.hold(await box.admit(["no-such-program"]), "none")
        assert "none" not in await box.held()


async def test_a_kill_is_told_with_the_rest_of_the_output(workspace: Path) -> None:
    async with belljar.Session(workspace) as box:
        held = await box.hold(await box.admit("yes"), "yes")
        await held.take((RING - 1, 0), wait=20)  # until the ring is full
        held.kill(0)
        out, _, last = await _rest(held)
        assert last.ended is not None
        assert set(out) == set(b"y\n")
        assert len(out) == last.ended.stdout_total >= RING


async def test_a_named_shell_lives_on_in_another_process(workspace: Path) -> None:
    """named_shell: belljar.session.named_shell"""
    box = await belljar.Session(workspace, keep=True, lease=60).open()
    first = box.named_shell("a")
    held = await box.hold(
        await first.admit("cd /tmp; x='1 2'; f() { echo \"f $x\"; }; set -u", {}), "one"
    )
    await _rest(held)
    id = box.id
    await box.close()
    again = await belljar.Session.attach(id)
    try:
        held = await again.hold(
            await again.named_shell("a").admit(
                "pwd; f; echo $none; echo not reached", {}
            ),
            "two",
        )
        out, err, _last = await _rest(held)
        assert out == b"/tmp\nf 1 2\n"
        assert b"unbound" in err
        with pytest.raises(belljar.PolicyDenied):
            await again.named_shell("a").admit("cd / && rm -rf -- *", {})
    finally:
        await again.stop()
