"""A request is admitted once, and runs only in the session that admitted it."""

from pathlib import Path

import pytest

from belljar import Session
from belljar.errors import UsageError
from belljar.link.frames import Flag
from belljar.session.commands import Commands, Request, flags_of


async def test_a_request_runs_only_where_it_was_admitted(workspace: Path) -> None:
    async with Session(workspace) as box, Session(workspace) as other:
        request = await box.admit("echo hi")
        assert isinstance(request, Request)
        assert (await box.run(request)).stdout == "hi\n"
        for way in (other.run(request), box.run(request, timeout=5)):
            with pytest.raises(
                UsageError, match="only in the session that admitted it"
            ):
                await way


def test_text_runs_in_a_shell_and_words_do_not() -> None:
    assert flags_of("ls", {}) == Flag.SHELL | Flag.DEFAULT_ENV
    assert flags_of(["ls"], {"clean_env": True}) == 0


async def test_every_way_to_run_a_command_goes_through_the_same_admission(
    workspace: Path,
) -> None:
    async with Session(workspace, policy="strict") as box:
        assert isinstance(box._commands, Commands)
        for way in (
            box.run("sudo ls"),
            box.start("sudo ls"),
            box.admit("sudo ls"),
            box.persistent.run("sudo ls"),
        ):
            with pytest.raises(Exception, match="sudo"):
                await way
