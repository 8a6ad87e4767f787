"""Staged changes as tools: a model may look at them, but only a person can approve an apply."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from anyio import to_thread
from tests.surfaces.mcp_client import Person, client, text

from belljar import Session, ToolRegistry
from belljar import host as hosts
from belljar.staged.area import StagedArea


async def test_staged_changes_are_looked_at_discarded_and_applied_only_with_a_persons_yes(
    workspace: Path,
) -> None:
    person = Person()
    (workspace / "a.txt").write_text("one\n")
    os.chown(workspace / "a.txt", workspace.stat().st_uid, workspace.stat().st_gid)
    async with client(workspace, "--staged", elicitation_callback=person) as mcp:

        async def call(tool: str, **arguments: Any) -> str:
            return text(await mcp.call_tool(tool, arguments))

        names = {tool.name for tool in (await mcp.list_tools()).tools}
        assert names >= {
            "list_changes",
            "diff_changes",
            "apply_changes",
            "discard_changes",
        }
        await call("Bash", command="echo two > a.txt; echo x > b.txt")
        assert await call("list_changes") == "~ a.txt\n+ b.txt"
        assert "+two" in await call("diff_changes", paths=["a.txt"])
        person.will("decline")
        assert "declined" in await call("apply_changes")
        asked = person.questions[0]
        assert "+two" in asked
        assert asked.startswith(
            "An agent wants to write its changes into your real workspace, outside the sandbox.\n"
        )
        assert (
            "A yes writes changes of the sandbox into the real workspace (+1 ~1).\n"
            in asked
        )
        assert "    ~ a.txt  +1 −1\n    + b.txt  +1 −0\n" in asked
        assert (
            person.forms[0]["approve"]["description"]
            == "Yes writes these changes into the real workspace."
        )
        assert (workspace / "a.txt").read_text() == "one\n"
        assert await call("discard_changes", paths=["b.txt"]) == "1 discarded"
        person.will("accept", approve=True)
        assert await call("apply_changes") == "1 applied"
        assert (workspace / "a.txt").read_text() == "two\n"
        assert not (workspace / "b.txt").exists()
    belljar_areas = hosts.default().staged_root
    for area in StagedArea.all(belljar_areas):
        await to_thread.run_sync(area.remove)


async def test_without_a_person_staged_changes_are_left_for_the_command_line(
    workspace: Path,
) -> None:
    async with client(workspace, "--staged") as mcp:
        await mcp.call_tool("Bash", {"command": "echo x > b.txt"})
        said = text(await mcp.call_tool("apply_changes", {}))
        assert "belljar apply --session bj-" in said
        assert not (workspace / "b.txt").exists()
    (area,) = StagedArea.all(hosts.default().staged_root)
    assert [change.path for change in area.changes()] == ["b.txt"]
    await to_thread.run_sync(area.remove)


async def test_without_a_staged_session_each_tool_says_so(box: Session) -> None:
    tools = ToolRegistry(box, families=("staged",))
    for name in tools.names():
        result = await tools.call(name)
        assert not result.success
        assert "not staged (--staged)" in (result.error or "")
