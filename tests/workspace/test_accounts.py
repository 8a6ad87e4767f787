"""Programs find the sandbox's user by name and by id."""

import subprocess
from pathlib import Path

from belljar.workspace import accounts


def test_the_user_has_an_entry_that_wins_over_every_other(tmp_path: Path) -> None:
    files = accounts.write(tmp_path, 33, 33)
    first = [Path(path).read_text().splitlines()[0] for path in (files.passwd, files.group)]
    assert first == ["sandbox:x:33:33:sandbox:/home/sandbox:/bin/bash", "sandbox:x:33:"]
    for name in files.targets.values():
        assert Path(name).stat().st_mode & 0o777 == 0o444


def test_git_takes_its_settings(tmp_path: Path) -> None:
    files = accounts.write(tmp_path, 1000, 1000)
    argv = ["git", "config", "--file", files.gitconfig, "user.email"]
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == "sandbox@localhost\n"
