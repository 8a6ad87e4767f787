"""Every start in the trail gets an end, even if the command failed, was killed or was lost."""

import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread

from belljar import Allow, Host, PolicyDenied, Result, Session
from belljar.audit import reader
from belljar.audit.writer import Audit
from belljar.errors import BelljarError, WorkingDirectoryError

Records = list[dict[str, Any]]


@pytest.fixture
def where(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
async def box(workspace: Path, where: Path) -> AsyncIterator[Session]:
    async with Session(workspace, audit=Audit(where)) as session:
        yield session


async def records(box: Session, where: Path) -> Records:
    await to_thread.run_sync(box.audit.flush)
    return [
        json.loads(line) for line in (where / "audit.jsonl").read_text().splitlines()
    ]


def ends(found: Records) -> dict[str, Any]:
    """Maps each command to the record of its end. Fails unless every start has exactly one end."""
    starts = {each["run"]: each["command"] for each in found if each["kind"] == "start"}
    finished = [each for each in found if each["kind"] == "end"]
    assert sorted(each["run"] for each in finished) == sorted(starts)
    return {starts[each["run"]]: each for each in finished}


async def test_commands_that_end_in_any_way_are_recorded_with_start_and_end(
    box: Session, where: Path
) -> None:
    await box.run("exit 3")
    await box.run("kill -9 $$")
    await box.run("sleep 60", timeout=0.1)
    await box.persistent.run("echo persistent")
    await box.persistent.run("sleep 61", timeout=0.1)
    for wrong in ({"cwd": "/nosuch"}, {"command": ["nosuch-program"]}):
        with pytest.raises(BelljarError):
            await box.run(**{"command": "true", **wrong})
    with pytest.raises(BaseExceptionGroup):  # noqa: PT012
        async with (
            box.stream(["nosuch-streamed"]) as streamed,
            anyio.create_task_group(),
        ):
            async for _ in streamed:
                pass
    gone = Path(box.workspace.path, "gone")
    gone.mkdir()
    request = await box.admit("echo gone", cwd="gone")
    gone.rmdir()
    with pytest.raises(WorkingDirectoryError):
        await box.run(request)
    with anyio.move_on_after(0.2):
        await box.run("sleep 62")
    async with box.stream("sleep 63"):
        pass
    with pytest.raises(ZeroDivisionError):
        await box.run("echo raising; sleep 64", on_output=lambda _: 1 / 0)
    found = ends(await records(box, where))
    assert {command: end["cause"] for command, end in found.items()} == {
        "exit 3": "exited", "kill -9 $$": "signalled", "sleep 60": "timeout", "echo persistent": "exited",
        "sleep 61": "timeout", "nosuch-program": "not_started", "true": "not_started",
        "nosuch-streamed": "not_started", "sleep 62": "killed", "sleep 63": "killed",
        "echo raising; sleep 64": "killed", "echo gone": "not_started",
    }  # fmt: skip


async def test_the_end_of_a_cancelled_call_is_recorded_at_once(
    box: Session, where: Path
) -> None:
    """Not only when the session closes, because a reader of the trail wants to see what still runs."""
    with anyio.move_on_after(0.5):
        await box.persistent.run("echo begun; sleep 60")
    with anyio.move_on_after(0.5):
        await box.run("sleep 61")
    causes = {
        command: end["cause"]
        for command, end in ends(await records(box, where)).items()
    }
    assert causes == {"echo begun; sleep 60": "killed", "sleep 61": "killed"}


async def test_background_shells_are_recorded_with_start_and_end(
    workspace: Path, where: Path
) -> None:
    async with Session(workspace, audit=Audit(where)) as box:
        await (await box.start("echo seen; exit 4")).wait()
        await (await box.start("sleep 60")).kill()
        unseen = await box.start("echo unseen")
        await box.run("while pgrep -f '[u]nseen' >/dev/null; do sleep 0.02; done")
        assert unseen.status == "running", "nobody asked"
        await box.start("sleep 61")
        with anyio.fail_after(120):
            shell = await box.yielding("sleep 62", yield_after=0)
        assert not hasattr(shell, "cause")
    found = ends(await records(box, where))
    assert {command: end["cause"] for command, end in found.items() if not command.startswith("while")} == {
        "echo seen; exit 4": "exited", "sleep 60": "killed", "echo unseen": "exited", "sleep 61": "killed",
        "sleep 62": "killed",
    }  # fmt: skip


async def test_commands_of_a_lost_sandbox_are_recorded_as_ended(
    workspace: Path, where: Path
) -> None:
    told: list[Result] = []

    async def keep(work: Awaitable[Result]) -> None:
        told.append(await work)

    async with Session(workspace, audit=Audit(where)) as box:
        await box.start("sleep 60")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(keep, box.run("sleep 61"))
            tasks.start_soon(keep, box.persistent.run("sleep 62"))
            while "sleep 62" not in str(await records(box, where)):  # noqa: ASYNC110
                await anyio.sleep(0.02)
            await to_thread.run_sync(
                box.sandbox.engine.destroy, box.sandbox.launched.id
            )
    found = ends(await records(box, where))
    assert {end["cause"] for end in found.values()} == {"sandbox_lost"}
    assert all("open a new Session" in result.hints[0] for result in told)
    assert len(found) == 3


async def test_reading_a_kept_session_records_no_second_open_or_close(
    workspace: Path, where: Path
) -> None:
    async with Session(workspace, audit=Audit(where), keep=True) as box:
        shell, id = await box.start("sleep 60"), box.id
    async with await Session.attach(id, audit=box.audit) as reading:
        assert (await reading.shell(shell.id).read()).status == "running"
        session = reading.id
    kinds = [each["kind"] for each in await records(box, where)]
    assert kinds.count("session_open") == kinds.count("session_close") == 1, (
        "reading closes nothing"
    )
    assert [end["cause"] for end in ends(await records(box, where)).values()] == [
        "detached"
    ]
    await (await Session.attach(session, audit=box.audit)).stop()
    assert [each["kind"] for each in await records(box, where)].count(
        "session_close"
    ) == 2


async def test_every_answer_is_recorded(workspace: Path, where: Path) -> None:
    answers = [False, True]

    def approve(verdict: Any) -> bool:
        if answer := answers.pop(0):
            box.approvals.remember(verdict, scope="session")
        return answer

    async with Session(workspace, audit=Audit(where), approve=approve) as box:
        with pytest.raises(PolicyDenied):
            await box.run("sudo true")
        await box.run("sudo true")
        await box.run("sudo true")
    async with Session(workspace, audit=box.audit) as box:
        with pytest.raises(PolicyDenied):
            await box.run("sudo true")
    told = [
        (each["approved"], each["by"])
        for each in await records(box, where)
        if each["kind"] == "approval"
    ]
    assert told == [
        (False, "approver"),
        (True, "approver"),
        (True, "remembered"),
        (False, "nobody"),
    ]


@pytest.mark.parametrize("seed", range(4))
async def test_any_sequence_of_calls_faults_and_kills_gives_a_balanced_chain(
    workspace: Path, where: Path, seed: int
) -> None:
    choose = random.Random(seed)

    async def run() -> None:
        await box.run(
            choose.choice(("true", "exit 3", "kill -9 $$", "seq 5000", "sleep 0.01 &"))
        )

    async def fail() -> None:
        wrong: dict[str, Any] = choose.choice(
            ({"cwd": "nosuch"}, {"command": ["nosuch"]}, {"command": "rm -rf /"})
        )
        await box.run(**{"command": "true", **wrong})

    async def cancel() -> None:
        with anyio.move_on_after(choose.random() / 20):
            await box.run("sleep 5")

    async def leave() -> None:
        async with box.stream("yes") as events:
            await anext(events)

    async def raising() -> None:
        await box.run("seq 100", on_output=lambda _: 1 / 0)

    async def background() -> None:
        shell = await box.start(choose.choice(("sleep 5", "true", "exit 2")))
        if choose.random() < 0.5:
            await shell.kill()

    async def persistent() -> None:
        await box.persistent.run(
            choose.choice(("true", "exit", "sleep 5", "kill -9 $$")), timeout=0.1
        )

    async def kill() -> None:
        if choose.random() < 0.15:
            await to_thread.run_sync(
                box.sandbox.engine.destroy, box.sandbox.launched.id
            )

    calls = (run, fail, cancel, leave, raising, background, persistent, kill)

    async def several() -> None:
        for _ in range(8):
            with contextlib.suppress(BelljarError, ZeroDivisionError):
                await choose.choice(calls)()

    box = Session(workspace, host=Host(state=where))
    async with box, anyio.create_task_group() as tasks:
        for _ in range(3):
            tasks.start_soon(several)
    found = await records(box, where)
    ends(found)
    assert [each["kind"] for each in found].count("session_close") == 1
    assert (await to_thread.run_sync(reader.verify, where)).ok


@pytest.mark.engine
@pytest.mark.parametrize("running", [(), ("sleep 600",)], ids=["idle", "with a shell"])
async def test_a_session_with_a_door_whose_sandbox_has_just_died_is_closed_and_recorded(
    workspace: Path, where: Path, running: tuple[str, ...]
) -> None:
    """The link does not know of the death yet: the first frame to the sandbox fails."""
    box = await Session(
        workspace, network=Allow("a.example"), audit=Audit(where)
    ).open()
    for command in running:
        await box.start(command)
    id, run_dir = box.id, box.sandbox.run_dir
    box.sandbox.link._transport._socket.shutdown(socket.SHUT_WR)  # type: ignore[attr-defined]
    await box.close()
    assert not run_dir.exists()
    found = await records(box, where)
    assert ends(found).keys() == set(running)
    assert [each["session"] for each in found if each["kind"] == "session_close"] == [
        id
    ]


@pytest.mark.engine
async def test_a_close_that_is_cancelled_still_destroys_and_records(
    workspace: Path, where: Path
) -> None:
    box = await Session(workspace, audit=Audit(where)).open()
    await box.start("sleep 600")
    run_dir = box.sandbox.run_dir
    with anyio.CancelScope() as scope:
        scope.cancel()
        await box.close()
    assert not run_dir.exists()
    found = await records(box, where)
    assert ends(found)["sleep 600"]["cause"] == "killed"
    assert [each["kind"] for each in found][-1] == "session_close"
