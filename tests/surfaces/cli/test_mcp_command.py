"""`belljar mcp`: its options and its requirements."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from tests.surfaces.mcp_client import COMMAND
from tests.surfaces.real_terminal import Terminal

from belljar.surfaces.cli.main import main
from belljar.tools.registry import FAMILIES, chosen_families


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tools", "bash,fish"], "unknown: fish; choose from"),
        (["--tools", "fish"], ", all"),
        (["--tools", "bash,staged"], "--staged"),
        (["--http", "127.0.0.1:0", "--token", "abc"], "at least 16 characters"),
        (["--policy", "no-such-policy"], "no-such-policy"),
        (["--workspace", "/no/such/directory"], "/no/such/directory"),
        (["--http", "0.0.0.0:8808"], "loopback"),
        (["--http", "127.0.0.1:99999"], "not an address"),
        (["--memory", "12 bananas"], "12 bananas"),
        (["--http", "127.0.0.1:0", "--token", "two words"], "token"),
    ],
)
def test_a_bad_option_is_one_line_and_status_2(
    workspace: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["mcp", "--workspace", str(workspace), *options]) == 2
    written = capsys.readouterr()
    assert written.out == ""
    assert said in written.err
    assert written.err.count("\n") == 1


def test_all_tools_includes_every_family_and_the_staged_one_only_when_staged() -> None:
    assert chosen_families("all") == (*FAMILIES, "files")
    assert (
        chosen_families("all", staged=True)
        == chosen_families("bash,all", staged=True)
        == (*FAMILIES, "files", "staged")
    )
    assert chosen_families(None) == ("bash",)
    assert chosen_families("staged,files", staged=True) == ("staged", "files")


def test_a_missing_sdk_is_named_with_what_to_install(workspace: Path) -> None:
    without = "import sys; sys.modules['mcp_types'] = None; from belljar.surfaces.cli.main import main; sys.exit(main())"
    ended = subprocess.run(
        [COMMAND[0], "-c", without, "mcp", "--workspace", str(workspace)],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ},
    )  # fmt: skip
    assert ended.returncode == 2
    assert "make setup" in ended.stderr, "this is a checkout"


def test_on_a_terminal_the_server_says_that_it_waits_for_a_client(
    workspace: Path,
) -> None:
    terminal = Terminal.belljar("mcp", "--workspace", workspace)
    terminal.until("waiting for an MCP client on stdin")
    terminal.type("\x03")
    assert terminal.status() == 128 + signal.SIGINT
