"""Discarding changes in a running sandbox."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.session.test_copied_workspace import kinds
from tests.session.test_staged import Open
from tests.session.test_staged import _nothing_stays as _nothing_stays
from tests.session.test_staged import engine_name as engine_name
from tests.session.test_staged import place as place
from tests.session.test_staged import staged as staged

pytestmark = [pytest.mark.anyio, pytest.mark.root, pytest.mark.engine]


async def test_a_discarded_file_is_no_change_whatever_attributes_it_had(
    staged: Open, place: Path
) -> None:
    os.setxattr(place / "a.txt", "user.note", b"host")
    async with staged() as box:
        await box.run("echo two >> a.txt; chmod 600 b.txt; chmod 700 dir")
        await box.run(
            'python3 -c \'import os; os.setxattr("b.txt", "user.new", b"1")\''
        )
        assert await box.discard() == ["a.txt", "b.txt", "dir"]
        assert await box.changes() == []
        await box.run('python3 -c \'import os; os.removexattr("a.txt", "user.note")\'')
        assert [change.path for change in await box.changes()] == ["a.txt"]


async def test_rollback_restores_a_checkpoint_and_restarts_the_shell(
    staged: Open,
) -> None:
    async with staged() as box:
        await box.persistent.run("cd dir; export X=1; echo one > ../made")
        point = await box.checkpoint("good")
        await box.persistent.run("echo two > ../made; rm c.txt")
        assert (await box.run("cat made; ls dir")).stdout == "two\n"
        shell = await box.start("sleep 300")
        assert await box.rollback() == point
        assert shell.status != "running" or (await shell.wait()).cause != "exited"
        assert (await box.run("cat made; ls dir")).stdout == "one\nc.txt\n"
        back = await box.persistent.run("pwd; ls; cat ../made")
        assert back.stdout == "/workspace/dir\nc.txt\none\n"
        assert await kinds(box) == {"made": "added"}


async def test_changes_in_a_read_only_directory_can_be_discarded(staged: Open) -> None:
    async with staged() as box:
        await box.run("echo x > dir/new; echo y > dir/c.txt; chmod 555 dir")
        assert await box.discard(["dir/new", "dir/c.txt"]) == ["dir/c.txt", "dir/new"]
        assert (await box.run("stat -c %a dir; cat dir/*")).stdout == "555\nc\n"
        assert await box.discard() == ["dir"]
        assert (await box.run("stat -c %a dir")).stdout == "755\n"
