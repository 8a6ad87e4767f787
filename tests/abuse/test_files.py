"""Commands that attack through the workspace, which the host and the sandbox share."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
from tests.abuse.conftest import PROMPT, Victim
from tests.owners import deep_directory, give

import belljar
from belljar.errors import CommandError, WorkingDirectoryError

# The working directory.


async def test_a_command_survives_the_deletion_of_its_working_directory(
    victim: Victim,
) -> None:
    (victim.workspace / "here").mkdir(mode=0o777)
    result = await victim.bash(
        "rmdir /workspace/here; pwd; echo still here; ls", cwd="here"
    )
    assert "still here\n" in result.stdout
    with pytest.raises(WorkingDirectoryError):
        await victim.run("pwd", cwd="here")


async def test_a_working_directory_that_is_swapped_for_a_link_leads_nowhere_outside(
    victim: Victim,
) -> None:
    """A link to / and a directory replace each other in turn. Commands run there or are refused; none sees the host."""
    secret = Path("/tmp", f"belljar-secret-{os.getpid()}")
    secret.write_text("the host's own")
    swap = victim.script("""
mkdir -p real; cd /workspace
while :; do ln -sfn / link; rm -f link; mkdir link; rmdir link; ln -sfn real link; rm -f link; done
""")
    shell = await victim.box.start(["bash", swap])
    try:
        outcomes = {await _try_there(victim, secret.name) for _ in range(150)}
    finally:
        await shell.kill(0)
        await victim.box.cleanup()
        secret.unlink()
    assert outcomes <= {"refused", "absent"}


async def _try_there(victim: Victim, name: str) -> str:
    try:
        result = await victim.run(["cat", f"tmp/{name}"], cwd="link")
    except CommandError:
        return "refused"
    return "absent" if result.exit_code else "BREACH"


@pytest.mark.parametrize("part", ["sub", "sub/deeper"])
async def test_a_subdirectory_swapped_for_a_link_is_no_working_directory(
    victim: Victim, part: str
) -> None:
    (victim.workspace / "sub" / "deeper").mkdir(parents=True)
    result = await victim.bash(
        f"mv {part} moved; ln -s /etc {part}; ls -d {part}; cat {part}/shadow"
    )
    assert result.exit_code != 0
    with pytest.raises(WorkingDirectoryError):
        await victim.run("pwd", cwd=part)
    assert (await victim.run("pwd")).stdout == "/workspace\n"


async def test_a_workspace_that_is_moved_away_stays_the_same_directory(
    base_image: str, workspace: Path
) -> None:
    async with belljar.Session(workspace) as box:
        moved = workspace.with_name("moved")
        workspace.rename(moved)
        workspace.symlink_to("/etc")
        assert (await box.run("touch mine; ls -A")).stdout == "mine\n"
        assert (moved / "mine").exists()
        workspace.unlink()


# Files that the host may run.


PLANTS = {
    ".git/hooks/pre-commit": "mkdir -p .git/hooks; echo evil > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
    ".git/config": "git init -q . && git config core.fsmonitor evil",
    "evil.git/hooks/pre-receive": "git init -q --bare evil.git; echo evil > evil.git/hooks/pre-receive",
    "bare/config": "git init -q --bare bare; cd bare; git config core.worktree ..; git config core.fsmonitor evil",
    ".envrc": "echo evil > .envrc",
    ".vscode/tasks.json": 'mkdir .vscode; echo \'{"runOptions": {"runOn": "folderOpen"}}\' > .vscode/tasks.json',
    ".claude/settings.json": "mkdir .claude; echo '{\"hooks\": {}}' > .claude/settings.json",
    ".mcp.json": "echo '{}' > .mcp.json",
    ".husky/pre-push": "mkdir .husky; echo evil > .husky/pre-push",
    ".git": "mkdir elsewhere; ln -s elsewhere .git",
    ".vscode": "ln -s elsewhere .vscode",
    ".devcontainer/devcontainer.json": "mkdir .devcontainer; echo initializeCommand > .devcontainer/devcontainer.json",
}


@pytest.mark.parametrize("name", PLANTS)
async def test_a_planted_file_that_the_host_may_run_is_in_the_result(
    victim: Victim, name: str
) -> None:
    result = await victim.bash(PLANTS[name])
    assert result.ok, result.stderr
    assert name in result.runs_later
    assert {each.partition("/")[0] for each in result.runs_later} == {
        name.partition("/")[0]
    }
    assert (await victim.bash("echo innocent")).runs_later == ()


async def test_a_hook_moved_in_with_its_directory_is_in_the_result(
    victim: Victim,
) -> None:
    await victim.bash(
        "mkdir -p prepared/hooks; echo evil > prepared/hooks/post-checkout"
    )
    assert (await victim.bash("mv prepared .git")).runs_later == (
        ".git/hooks/post-checkout",
    )


async def test_a_changed_hook_with_a_forged_date_is_in_the_result(
    victim: Victim,
) -> None:
    await victim.bash("mkdir -p .git/hooks; echo good > .git/hooks/pre-commit")
    text = "f=.git/hooks/pre-commit; touch -r $f /tmp/when; echo evil > $f; touch -r /tmp/when $f"
    assert (await victim.bash(text)).runs_later == (".git/hooks/pre-commit",)


async def test_a_file_planted_by_a_background_shell_is_in_the_next_result(
    victim: Victim,
) -> None:
    shell = await victim.box.start(
        ["bash", victim.script("read -r; echo evil > .envrc; echo done; sleep 600")]
    )
    await victim.run("true")
    await shell.write("go\n")
    with anyio.fail_after(PROMPT):
        while not (await shell.read(wait=1)).stdout:
            pass
    assert (await victim.run("true")).runs_later == (".envrc",)
    await shell.kill(0)
    await victim.box.cleanup()


async def test_everyday_git_commands_are_not_reported_as_run_files(
    victim: Victim,
) -> None:
    await victim.bash(
        "git init -q . && git config user.name me && git config user.email me@here"
    )
    everyday = "echo hi > file; git add file; git commit -qm hi; git remote add origin there:x; git checkout -qb other"
    assert (await victim.bash(everyday)).runs_later == ()


# Sockets, FIFOs and other things that are not plain files.


async def test_fifos_sockets_and_link_loops_in_the_workspace_hang_nothing(
    victim: Victim,
) -> None:
    result = await victim.python("""
