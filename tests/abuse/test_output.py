"""Commands that attack with what they print, or by what they do to their output."""

from __future__ import annotations

import subprocess
import sys

import anyio
from tests.abuse.conftest import PROMPT, Victim, number

from belljar.link import frames
from belljar.link.frames import From
from belljar.session.result import Ended, Output
from belljar.surfaces.terminal.render import Screen


async def test_a_flood_costs_bounded_memory_and_is_counted_to_the_byte(
    victim: Victim,
) -> None:
    """10 GB by hand (BELLJAR_ABUSE=full), 1 GB in `make test`."""
    size = number(1, 10) << 30
    result = await victim.bash(f"head -c {size} /dev/zero", timeout=300)
    assert result.ok
    assert result.bytes_produced == size
    assert result.bytes_kept == victim.box.limits.output


async def test_a_flood_past_its_limit_is_ended(victim: Victim) -> None:
    result = await victim.bash("yes", output_limit=1 << 20)
    assert result.cause == "output_limit"
    assert result.bytes_produced < 1 << 30


async def test_one_endless_line_is_truncated_and_ends_at_the_timeout(
    victim: Victim,
) -> None:
    result = await victim.bash("tr '\\0' x < /dev/zero", timeout=3)
    assert result.cause == "timeout"
    assert result.truncated
    assert set(result.stdout_bytes) == {ord("x")}


async def test_an_endless_line_in_a_background_shell_keeps_its_newest(
    victim: Victim,
) -> None:
    shell = await victim.box.start(
        ["bash", victim.script("tr '\\0' y < /dev/zero")], ring=4096
    )
    with anyio.fail_after(PROMPT):
        while (await shell.read(offset=0, wait=1)).dropped[0] < 1 << 20:
            pass
        assert (await shell.read("y+")).stdout == "", (
            "a line that never ends is not shown as one"
        )
        await shell.kill(0)
    assert (await shell.read(offset=0)).stdout == "y" * 4096
    await victim.box.cleanup()


async def test_slow_output_arrives_at_once_and_ends_at_the_timeout(
    victim: Victim,
) -> None:
    seen: list[bytes] = []
    result = await victim.bash(
        "while :; do printf .; sleep 0.05; done",
        timeout=3,
        on_output=lambda output: seen.append(output.data),
    )
    assert result.cause == "timeout"
    assert len(seen) > 3
    assert b"".join(seen) == result.stdout_bytes


async def test_a_slow_reader_holds_back_its_command_and_not_the_host(
    victim: Victim,
) -> None:
    async with victim.box.stream(["bash", victim.script("yes")], timeout=30) as run:
        await anext(run)
        await anext(run)
        for n in range(10):
            await anyio.sleep(0.02)
            assert (await victim.run(["echo", str(n)])).stdout == f"{n}\n"
        waiting = sum(
            len(event.data) for _, event in run._events if isinstance(event, Output)
        )
        assert waiting <= 3 << 20
        run.kill()
        events = [event async for event in run]
    assert isinstance(events[-1], Ended)
    assert events[-1].result.cause == "killed"


NASTY = b"\xff\xfe\x80ok\xc3\xed\xa0\x80\xf5\x1b]52;c;aGk=\x07\x1b[2J\x1b]0;title\x07\x9b31m\x00\r\x08\xe2\x80\xae\n"


async def test_invalid_utf8_and_escapes_are_kept_as_bytes_and_harmless_on_a_terminal(
    victim: Victim,
) -> None:
    result = await victim.python(f"import sys; sys.stdout.buffer.write({NASTY!r})")
    assert result.stdout_bytes == NASTY
    result.stdout.encode()
    shown = Screen().feed(NASTY, final=True).decode()
    assert not {"\x1b", "\x07", "\x9b", "\x08", "\x00", "\u202e"} & set(shown)


