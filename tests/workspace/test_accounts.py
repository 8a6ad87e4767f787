"""Programs find the sandbox's user by name and by id."""

import subprocess
from pathlib import Path

import pytest

import belljar
from belljar.errors import UsageError
from belljar.workspace import accounts


def test_the_user_has_an_entry_that_wins_over_every_other(tmp_path: Path) -> None:
    files = accounts.write(tmp_path, 33, 33)
    first = [
        Path(path).read_text().splitlines()[0] for path in (files.passwd, files.group)
    ]
    assert first == ["sandbox:x:33:33:sandbox:/home/sandbox:/bin/bash", "sandbox:x:33:"]
    for name in files.targets.values():
        assert Path(name).stat().st_mode & 0o777 == 0o444


def test_git_takes_its_settings(tmp_path: Path) -> None:
    files = accounts.write(tmp_path, 1000, 1000)
    argv = ["git", "config", "--file", files.gitconfig, "user.email"]
    assert (
        subprocess.run(argv, capture_output=True, text=True, check=True).stdout
        == "sandbox@localhost\n"
    )


@pytest.mark.engine
async def test_the_sandbox_s_user_has_the_name_and_home_that_account_says(
    workspace: Path,
) -> None:
    async with belljar.Session(workspace, account="user") as box:
        result = await box.run(
            'whoami; echo ~ "$HOME" "$USER" "$LOGNAME"; cd && touch file && pwd; git config user.email'
        )
    assert (
        result.stdout
        == "user\n/home/user /home/user user user\n/home/user\nuser@localhost\n"
    )


@pytest.mark.parametrize(
    "name", ["root", "nobody", "", "Ana", "../x", "a b", "x" * 33, None, 7]
)
def test_an_account_needs_a_name_of_its_own(workspace: Path, name: object) -> None:
    with pytest.raises(UsageError, match="account: "):
        belljar.Session(workspace, account=name)
