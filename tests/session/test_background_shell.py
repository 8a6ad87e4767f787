"""Background shells in a real sandbox."""

import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
import regex
from tests.owners import give

from belljar import Output, Session, Shell
from belljar.errors import BelljarError, ShellNotFound, UsageError
from belljar.link.frames import ReadReply
from belljar.session import background_shell, new_output
from belljar.session.background_shell import Chunk
from belljar.session.new_output import _matches


@pytest.fixture(scope="module")
async def box(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Session]:
    home = tmp_path_factory.mktemp("workspace")
    give(home)
    async with Session(home) as session:
        yield session


async def until(shell: Shell, text: str) -> Chunk:
    """Wait until `text` was printed, without moving the read cursor."""
    with anyio.fail_after(120):
        while True:
            chunk = await shell.read(offset=0, wait=0.05)
            if text in chunk.text:
                return chunk


async def test_a_shell_runs_while_others_do(box: Session) -> None:
    shell = await box.start("echo up; sleep 600")
    assert shell.id.startswith("shell_")
    assert len(shell.id) == 14
    assert (await box.run("echo meanwhile")).stdout == "meanwhile\n"
    await until(shell, "up")
    assert shell.status == "running"
    await shell.kill()
    assert shell.status == "killed"  # type: ignore[comparison-overlap]


async def test_a_read_returns_only_new_output(box: Session) -> None:
    shell = await box.start("echo one; read -r _; echo two; read -r _; echo three >&2")
    await until(shell, "one")
    assert (await shell.read()).stdout == "one\n"
    assert (await shell.read()).text == ""
    await shell.write("\n")
    await until(shell, "two")
    assert (await shell.read()).stdout == "two\n"
    await shell.write(b"\n")
    await shell.wait(60)
    last = await shell.read()
    assert (last.stdout, last.stderr, last.status, last.exit_code) == (
        "",
        "three\n",
        "completed",
        0,
    )


async def test_a_read_from_an_offset_does_not_move_the_position(box: Session) -> None:
    shell = await box.start("printf abcdef")
    await shell.wait(60)
    assert (await shell.read(offset=0)).stdout == "abcdef"
    assert (await shell.read(offset=(4, 0))).stdout == "ef"
    assert (await shell.read()).stdout == "abcdef"


async def test_lines_that_a_filter_hides_can_still_be_read(box: Session) -> None:
    shell = await box.start("printf 'info a\\nerror b\\ninfo c\\nerror d'")
    await shell.wait(60)
    assert (await shell.read(filter="^error")).stdout == "error b\nerror d"
    assert (await shell.read(filter="^error")).stdout == ""
    assert (await shell.read(filter="a|d")).stdout == "info a\n"
    assert (await shell.read(offset=0)).stdout == "info a\nerror b\ninfo c\nerror d"
    assert (await shell.read(filter="c", offset=0)).stdout == "info c\n"
    assert (await shell.read()).stdout == "info c\n", "each line is shown once"
    assert (await shell.read()).text == ""


async def test_a_filter_waits_for_a_line_to_be_complete(box: Session) -> None:
    shell = await box.start("printf 'err'; read -r _; echo or")
    await until(shell, "err")
    assert (await shell.read(filter="error")).stdout == ""
    await shell.write("\n")
    await shell.wait(60)
    assert (await shell.read(filter="error")).stdout == "error\n"


@pytest.mark.parametrize("pattern", ["(", "[a-", "*"])
async def test_a_bad_filter_is_one_clear_error(box: Session, pattern: str) -> None:
    shell = await box.start("true")
    with pytest.raises(UsageError, match="Invalid filter regex"):
        await shell.read(filter=pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        "a{4000000000}", "[ab]{000000000000000300000000}", "(?:(?:(?:a{1000}){1000}){1000})", "(?:ab)(?#){100000000}",
        "(?x)(?:a{999} # [\n){999}", "(?V1x:(a b) {99999} )", "(?:(?:a{999}[(]b){999}[(]b){999}", "a" * 100_000,
    ],
)  # fmt: skip
def test_a_filter_that_would_take_all_memory_is_not_compiled(
    pattern: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("regex.compile", lambda _: pytest.fail("it was compiled"))
    with pytest.raises(UsageError, match="repeats too much"):
        new_output.compiled(pattern)


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?:\d{1,3}\.){3}\d{1,3}", r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{3,9})?Z? +(ERROR|WARN)",
        "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "x{0,4000000000}", "(?ix) error | fail {2}", r"\p{Lu}{3,}: .{200}",
    ],
)  # fmt: skip
def test_everyday_filters_are_accepted(pattern: str) -> None:
    assert new_output.compiled(pattern).pattern == pattern


