"""A command that ran into a wall is told which, and what helps."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.session.trusting import trusting

from belljar import Limits, Session, ToolRegistry


@pytest.fixture(scope="module")
async def box(place: Path, base_image: str) -> AsyncIterator[Session]:
    async with Session(place, limits=Limits(memory="64m", tmp="1m", home="1m", fsize="1m", pids=24)) as session:
        yield session


WALLS = {
    "python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'": "--network full",
    "curl -s https://example.com": "--allow HOST",
    "git clone https://example.com/x 2>&1": "--network full",
    "head -c 900k /dev/zero > /tmp/a; head -c 900k /dev/zero > /tmp/b": "Limits(tmp",
    "for i in $(seq 60); do sleep 5 & done; wait": "--pids",
    "head -c 2M /dev/zero > large": "Limits(fsize",
    "touch /usr/new": "read-only",
    "npm install": "--image node",
    "gcc x.c": "--image python",
    "cmake .": "--image dev",
    "python3 -m pip install x": "--image python",
    "pytest -q": "--image python",
    "python3 -m pytest": "--image python",
    "htop": "no htop",
    "dpkg --configure -a": "ordinary user",
    "python3 -c 'b = bytearray(500 << 20)'": "--memory",
    "python3 -c 'b = bytearray(500 << 20)'; echo went on; false": "--memory",
}


@pytest.mark.parametrize("command", WALLS)
async def test_the_option_that_helps_is_named(box: Session, command: str) -> None:
    with trusting(box):  # some of these the policy refuses; it cannot see all that are like them
        result = await box.run(command, timeout=60)
    assert any(WALLS[command] in hint for hint in result.hints), (result.hints, result.output)
    assert result.as_dict()["hints"] == list(result.hints)


async def test_the_persistent_shell_names_a_child_that_ran_out_of_memory(box: Session) -> None:
    result = await box.persistent.run("python3 -c 'b = bytearray(500 << 20)'")
    assert (result.cause, result.exit_code, result.oom_kills) == ("out_of_memory", 137, 1)
    assert any("--memory" in hint for hint in result.hints)
    assert (await box.persistent.run("false")).hints == ()
    result = await box.persistent.run("python3 -c 'b = bytearray(500 << 20)'; true")
    assert (result.cause, result.oom_kills) == ("exited", 1), "told in its own call, not in the next"
    assert (await box.persistent.run("false")).oom_kills == 0


@pytest.mark.parametrize(
    "command", ["true", "exit 3", "echo 'No space left on device'", "ls nosuch", "grep x /dev/null"]
)
async def test_an_everyday_result_has_none(box: Session, command: str) -> None:
    assert (await box.run(command)).hints == ()


async def test_tools_tell_them_to_the_model(box: Session) -> None:
    tools = ToolRegistry(box)
    for name, params in {
        "Bash": {"command": "npm install"}, "terminal-run": {"command": "npm install"},
        "shell_execute": {"command": "npm install"}, "run_command": {"command": "npm install; false"},
    }.items():  # fmt: skip
        result = await tools.call(name, params)
        assert "--image node" in result.text, name
        assert "--image node" in str(result.as_dict()), name