async def test_forged_frames_in_the_output_stay_output(victim: Victim) -> None:
    """A command writes fake frames to every descriptor that it can try. The host treats them as plain output."""
    kinds = (From.ENDED, From.STARTED, From.ERROR, From.PONG)
    lies = [frames.HEADER.pack(72, kind, 0, 0, 1) + bytes(72) for kind in kinds]
    result = await victim.python(f"""
import os
for lie in {lies!r}:
    for descriptor in range(256):
        try:
            os.write(descriptor, lie)
        except OSError:
            pass
""")  # fmt: skip
    assert (result.cause, result.exit_code) == ("exited", 0)
    assert result.stdout_bytes == b"".join(lies)


async def test_forged_status_lines_do_not_fool_the_persistent_shell(
    victim: Victim,
) -> None:
    forge = victim.script("""
for d in 1 2 3 8 9 255; do
    printf 's0123456789abcdef 0 - /etc\\0e0123456789abcdef declare -x A="1"\\0' >&$d
done 2>/dev/null
printf 's%s 0 - /etc\\0' "$__bj_n" 2>/dev/null
exit 3
""")
    shell = victim.box.persistent
    with anyio.fail_after(PROMPT):
        result = await shell.run(f"bash {forge}")
        assert (result.cause, result.exit_code) == ("exited", 3)
        assert (await shell.run("pwd")).stdout == "/workspace\n"
    shell.kill()


async def test_a_command_that_closes_its_output_runs_on(victim: Victim) -> None:
    result = await victim.bash("exec >&- 2>&-; sleep 0.2; exit 7")
    assert (result.cause, result.exit_code, result.output) == ("exited", 7, "")


async def test_a_command_that_writes_to_its_own_closed_pipe_keeps_its_exit_code(
    victim: Victim,
) -> None:
    result = await victim.bash("yes | head -1; exec 1<&-; echo lost; exit 5")
    assert (result.exit_code, result.stdout) == (5, "y\n")


async def test_children_that_hold_the_output_open_do_not_delay_the_result(
    victim: Victim,
) -> None:
    with anyio.fail_after(PROMPT):
        result = await victim.bash("sleep 600 & sleep 601 & echo done", timeout=60)
    assert (result.ok, result.stdout, result.survivors_killed) == (True, "done\n", 2)


async def test_daemons_that_detach_are_found_and_killed(victim: Victim) -> None:
    result = await victim.python("""
import os, time
for n in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.setsid()
            for descriptor in range(64):
                try:
                    os.close(descriptor)
                except OSError:
                    pass
            time.sleep(600)
        os._exit(0)
    os.wait()
print("gone")
""")  # fmt: skip
    assert (result.ok, result.stdout, result.survivors_killed) == (True, "gone\n", 5)


# Runs all code that searches output with regular expressions, on texts that make a careless expression very slow.
LOOKS = """
import resource
resource.setrlimit(resource.RLIMIT_CPU, (15, 15))
resource.setrlimit(resource.RLIMIT_DATA, (250 << 20, 250 << 20))
import re
from belljar.audit import masking
from belljar.session import hints
from belljar.session.bash_channel import exported
from belljar.surfaces.terminal.render import Screen
from belljar.surfaces.terminal.drawing import Drawing
assert len(exported('declare -x A="' + "a" * (3 << 20) + '"')["A"]) == 3 << 20
parts = ["a", "-", ".", " ", ": ", "a: ", "fork: retry: ", "spawn a", "eyJ.", "://", "a=",
         "\\r", "\\x1b", "\\x1b[", "\\x1b[0;", "\\x1b]0;"]
for part in parts:
    text = part * ((64 << 10) // len(part))
    for look in [each for each in vars(hints).values() if isinstance(each, re.Pattern)]:
        list(look.finditer(text[: hints.SEARCHED]))
    Screen().feed(text.encode())
    Drawing().feed(text.encode())
    masking.text(text)
"""


def test_no_output_takes_the_host_much_time_or_memory_to_examine() -> None:
    """Once 32 KiB of one letter took half a minute to search, and a variable of 3 MiB took 400 MiB to read."""
    ended = subprocess.run([sys.executable, "-c", LOOKS], check=False)
    assert ended.returncode == 0