import os, socket
for name in (".envrc", ".mcp.json", "fifo"):
    os.mkfifo(name)
os.makedirs(".git/hooks")
os.mkfifo(".git/config")
os.mkfifo(".git/hooks/pre-commit")
socket.socket(socket.AF_UNIX).bind("sock")
os.symlink("loop", "loop")
os.symlink("/dev/zero", "zero")
for device in ((1, 3), (8, 0)):
    try:
        os.mknod("device", 0o20666, os.makedev(*device))
        print("BREACH")
    except PermissionError:
        pass
""")  # fmt: skip
    assert (result.cause, result.stdout) == ("exited", "")
    assert ".git/config" in result.runs_later
    for cwd in ("fifo", "sock", "loop", "zero"):
        with pytest.raises(WorkingDirectoryError):
            await victim.run("true", cwd=cwd)
    assert stat.S_ISSOCK((victim.workspace / "sock").lstat().st_mode)


async def test_a_socket_that_the_host_puts_into_the_workspace_can_be_reached(
    victim: Victim,
) -> None:
    """A known limit: a command can connect to a socket that the host itself puts into the workspace."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(victim.workspace / "host.sock"))
    listener.listen()
    os.chmod(victim.workspace / "host.sock", 0o666)
    result = await victim.python(
        "import socket; socket.socket(socket.AF_UNIX).connect('host.sock'); print('open')"
    )
    listener.close()
    assert result.stdout == "open\n"


@pytest.fixture
def bottomless() -> Iterator[Path]:
    with deep_directory() as path:
        give(path)
        yield path


async def test_a_tree_3000_directories_deep_does_no_harm(
    base_image: str, bottomless: Path
) -> None:
    text = "import os\nfor _ in range(3000): os.mkdir('deep'); os.chdir('deep')\nprint('dug')"
    (bottomless / "dig.py").write_text(text)
    async with belljar.Session(bottomless) as box:
        result = await box.run(["python3", "dig.py"], timeout=60)
    assert result.cause == "exited"
