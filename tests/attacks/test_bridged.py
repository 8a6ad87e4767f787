"""A bridged link has an end inside the sandbox. Commands can neither cut it nor use it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.attacks.conftest import Attacker

import belljar
from belljar import host

pytestmark = pytest.mark.bridge


@pytest.fixture
def _bridged(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("BELLJAR_LINK", "bridge")
    host.default().forget()
    yield
    host.default().forget()


@pytest.fixture
async def bridged(
    _bridged: None, base_image: str, root_workspace: Path
) -> AsyncIterator[Attacker]:
    async with belljar.Session(
        workspace=root_workspace, policy="permissive", approve=lambda verdict: True
    ) as box:
        yield Attacker(box, root_workspace)


async def test_the_token_cannot_be_found_inside(bridged: Attacker) -> None:
    result = await bridged.bash(
        "env; for p in /proc/[0-9]*; do cat $p/environ $p/cmdline; done; ls /proc/*/fd"
    )
    assert "BELLJAR" not in result.stdout
    assert "--bridge" in result.stdout, "the bridge is there to be attacked"


async def test_no_command_can_cut_the_link(bridged: Attacker) -> None:
    """The attack spares its own shell, which would otherwise stop before it reaches the last process."""
    every = "for p in /proc/[0-9]*; do p=${p#/proc/}; [ $p = $$ ] || { kill -STOP $p; kill -KILL $p; }; done"
    await bridged.bash(f"kill -KILL -1; {every}")
    assert (await bridged.bash("echo usable")).stdout == "usable\n"


async def test_a_connection_without_the_token_is_closed(bridged: Attacker) -> None:
    script = """
import socket, struct
def call(*frames):
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(5)
    s.connect("\\0belljar")
    try:
        s.sendall(b"".join(frames))
        print(s.recv(100))
    except ConnectionError:
        print(b"")
def frame(kind, payload): return struct.pack("<IBBHQ", len(payload), kind, 0, 0, 0) + payload
call(frame(1, struct.pack("<I", 1) + b"0" * 64))
call(frame(14, b""))
"""
    result = await bridged.python(script)
    assert result.stdout == "b''\nb''\n", result.stderr
    assert (await bridged.bash("echo usable")).stdout == "usable\n"


async def test_no_process_of_a_bridged_sandbox_is_root_or_has_a_capability(
    bridged: Attacker,
) -> None:
    result = await bridged.bash(
        "cat /proc/[0-9]*/status | grep -E '^(Uid|CapEff|CapBnd|Seccomp|NoNewPrivs):'"
    )
    rows = [line.split() for line in result.stdout.splitlines()]
    assert {row[1] for row in rows if row[0] == "Uid:"} == {
        str(bridged.box.workspace.identity.uid),
        "65533",
    }
    assert {int(row[1], 16) for row in rows if row[0].startswith("Cap")} == {0}
    assert {
        (row[0], row[1]) for row in rows if row[0] in ("Seccomp:", "NoNewPrivs:")
    } == {
        ("Seccomp:", "2"),
        ("NoNewPrivs:", "1"),
    }
