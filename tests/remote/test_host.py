"""`belljar.connect`, and everything that takes a host: `run`, `belljar.sync`, adapters."""

from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest
from tests.surfaces.http.serving import KEY, Serving

import belljar
from belljar.adapters import boxes
from belljar.errors import Unsupported, UsageError, WorkspaceError
from belljar.options import PUBLIC, SandboxOptions
from belljar.remote import box
from belljar.remote.host import RemoteHost
from belljar.remote.wire import Wire, checked_url


@pytest.mark.parametrize(
    "url",
    [
        "http://belljar.example.com",
        "ftp://x",
        "https://user@x",
        "https://",
        "",
        "https://x?a=b",
        "http://10.0.0.1",
    ],
)
def test_an_address_that_would_show_the_key_is_refused(url: str) -> None:
    with pytest.raises(UsageError):
        belljar.connect(url, key=KEY)


def test_an_address_may_have_a_path_and_needs_no_scheme() -> None:
    assert (
        checked_url("belljar.example.com/sandboxes/")
        == "https://belljar.example.com/sandboxes"
    )
    assert checked_url("http://127.0.0.1:8808") == "http://127.0.0.1:8808"


def test_the_key_is_needed_and_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BELLJAR_KEY", raising=False)
    with pytest.raises(UsageError, match="BELLJAR_KEY"):
        belljar.connect("https://x.example")
    monkeypatch.setenv("BELLJAR_KEY", KEY)
    assert KEY not in repr(belljar.connect("https://x.example"))
    with pytest.raises(UsageError) as wrong:
        belljar.connect("https://x.example", key=f"{KEY}\n")
    assert KEY not in str(wrong.value)


def test_no_option_is_dropped_without_a_word() -> None:
    """A new one is sent, refused, or named among those that this side carries out."""
    told = {*box._SENT, *box._IN_ITS_WORDS, *box._NOT_SENT, *box._OF_THIS_SIDE}
    assert told == PUBLIC


@pytest.mark.parametrize("option", [{"timezone": "UTC"}, {"on_close": "apply"}])
def test_what_a_service_cannot_do_is_refused(option: dict[str, str]) -> None:
    options = SandboxOptions(changes="staged", **option)  # type: ignore[arg-type]
    with pytest.raises(Unsupported, match=next(iter(option))):
        box.body_of(options, None, 60.0)


def test_an_unknown_option_is_named(tmp_path: Path) -> None:
    far = belljar.connect("https://x.example", key=KEY)
    with pytest.raises(UsageError, match="imag"):
        belljar.Session(host=far, imag="base")  # type: ignore[call-arg]
    with pytest.raises(UsageError, match="audit"):
        belljar.Session(host=far, engine="oci")
    with pytest.raises(WorkspaceError):
        belljar.Session(tmp_path / "missing", host=far)


@pytest.mark.engine
async def test_run_takes_a_far_host(far: RemoteHost, workspace: Path) -> None:
    (workspace / "here").write_text("")
    assert (await belljar.run("ls -A; pwd", host=far)).stdout == "/workspace\n"
    assert (await belljar.run("ls", workspace, host=far)).stdout == "here\n"


@pytest.mark.engine
async def test_a_session_is_made_again_from_its_options(far: RemoteHost) -> None:
    async with belljar.Session(
        host=far, env={"A": "1"}, limits=belljar.Limits(memory="256m")
    ) as box:
        options = box.options
    async with belljar.Session.of(options, host=far) as box:
        assert (await box.run("echo $A")).stdout == "1\n"
        assert box.limits.memory == 256 << 20


@pytest.mark.engine
async def test_adapters_open_sessions_at_an_address(
    server: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BELLJAR_KEY", KEY)
    box = await boxes.opened(host=server.url, policy="none", limits={"memory": "256m"})
    assert (await box.run("ls -A; echo made > file; cat file")).stdout == "made\n"
    await boxes.closed(box)
    assert not box.is_open
    assert box.id not in [
        kept.id for kept in await belljar.Session.list(host=belljar.connect(server.url))
    ]


@pytest.mark.engine
def test_blocking_code_has_the_same_session(far: RemoteHost, workspace: Path) -> None:
    (workspace / "here").write_text("")
    with belljar.sync.Session(workspace, host=far) as box:
        assert box.run("ls").stdout == "here\n"
        with box.stream("seq 3") as events:
            assert [type(event).__name__ for event in events][-1] == "Ended"
        shell = box.start("echo tick")
        assert shell.wait(timeout=60).stdout == "tick\n"
        box.files.write("a", "b")
        assert [change.path for change in box.changes()] == ["a"]
        assert [each.id for each in box.refresh()] == [shell.id]
        assert box.persistent.run("pwd").stdout == "/workspace\n"
    again = belljar.sync.run("echo hi", host=far)
    assert again.stdout == "hi\n"
    with belljar.sync.Session(host=far, keep=True, lease=600.0) as kept:
        id = kept.id
    assert id in [each.id for each in belljar.sync.Session.list(host=far)]
    belljar.sync.attach(id, host=far).stop()


@pytest.mark.engine
async def test_the_tools_run_at_the_service(far: RemoteHost) -> None:
    async with belljar.Session(host=far) as box:
        tools = belljar.ToolRegistry(box)
        answer = await tools.call(
            "Bash", {"command": "cd /tmp && echo hi > x; cat x", "description": "test"}
        )
        assert "hi" in str(answer)
        assert (
            "denied"
            in str(
                await tools.call("Bash", {"command": "rm -rf /", "description": "no"})
            ).lower()
        )
        for name, params in (
            ("execute_command", {"command": "echo ec"}),
            ("shell_execute", {"command": "echo se"}),
            ("run_command", {"command": "echo rc"}),
            ("terminal-run", {"command": "echo tr"}),
        ):
            with anyio.fail_after(60):
                assert params["command"].split()[-1] in str(
                    await tools.call(name, params)
                )


async def test_an_answer_that_breaks_off_is_asked_for_again() -> None:
    """A service that is killed between an answer's head and its body."""
    asked: list[bytes] = []

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n"
        )
        if len(asked) > 1:
            writer.write(b"{}")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    wire = Wire(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "bj_key")
    try:
        assert await wire.post("/v1/sessions", {}) == {}
    finally:
        await wire.close()
        server.close()
    keys = {
        line
        for each in asked
        for line in each.lower().splitlines()
        if line.startswith(b"idempotency-key")
    }
    assert (len(asked), len(keys)) == (2, 1)
