"""After a command hit a restriction, its result names the restriction and what helps."""

from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.owners import give
from tests.session.trusting import trusting

from belljar import Allow, Limits, Session, ToolRegistry
from belljar.errors import CommandNotFound
from belljar.session.hints import Reader, _door, _larger


@pytest.fixture(scope="module")
async def box(place: Path, base_image: str) -> AsyncIterator[Session]:
    async with Session(
        place, limits=Limits(memory="64m", tmp="1m", home="1m", fsize="1m", pids=24)
    ) as session:
        yield session


NETWORK = (
    "network=belljar.Allow(",
    "--allow HOST, or use --network full",
    "ask the person to open a door",
)
MEMORY = (
    "Limits(memory='2g')",
    "with --memory 2g",
    "do less at once (fewer jobs), or ask",
)
PYTHON = ("image='python'", "--image python", "ask the person for --image python")
WALLS = {
    "python3 -c 'import socket; socket.getaddrinfo(\"example.com\", 80)'": NETWORK,
    "curl -s https://example.com": NETWORK,
    "git clone https://example.com/x 2>&1": NETWORK,
    "echo 'ERROR: https://pypi.org/simple: Temporary failure in name resolution' >&2; exit 1":
        ("Allow(presets=['python'])", "--allow-preset python", "ask the person to let them in: --allow-preset python"),
    "curl -sS http://localhost:9/": ("localhost is the sandbox itself",) * 3,
    "echo \"HTTPConnectionPool(host='127.0.0.1', port=9): Failed to establish a new connection\"; false":
        ("localhost is the sandbox itself",) * 3,
    "head -c 900k /dev/zero > /tmp/a; head -c 900k /dev/zero > /tmp/b":
        ("Limits(disk='8g')", "--disk 8g (as root) or with --tmp and --home", "delete what is not needed"),
    "for i in $(seq 60); do sleep 5 & done; wait": ("Limits(pids=4096)", "--pids 4096", "start fewer at once"),
    "head -c 2M /dev/zero > large": ("Limits(fsize='32g')", "--fsize 32g", "split the file"),
    "echo 'E: Unable to locate package cowsay' >&2; exit 100": ("run `apt-get update` first",) * 3,
    "touch /usr/new": ("read-only.",) * 3,
    "npm install": ("image='node'", "--image node", "ask the person for --image node"),
    "gcc x.c": PYTHON,
    "cmake .": ("image='dev'", "--image dev", "ask the person for --image dev"),
    "python3 -m pip install x": PYTHON,
    "pytest -q": PYTHON,
    "python3 -m pytest": PYTHON,
    "emacs": ("no emacs; use an image", "no emacs; use an image", "no emacs; do it with what is here"),
    "dpkg --configure -a": ("root=True with engine='oci'", "--root with --engine oci", "into the home directory"),
    "python3 -c 'b = bytearray(500 << 20)'": MEMORY,
    "python3 -c 'b = bytearray(500 << 20)'; echo went on; false": MEMORY,
}  # fmt: skip
READERS: tuple[Reader, ...] = ("python", "cli", "agent")


@pytest.mark.parametrize("command", WALLS)
async def test_each_reader_gets_the_hint_in_its_own_words(
    box: Session, command: str
) -> None:
    with trusting(
        box
    ):  # skip the policy: it would refuse some of these, but cannot recognise all such commands
        result = await box.run(command, timeout=60)
    for reader, words in zip(READERS, WALLS[command], strict=True):
        hints = result.hints_for(reader)
        assert any(words in hint for hint in hints), (reader, hints, result.output)
        assert reader == "cli" or not any(" with --" in hint for hint in hints)
    assert result.hints == result.hints_for("python")
    assert result.as_dict()["hints"] == list(result.hints)


def test_a_suggested_limit_is_about_twice_the_old_one() -> None:
    assert [_larger(mib << 20, 2) for mib in (512, 1024, 3013, 8192)] == [
        "2g",
        "2g",
        "6g",
        "16g",
    ]


