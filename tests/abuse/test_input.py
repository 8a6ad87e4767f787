"""Bad input from the caller: too large, malformed, or able to cause a deadlock."""

from __future__ import annotations

import os

import anyio
import pytest
from tests.abuse.conftest import PROMPT, Victim
from tests.session.trusting import trusting

from belljar.errors import CommandError, PolicyDenied, UsageError


async def test_a_huge_command_is_refused_or_runs_but_never_hangs(
    victim: Victim,
) -> None:
    with pytest.raises(PolicyDenied, match="too large"):
        await victim.run("echo " + "x" * (32 << 20))
    for command in (["echo", "x" * (16 << 20)], ["echo", *["x" * 1000] * 5000]):
        # skip the policy, which has a size limit of its own
        with (
            trusting(victim.box),
            pytest.raises((UsageError, CommandError), match="large"),
        ):
            await victim.run(command)


async def test_many_arguments_arrive_as_they_are(victim: Victim) -> None:
    arguments = [f"argument {n}" for n in range(8_000)]
    result = await victim.run(["printf", "%s\\n", *arguments])
    assert result.stdout == "".join(f"{each}\n" for each in arguments)


@pytest.mark.parametrize("command", ["echo a\0b", ["echo", "a\0b"], ["a\0b"], "\0"])
async def test_a_nul_is_refused(victim: Victim, command: str | list[str]) -> None:
    with pytest.raises((PolicyDenied, UsageError, CommandError)):
        await victim.run(command)


@pytest.mark.parametrize("env", [{"A\0B": "1"}, {"A": "\0"}, {"A=B": "1"}, {"": "1"}])
async def test_an_impossible_variable_is_refused(
    victim: Victim, env: dict[str, str]
) -> None:
    with pytest.raises(UsageError):
        await victim.run("true", env=env)


async def test_thousands_of_variables_arrive(victim: Victim) -> None:
    result = await victim.bash(
        "compgen -v V_ | wc -l", env={f"V_{n}": str(n) for n in range(5000)}
    )
    assert result.stdout == "5000\n"


async def test_variables_beyond_what_linux_takes_are_an_error(victim: Victim) -> None:
    with pytest.raises((UsageError, CommandError)):
        await victim.run("true", env={f"V_{n}": "x" * 100_000 for n in range(100)})


async def test_variables_that_change_how_programs_load_affect_only_the_inside(
    victim: Victim,
) -> None:
    env = {
        "LD_PRELOAD": "/workspace/evil.so",
        "BASH_ENV": "/workspace/evil",
        "PS4": "$(echo evil >&2)",
    }
    (victim.workspace / "evil").write_text("echo evil")
    result = await victim.bash("echo fine", env=env)
    assert "fine\n" in result.stdout


# Deadlocks: one side writes much before it reads.


async def test_echoing_more_than_all_buffers_hold_does_not_lock_up(
    victim: Victim,
) -> None:
    data = os.urandom(3 << 20)
    assert (await victim.run(["cat"], stdin=data)).stdout_bytes == data


async def test_a_command_that_prints_much_before_it_reads_does_not_lock_up(
    victim: Victim,
) -> None:
    text = "head -c 8M /dev/zero; cat | wc -c >&2"
    result = await victim.bash(text, stdin=b"x" * (8 << 20))
    assert (result.bytes_produced, result.stderr) == ((8 << 20) + 8, f"{8 << 20}\n")


async def test_a_command_that_never_reads_ends_in_time(victim: Victim) -> None:
    result = await victim.bash("sleep 600", stdin=b"x" * (8 << 20), timeout=1)
    assert result.cause == "timeout"


async def test_a_command_that_closes_its_input_early_ends_normally(
    victim: Victim,
) -> None:
    result = await victim.bash("exec <&-; sleep 0.1; echo done", stdin=b"x" * (8 << 20))
    assert result.stdout == "done\n"


async def test_a_command_that_waits_for_input_that_never_comes_ends_in_time(
    victim: Victim,
) -> None:
    async with victim.box.stream("cat", stdin_open=True, timeout=1) as run:
        with anyio.fail_after(PROMPT):
            async for _ in run:
                pass
    assert run.result is not None
    assert run.result.cause == "timeout"


async def test_input_for_a_command_that_has_ended_is_dropped(victim: Victim) -> None:
    async with victim.box.stream("exit 0", stdin_open=True) as run:
        async for _ in run:
            pass
        with anyio.fail_after(PROMPT):
            await run.write(b"x" * (1 << 20))
    assert run.result is not None
    assert run.result.ok
