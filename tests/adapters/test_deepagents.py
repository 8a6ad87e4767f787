"""A deep agent in a Belljar sandbox: a scripted model, no network."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.adapters import examples
from tests.adapters.losing import lost_while

examples.needs("deepagents")

from deepagents import create_deep_agent
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolMessage

import belljar
from belljar.adapters import deepagents as adapter
from belljar.adapters.deepagents import BelljarSandbox, BelljarSandboxProvider
from belljar.errors import SessionNotFound, UsageError

pytestmark = pytest.mark.engine


class Scripted(GenericFakeChatModel):
    def bind_tools(self, tools: Any, **_: Any) -> Any:
        return self


def scripted(*calls: tuple[str, dict[str, Any]]) -> Any:
    """A model that makes these tool calls, one at a time, and then says that it is done."""
    asked = [
        AIMessage("", tool_calls=[{"name": name, "args": given, "id": str(number)}])
        for number, (name, given) in enumerate(calls)
    ]
    return Scripted(messages=iter([*asked, AIMessage("done")]))


@pytest.fixture(scope="module")
def sandbox() -> Iterator[BelljarSandbox]:
    with BelljarSandbox() as made:
        yield made


@pytest.mark.quick
def test_the_example_writes_a_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    model = scripted(
        ("write_file", {"file_path": "/workspace/haiku.txt", "content": "old pond\n"})
    )
    names = asyncio.run(examples.run(adapter, model=model))
    assert names["haiku"].content == b"old pond\n"
    assert names["result"]["messages"][-1].content == "done"
    assert list(tmp_path.glob("belljar-workspace-*")) == []


@pytest.mark.quick
def test_an_agent_uses_all_of_its_tools(sandbox: BelljarSandbox) -> None:
    model = scripted(
        (
            "write_file",
            {"file_path": "/workspace/src/a.py", "content": "print('one')\n"},
        ),
        (
            "edit_file",
            {
                "file_path": "/workspace/src/a.py",
                "old_string": "one",
                "new_string": "two",
            },
        ),
        ("execute", {"command": "python3 src/a.py; id -u; ls /sys/class/net"}),
        ("grep", {"pattern": "two", "path": "/workspace"}),
        ("glob", {"pattern": "**/*.py", "path": "/workspace"}),
        ("execute", {"command": "rm -rf /"}),
    )
    agent = create_deep_agent(model=model, backend=sandbox)
    result = agent.invoke({"messages": [{"role": "user", "content": "go"}]})
    said = [
        message.text
        for message in result["messages"]
        if isinstance(message, ToolMessage)
    ]
    assert said[2].startswith("two\n")
    assert "lo\n" in said[2]
    assert "/workspace/src/a.py" in said[3]
    assert "/workspace/src/a.py" in said[4]
    assert "belljar: denied: " in said[5]


def test_a_long_result_is_a_file_that_the_agent_reads(sandbox: BelljarSandbox) -> None:
    model = scripted(("execute", {"command": "seq 100000"}))
    agent = create_deep_agent(model=model, backend=sandbox.with_artifacts())
    result = agent.invoke({"messages": [{"role": "user", "content": "go"}]})
    (said,) = [
        message.text
        for message in result["messages"]
        if isinstance(message, ToolMessage)
    ]
    assert "/tmp/large_tool_results/0" in said
    assert len(said) < 10_000
    assert "99999\n" in sandbox.execute("cat /tmp/large_tool_results/0").output


def test_a_timeout_says_so_and_keeps_what_was_printed(sandbox: BelljarSandbox) -> None:
    ended = sandbox.execute("echo begun; sleep 600", timeout=1)
    assert (ended.output, ended.exit_code) == (
        "begun\n\n[timed out after 1 s and was killed]",
        124,
    )


async def test_a_cancelled_command_is_killed() -> None:
    sandbox = await asyncio.to_thread(BelljarSandbox)
    try:
        command = asyncio.ensure_future(sandbox.aexecute("touch begun; sleep 600"))
        while not (await sandbox.aexecute("ls")).output:
            pass
        command.cancel()
        with pytest.raises(asyncio.CancelledError):
            await command
        left = "for each in /proc/[0-9]*/cmdline; do tr '\\0' ' ' < $each; echo; done | grep -c '^sleep'"
        while (await sandbox.aexecute(left)).output != "0\n":
            pass
    finally:
        await asyncio.to_thread(sandbox.close)


def test_each_file_has_its_own_error(sandbox: BelljarSandbox) -> None:
    sandbox.execute("mkdir -p d; touch d/file secret; chmod 0 secret")
    wrote = sandbox.upload_files(
        [
            ("/workspace/new/x", b"1"),
            ("relative", b""),
            ("/usr/x", b""),
            ("/workspace/d", b""),
        ]
    )
    assert [each.error for each in wrote][:2] == [None, "invalid_path"]
    assert all(each.error for each in wrote[2:])
    paths = [
        "/workspace/new/x",
        "/none",
        "/workspace/d",
        "/workspace/secret",
        "/workspace/d/file/x",
        "/a\0b",
    ]
    read = sandbox.download_files(paths)
    codes = [
        None,
        "file_not_found",
        "is_directory",
        "permission_denied",
        "invalid_path",
        "invalid_path",
    ]
    assert [each.error for each in read] == codes
    assert read[0].content == b"1"


def test_a_provider_makes_finds_and_deletes() -> None:
    provider = BelljarSandboxProvider()
    made = provider.get_or_create(limits={"memory": "256m"})
    made.execute("echo kept > /tmp/kept")
    found = provider.get_or_create(sandbox_id=made.id)
    assert found.execute("cat /tmp/kept").output == "kept\n"
    provider.delete(sandbox_id=made.id)
    with pytest.raises(SessionNotFound):
        provider.get_or_create(sandbox_id=made.id)
    assert made.id not in [each.id for each in belljar.sync.Session.list()]


def test_wrong_options_are_refused() -> None:
    with pytest.raises(UsageError, match="imag"):
        BelljarSandbox(imag="base")


def test_a_lost_sandbox_is_an_error() -> None:
    with BelljarSandbox() as made:
        running = made._execute("sleep 600", None)
        with pytest.raises(belljar.SandboxLost):
            made._loop.call(lost_while, made.box, running)
        with pytest.raises(belljar.SandboxLost):
            made.execute("true")


def test_an_image_without_its_programs_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(UsageError, match="no python3, GNU find, GNU grep: Deep Agents"):
        BelljarSandbox(env={"PATH": "/none"})
    assert list(tmp_path.glob("belljar-workspace-*")) == []
    with BelljarSandbox(policy="strict") as strict:
        assert strict.execute("echo on").output == "on\n"
