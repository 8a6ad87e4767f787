"""The sandbox's user account: /etc/passwd, /etc/group and git's settings, as read-only files.

Each sandbox has another uid, which no image knows. Without an entry `whoami`, getpwuid, initdb, Java's user.home and
`git commit` fail. The files replace the image's own, whose users nobody inside can become anyway; the other entries are
those of nearly every distribution.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

# In git's system file: the settings of the repository and of the user override these.
# checkStat: owners and inodes may differ from those in the index that the host's git wrote. If git compared them, the
# first `git status` would read every file, and write an index that makes the host's git do the same.
_GIT = """\
[user]
\tname = "{author}"
\temail = "{email}"
[safe]
\tdirectory = *
[core]
\tcheckStat = minimal
"""


class AccountFiles(NamedTuple):
    """Paths on the host."""

    passwd: str
    group: str
    gitconfig: str

    @property
    def targets(self) -> dict[str, str]:
        """Path inside → path on the host."""
        return {
            "/etc/passwd": self.passwd,
            "/etc/group": self.group,
            "/etc/gitconfig": self.gitconfig,
        }


def write(
    run_dir: Path, uid: int, gid: int, name: str = "sandbox", author: str = ""
) -> AccountFiles:
    """Write the files of one sandbox into its directory. Its own entry comes first, so it wins over others. `author`:
    `NAME <EMAIL>`, who commits are by."""
    by, _, email = (
        (author or f"{name} <{name}@localhost>").removesuffix(">").rpartition(" <")
    )
    texts = {
        "passwd": f"{name}:x:{uid}:{gid}:{name}:/home/{name}:/bin/bash\n"
        + _shipped("passwd"),
        "group": f"{name}:x:{gid}:\n" + _shipped("group"),
        "gitconfig": _GIT.format(author=_escaped(by), email=_escaped(email)),
    }
    for file_name, text in texts.items():
        descriptor = os.open(
            run_dir / file_name,
            os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o444)
    return AccountFiles(*(str(run_dir / name) for name in AccountFiles._fields))


def _escaped(text: str) -> str:
    """For a value in quotes in git's settings."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


@cache
def _shipped(name: str) -> str:
    return Path(__file__).with_suffix(f".{name}").read_text()
