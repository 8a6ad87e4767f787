"""The network door, opened from each surface."""

from __future__ import annotations

from pathlib import Path

from tests.surfaces.invoking import belljar
from tests.surfaces.mcp_client import client
from tests.surfaces.real_terminal import Terminal


def test_run_allows_a_host_and_a_preset(
    base_image: str, workspace: Path, tmp_path: Path, greeting_port: int, fetch: str
) -> None:
    """A preset comes from this machine's own clients; here from git's settings."""
    place = f"127.0.0.1:{greeting_port}"
    (tmp_path / "gitconfig").write_text(f'[http "http://{place}/"]\nsslVerify = true\n')
    git = {"GIT_CONFIG_GLOBAL": str(tmp_path / "gitconfig")}
    explained = belljar("network", "explain", "git", "--json", env=git).json
    assert {"preset": "git", "host": place, "why": "git's http settings"} in explained
    for option in (["--allow", place], ["--allow-preset", "git"]):
        answer = belljar(
            "run", "--workspace", workspace, *option, "--", "bash", "-c", fetch, env=git
        )
        assert answer.stdout == "hello\n", answer.stderr
    assert (
        "--allow 127.0.0.1"
        in belljar(
            "run",
            "--workspace",
            workspace,
            "--allow",
            "a.example",
            "--",
            "bash",
            "-c",
            fetch,
        ).stdout
    )


def test_safe_mode_can_allow_a_host_later(
    base_image: str, workspace: Path, greeting_port: int, fetch: str
) -> None:
    terminal = Terminal.belljar("shell", "--workspace", workspace)
    terminal.line(f":allow 127.0.0.1:{greeting_port}")
    terminal.until("can be reached from now on")
    terminal.line(fetch)
    terminal.until("hello\r\n")
    terminal.line(":allow http://x")
    terminal.until("leave out the scheme")
    terminal.line(":quit")
    assert terminal.status() == 0


async def test_an_mcp_server_allows_a_host_for_its_tools(
    base_image: str, workspace: Path, greeting_port: int, fetch: str
) -> None:
    async with client(
        workspace, "--allow", f"127.0.0.1:{greeting_port}", era="auto"
    ) as mcp:
        assert "hello" in str((await mcp.call_tool("Bash", {"command": fetch})).content)
        refused = await mcp.call_tool(
            "Bash", {"command": fetch.replace("127.0.0.1", "evil.test")}
        )
        assert "evil.test" in str(refused.content)
