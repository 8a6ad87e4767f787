"""Sessions that outlive the process that made them."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest
from tests.sandbox.test_reaper import Host, gone, reaped
from tests.sandbox.test_reaper import host as host

import belljar
from belljar import Policy, Session, sync
from belljar.engines.docker.engine import DockerEngine
from belljar.errors import PolicyDenied, SessionNotFound


async def test_a_kept_session_outlives_its_process_and_can_be_attached_by_others(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    maker = host(lease=60.0, keep=True)
    maker.close()
    assert maker.session not in await reaped(engine)
    box = await Session.attach(maker.session)
    assert (await box.run("echo still here")).stdout == "still here\n"
    shell = box.shell(maker.shell)
    assert shell.command == "echo shell output; sleep 600"
    assert (await shell.read()).stdout == "shell output\n"
    echo = await box.start("cat")
    await echo.write("from one host, ")
    again = await Session.attach(maker.session)
    with anyio.fail_after(120):
        await again.shell(echo.id).write("then another" + "." * 2_000_000)
    again.shell(echo.id).close_input()
    assert (await again.shell(echo.id).wait(60)).bytes_produced == len(
        "from one host, then another"
    ) + 2_000_000
    assert (await again.run("pgrep -c sleep")).stdout == "1\n"
    await again.close()
    await box.stop()
    await gone(engine, maker.session)
    with pytest.raises(SessionNotFound):
        await Session.attach(maker.session)


async def test_a_kept_session_ends_with_its_lease(
    engine: DockerEngine, host: Callable[..., Host]
) -> None:
    maker = host(lease=0.5, keep=True)
    maker.close()
    await gone(engine, maker.session)
    assert maker.session in await reaped(engine)


async def test_attaching_an_unknown_session_is_one_clear_error() -> None:
    with pytest.raises(SessionNotFound, match="session list"):
        await Session.attach("bj-000000000000")


async def test_a_lease_can_be_extended(engine: DockerEngine, workspace: Path) -> None:
    async with Session(workspace, keep=True, lease=0.5) as box:
        box.extend(60)
        await box.run("true")
        id = box.id
    await anyio.sleep(2)
    again = await Session.attach(id)
    await again.stop()
    await gone(engine, id)


NO_DATE = """
[policy]
name = "house"
[[rule]]
id = "no.date"
program = ["date"]
decision = "deny"
reason = "Not in this house."
"""


@pytest.mark.parametrize("keep", [True, False])
async def test_an_attached_session_keeps_the_policy_that_it_began_with(
    workspace: Path, keep: bool
) -> None:
    policy = Policy.load("default").tighten(Policy.parse(NO_DATE))
    async with Session(workspace, keep=keep, policy=policy) as box:
        again = await Session.attach(box.id)
        assert str(again.policy) == str(policy)
        with pytest.raises(PolicyDenied, match="house"):
            await again.run("date")
        await again.close()
        named = await Session.attach(box.id, policy="default")
        assert (await named.run("date")).exit_code == 0
        await named.close()
        with pytest.raises(PolicyDenied, match="house"):
            await anyio.to_thread.run_sync(_enter_and_run, box.id, "date")
        await box.stop()


def _enter_and_run(id: str, command: str) -> None:
    with sync.attach(id) as box:
        box.run(command)


async def test_a_session_whose_facts_are_lost_cannot_be_attached(
    workspace: Path,
) -> None:
    async with Session(workspace, keep=True, policy="strict") as box:
        (box.sandbox.run_dir / "session.json").unlink()
        with pytest.raises(SessionNotFound, match="no session"):
            await Session.attach(box.id)
        await box.stop()


@pytest.mark.oci
@pytest.mark.root
async def test_a_host_that_takes_any_engine_lists_the_sessions_of_all(
    workspace: Path,
) -> None:
    async with Session(workspace, engine="oci", keep=True, lease=60) as box:
        id = box.id
    assert id in [
        each.id for each in await Session.list(host=belljar.Host(engine="auto"))
    ]
    await (await Session.attach(id, host=belljar.Host(engine="auto"))).stop()