async def test_a_catastrophic_filter_cannot_hang_the_host(box: Session) -> None:
    shell = await box.start("head -c 60000 /dev/zero | tr '\\0' a; echo b")
    await shell.wait(60)
    with pytest.raises(UsageError, match="too long"):
        await shell.read(filter=r"(a|aa)+$")


async def test_a_character_is_never_split_between_two_reads(box: Session) -> None:
    shell = await box.start("printf 'a\\xf0\\x9f'; read -r _; printf '\\x98\\x80z'")
    await until(shell, "a")
    assert (await shell.read()).stdout == "a"
    await shell.write("\n")
    await shell.wait(60)
    assert (await shell.read()).stdout == "😀z"


async def test_the_oldest_output_is_dropped_and_counted(box: Session) -> None:
    shell = await box.start("seq 100000", ring=8192)
    await shell.wait(60)
    chunk = await shell.read()
    assert chunk.stdout.endswith("99999\n100000\n")
    assert len(chunk.stdout_bytes) == 8192
    assert chunk.dropped[0] == 588895 - 8192


async def test_signals_reach_the_whole_tree(box: Session) -> None:
    shell = await box.start(
        "trap 'echo caught; exit 5' USR1; echo armed; while :; do sleep 0.01; done"
    )
    await until(shell, "armed")
    shell.signal(signal.SIGUSR1)
    assert (await shell.wait(60)).exit_code == 5
    assert shell.status == "failed"


async def test_a_kill_leaves_no_process_and_may_be_repeated(box: Session) -> None:
    shell = await box.start("trap '' TERM; setsid sleep 600 & echo up; sleep 601")
    await until(shell, "up")
    await shell.kill(grace=0.1)
    assert (await box.run("pgrep -c sleep")).stdout == "0\n"
    await shell.kill()
    assert shell.status == "killed"


async def test_a_deadline_holds_for_shells_too(box: Session) -> None:
    shell = await box.start("sleep 600", timeout=0.2)
    assert (await shell.wait(60)).cause == "timeout"
    assert shell.status == "failed"


async def test_a_wait_that_times_out_leaves_the_shell_running(box: Session) -> None:
    shell = await box.start("sleep 600")
    with pytest.raises(TimeoutError):
        await shell.wait(0.05)
    assert await shell.poll() == "running"
    await shell.kill()


async def test_input_for_a_shell_that_does_not_read_waits_and_blocks_no_other(
    box: Session,
) -> None:
    shell = await box.start("read -r _; sleep 0.2; wc -c")
    data = b"x" * 3_000_000
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shell.write, b"\n" + data)
        assert (await box.run("echo meanwhile")).stdout == "meanwhile\n"
    shell.close_input()
    await shell.wait(60)
    assert (await shell.read()).stdout == "3000000\n"


async def test_writing_to_a_shell_that_ended_is_dropped(box: Session) -> None:
    shell = await box.start("exit 0")
    await shell.wait(60)
    with anyio.fail_after(120):
        await shell.write(b"x" * 3_000_000)


async def test_writing_to_a_forgotten_shell_fails_clearly(box: Session) -> None:
    shell = await box.start("exit 0")
    await shell.wait(60)
    shell.forget()
    for size in (1, 3_000_000):
        with anyio.fail_after(120), pytest.raises(ShellNotFound, match="forgotten"):
            await shell.write(b"x" * size)


async def test_reads_at_the_same_time_share_the_output_without_repeats(
    box: Session,
) -> None:
    shell = await box.start("for i in $(seq 2000); do echo line $i; done; echo last")
    await shell.wait(60)
    parts: list[str] = []

    async def read(filter: str | None) -> None:
        parts.append((await shell.read(filter)).stdout)

    async with anyio.create_task_group() as tasks:
        for filter in (None, "line", None, "last", None):
            tasks.start_soon(read, filter)
    parts.append((await shell.read()).stdout)
    assert sorted("".join(parts).splitlines()) == sorted(
        [*(f"line {i + 1}" for i in range(2000)), "last"]
    )
    assert (await shell.read()).stdout == "", "no cursor has moved back"


async def test_two_hundred_shells_write_at_once_and_lose_nothing(
    box: Session, tmp_path: Path
) -> None:
    shells = [
        await box.start(["sh", "-c", f"seq {n} {n + 500}"])
        for n in range(0, 20000, 100)
    ]
    for n, shell in zip(range(0, 20000, 100), shells, strict=True):
        await shell.wait(120)
        assert (await shell.read()).stdout == "".join(
            f"{line}\n" for line in range(n, n + 501)
        )
    assert await box.cleanup() >= 200