async def test_a_hint_names_sizes_only_where_they_are_known(
    box: Session, place: Path
) -> None:
    full = "head -c 9M /dev/zero > /tmp/full; rm /tmp/full; false"
    assert "(1 and 1 MiB)" in (await box.run(full)).hints[0]
    async with Session(
        place, limits=Limits(memory="64m")
    ) as other:  # has a volume where possible
        said = (await other.run("echo 'No space left on device'; false")).hints[0]
    assert "are limited; raise" in said


async def test_a_word_that_begins_with_punctuation_is_no_program_of_an_image(
    box: Session,
) -> None:
    assert (await box.run(":apply; false")).hints == ()
    assert (await box.run(":apply")).hints == ()


async def test_safe_mode_names_its_own_commands(box: Session) -> None:
    result = await box.run("curl -s https://example.com")
    assert result.hints_for("prompt") == (
        "The sandbox has no network; open a door for one host with :allow HOST.",
    )


DOOR = {
    "curl -sS https://nosuch.invalid": "nosuch.invalid is allowed but has no address (Name or service not known); "
    "check the name, or this machine's DNS.",
    "curl -fsS http://127.0.0.1:9/ --noproxy ''":
        "127.0.0.1 is allowed but cannot be reached on port 9: Connection refused.",
    "curl -sS https://other.invalid": "The network door refused other.invalid:443; allow a host with --allow HOST.",
    "curl -fsS http://127.0.0.1:9/ --noproxy '' -H 'Host: x.invalid'":
        "The network door refused 127.0.0.1: the Host header names another host than the request.",
}  # fmt: skip


def test_a_host_that_is_allowed_needs_its_address() -> None:
    reason = "b.test leads to a private address; the name alone does not allow that: `--allow b.test=ADDRESS` would"
    result: Any = SimpleNamespace(
        network=[
            {"host": "b.test", "port": 443, "verdict": "refused", "reason": reason}
        ]
    )
    assert list(_door(result)) == [
        (f"The network door refused b.test: {reason.removeprefix('b.test ')}", "", "")
    ]


@pytest.fixture(scope="module")
async def box_with_a_door(place: Path, base_image: str) -> AsyncIterator[Session]:
    async with Session(
        place, network=Allow("nosuch.invalid", "127.0.0.1:9")
    ) as session:
        yield session


@pytest.mark.parametrize("command", DOOR)
async def test_the_network_hint_fits_the_reason_of_the_failure(
    box_with_a_door: Session, command: str
) -> None:
    result = await box_with_a_door.run(command, timeout=60)
    assert result.hints_for("cli") == (DOOR[command],), (result.output, result.network)


@pytest.mark.parametrize(
    "command",
    [
        "true",
        "exit 3",
        "echo 'No space left on device'",
        "ls nosuch",
        "grep x /dev/null",
    ],
)
async def test_an_everyday_result_has_no_hint(box: Session, command: str) -> None:
    assert (await box.run(command)).hints == ()


async def test_tool_results_contain_the_hints(box: Session) -> None:
    tools = ToolRegistry(box)
    for name, params in {
        "Bash": {"command": "npm install"}, "terminal-run": {"command": "npm install"},
        "shell_execute": {"command": "npm install"}, "run_command": {"command": "npm install; false"},
    }.items():  # fmt: skip
        result = await tools.call(name, params)
        assert "--image node" in result.text, name
        assert "--image node" in str(result.as_dict()), name


async def test_a_missing_program_that_another_image_has_is_named_with_that_image(
    box: Session,
) -> None:
    for run in (box.run, box.start):
        with pytest.raises(
            CommandNotFound,
            match=r"^Command not found: pytest; the image 'base' has none, 'python' has",
        ):
            await run(["pytest", "-q"])
    with pytest.raises(CommandNotFound, match=r"^Command not found: nosuch$"):
        await box.run(["nosuch"])


async def test_a_failed_rename_of_a_directory_in_a_staged_session_gives_a_hint(
    workspace: Path,
) -> None:
    (workspace / "dir").mkdir()
    give(workspace / "dir")
    rename = 'python3 -c \'import os; os.rename("dir", "new")\''
    async with Session(workspace, changes="staged") as box:
        result = await box.run(rename)
        assert [hint for hint in result.hints_for("agent") if "use `mv`" in hint], (
            result.output
        )
        assert (
            await box.run("mv dir new && mkdir own && mv own other && ls")
        ).stdout == "new\nother\n"
        await box.discard()
