"""Starting, listing and finding shells."""

from pathlib import Path

import anyio
import pytest
from tests.session.test_background_shell import box as box

from belljar import Session, Shell
from belljar.errors import PolicyDenied, ShellNotFound, UsageError
from belljar.link import frames
from belljar.link.frames import Flag


async def test_shells_are_listed_found_and_cleaned_up(box: Session) -> None:
    await box.cleanup()
    alive, dead = await box.start("sleep 600"), await box.start("true")
    await dead.wait(60)
    assert {shell.id for shell in box.shells()} == {alive.id, dead.id}
    assert box.shell(alive.id) is alive
    assert await box.cleanup() == 1
    assert box.shells() == [alive]
    with pytest.raises(ShellNotFound, match=f"Shell not found: {dead.id}"):
        box.shell(dead.id)
    with pytest.raises(ShellNotFound):
        await dead.read()
    await alive.kill()


async def test_a_denied_command_starts_no_shell(box: Session) -> None:
    before = len(box.shells())
    with pytest.raises(PolicyDenied):
        await box.start("rm -rf /")
    assert len(box.shells()) == before


async def test_a_foreground_command_that_takes_long_becomes_a_shell_and_loses_nothing(
    box: Session,
) -> None:
    text = "for i in $(seq 2000); do echo $i; done; echo half; read -r _; echo end"
    made = await box.yielding(text, yield_after=0.5, stdin_open=True)
    assert isinstance(made, Shell)
    assert made.so_far is not None
    assert made.so_far.stdout.endswith("half\n")
    await made.write("\n")
    await made.wait(60)
    assert (
        made.so_far.stdout + (await made.read()).stdout
        == "".join(f"{n}\n" for n in range(1, 2001)) + "half\nend\n"
    )


async def test_a_flooding_command_that_becomes_a_shell_loses_no_output(
    box: Session,
) -> None:
    made = await box.yielding(
        "i=0; while :; do echo line $((i++)); done", yield_after=1.0
    )
    assert isinstance(made, Shell)
    assert made.so_far is not None
    here = made.so_far.next[0]
    chunk = await made.read(wait=5)
    assert chunk.offset[0] - chunk.dropped[0] == here
    await made.kill()


async def test_a_quick_command_returns_its_result(box: Session) -> None:
    made = await box.yielding("echo quick", yield_after=20)
    assert not isinstance(made, Shell)
    assert made.stdout == "quick\n"


async def test_foreign_shells_that_are_no_longer_listed_are_forgotten(
    box: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hostile init could list new shells each time. The host must not keep them all."""
    ours = await box.start("sleep 600")
    link, numbers = box.sandbox.link, iter(range(1, 7))

    async def lies() -> list[frames.Listed]:
        return [
            frames.Listed(next(numbers), Flag.BACKGROUND, 1, 0, None, b"")
            for _ in range(3)
        ]

    monkeypatch.setattr(link, "list", lies)
    await box.refresh()
    known = {shell.id for shell in await box.refresh()}
    monkeypatch.undo()
    assert known & {f"shell_{number:08x}" for number in range(1, 7)} == {
        f"shell_{n:08x}" for n in (4, 5, 6)
    }
    assert ours.id in known
    await box.refresh()
    await ours.kill()


async def test_named_shells_keep_their_own_state_side_by_side(box: Session) -> None:
    one, two = box.shell("one"), box.shells.named("two")
    await box.files.mkdir("sub")
    await one.run("cd sub; export WHO=one")
    async with (
        anyio.create_task_group() as tasks
    ):  # two waits for what one does at the same time
        tasks.start_soon(two.run, "until [ -e sub/mark ]; do sleep 0.05; done; WHO=two")
        tasks.start_soon(one.run, "touch mark")
    assert (await one.run('pwd; echo "$WHO"')).stdout == "/workspace/sub\none\n"
    assert (await two.run('pwd; echo "$WHO"')).stdout == "/workspace\ntwo\n"
    assert (await box.persistent.run('pwd; echo "$WHO"')).stdout == "/workspace\n\n"
    assert box.shell("one") is one


@pytest.mark.parametrize("name", ["", "../x", "a b", "x" * 80])
async def test_a_wrong_name_for_a_shell_is_refused(box: Session, name: str) -> None:
    with pytest.raises(UsageError):
        box.shell(name)


async def test_named_shells_go_on_after_another_process_attaches(
    workspace: Path, base_image: str
) -> None:
    first = await Session(workspace, keep=True, lease=60).open()
    await first.shell("a").run("cd /tmp; export WHO=a")
    await first.shell("b").run("export WHO=b")
    second = await Session.attach(first.id)
    try:
        result = await second.shell("a").run('pwd; echo "$WHO"')
        assert (result.stdout, result.restarted) == ("/tmp\na\n", True)
        assert (
            await second.shell("b").run('pwd; echo "$WHO"')
        ).stdout == "/workspace\nb\n"
    finally:
        await second.stop()
        await first.close()