async def test_a_shell_can_be_read_while_another_task_waits_for_its_end(
    box: Session,
) -> None:
    shell = await box.start("echo one; read -r line; echo two")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shell.wait)
        while "one" not in (chunk := await shell.read(offset=0, wait=5)).stdout:
            pass
        with anyio.fail_after(120):
            assert (await shell.read()).stdout == chunk.stdout == "one\n"
            assert await shell.poll() == "running"
        await shell.write("go\n")
    assert (await shell.read()).stdout == "two\n"


async def test_the_result_is_complete_when_it_needs_more_than_one_reply(
    box: Session,
) -> None:
    """A reply holds 58 bytes less than a ring of one megabyte."""
    shell = await box.start(
        "head -c 1048576 /dev/zero | tr '\\0' x; printf END", ring=4 << 20
    )
    result = await shell.wait(60)
    assert (len(result.stdout_bytes), result.stdout_bytes[-4:]) == (1048579, b"xEND")
    assert not result.truncated


async def test_each_observer_sees_everything_at_its_own_pace(box: Session) -> None:
    shell = await box.start(
        "for i in $(seq 2000); do echo out $i; echo err $i >&2; done; read -r _; echo last"
    )
    expected = "".join(f"out {i}\n" for i in range(1, 2001)) + "last\n"
    seen: dict[str, str] = {}

    async def watch(name: str, slow: bool) -> None:
        text = b""
        async for chunk in shell.observe():
            text += chunk.stdout_bytes
            if slow:
                await anyio.sleep(0.05)
        seen[name] = text.decode()

    async with anyio.create_task_group() as tasks:
        for name in ("a", "b", "slow"):
            tasks.start_soon(watch, name, name == "slow")
        await until(shell, "out 2000\n")
        await shell.write("\n")
    assert seen == {"a": expected, "b": expected, "slow": expected}
    assert (await shell.read()).stdout == expected, "observers take nothing from `read`"


async def test_of_a_detached_command_observers_see_what_comes_from_then_on(
    box: Session,
) -> None:
    async with box.stream("echo before; read; echo after", stdin_open=True) as events:
        async for event in events:
            if isinstance(event, Output):
                break
        shell = await events.detach()
    assert shell is not None
    await shell.write("\n")
    for _ in range(2):
        seen = "".join([chunk.stdout async for chunk in shell.observe()])
        assert seen == "after\n"


async def test_an_observer_goes_on_at_its_position_after_a_reconnect(
    workspace: Path,
) -> None:
    async with Session(workspace, keep=True) as first:
        shell = await first.start("echo one; read -r _; echo two")
        observer = shell.observe()
        assert (await anext(observer)).stdout == "one\n"
        id, position = first.id, observer.position
    again = await Session.attach(id)
    found = again.shells.get(shell.id)
    await found.write("\n")
    assert [chunk.stdout async for chunk in found.observe(position)] == ["two\n"]
    assert "".join([chunk.stdout async for chunk in found.observe()]) == "one\ntwo\n"
    await again.stop()


async def test_many_can_read_one_shell_at_once(box: Session) -> None:
    shell = await box.start("read -r x; echo $x")
    seen: list[str] = []

    async def follow() -> None:
        seen.append((await shell.read(offset=0, wait=30)).stdout)

    async with anyio.create_task_group() as tasks:
        for _ in range(12):
            tasks.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        await shell.write("word\n")
    assert seen == ["word\n"] * 12


def test_a_filter_past_its_deadline_is_refused() -> None:
    with pytest.raises(UsageError, match="takes too long"):
        _matches(regex.compile("x"), b"x", time.monotonic() - 1)


async def test_an_init_whose_output_never_ends_costs_bounded_memory(
    box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = await box.start("true")
    await shell.wait(60)
    asked = 0

    async def more(
        id: int, out_from: int, err_from: int, limit: int, wait: float = 0.0
    ) -> ReadReply:
        nonlocal asked
        asked += 1
        assert asked < 100
        return ReadReply(out_from, err_from, shell._body, bytes(10), b"")

    monkeypatch.setattr(background_shell, "RING_MAX", 200)
    monkeypatch.setattr(box.sandbox.link, "read", more)
    with pytest.raises(BelljarError, match="more output than it can have kept"):
        await shell.result()


async def test_a_shell_that_the_init_never_ends_is_given_up(
    box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    shell = await box.start("sleep 600")

    async def running(
        id: int, out_from: int, err_from: int, limit: int, wait: float = 0.0
    ) -> ReadReply:
        await anyio.sleep(0.01)
        return ReadReply(0, 0, None, b"", b"")

    monkeypatch.setattr(background_shell, "SAFETY_NET", 0.01)
    monkeypatch.setattr(background_shell, "PATIENCE", 0.01)
    monkeypatch.setattr(box.sandbox.link, "read", running)
    with (
        anyio.fail_after(120),
        pytest.raises(BelljarError, match="does not say that it has ended"),
    ):
        await shell.kill(grace=0)
