"""Who the sandbox's user is, for programs that ask: /etc/passwd, /etc/group and git's settings, as read-only files.

The uid is another one in each sandbox and stands in no image. Without an entry `whoami`, getpwuid, initdb, Java's
user.home and `git commit` fail. The files take the place of the image's own, whose users nobody inside can become
anyway; the numbers that programs expect by name are those that nearly every distribution has.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import NamedTuple

from belljar.layout import HOME

NAME = "sandbox"
# In git's system file, the weakest of all: a repository's own settings, and the user's, go before these.
# checkStat: owner and inode may have other numbers inside than in the index that the host's git wrote; compared, they
# would make the first `git status` read every file, and write an index that makes the host's do the same.
_GIT = f"""\
[user]
\tname = {NAME}
\temail = {NAME}@localhost
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
        return {"/etc/passwd": self.passwd, "/etc/group": self.group, "/etc/gitconfig": self.gitconfig}


def write(run_dir: Path, uid: int, gid: int) -> AccountFiles:
    """The files for one sandbox, in its own directory. Its entry comes first: it wins where a number is there twice."""
    texts = {
        "passwd": f"{NAME}:x:{uid}:{gid}:{NAME}:{HOME}:/bin/bash\n" + _shipped("passwd"),
        "group": f"{NAME}:x:{gid}:\n" + _shipped("group"),
        "gitconfig": _GIT,
    }
    for name, text in texts.items():
        descriptor = os.open(
            run_dir / name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o444)
    return AccountFiles(*(str(run_dir / name) for name in AccountFiles._fields))


@cache
def _shipped(name: str) -> str:
    return Path(__file__).with_suffix(f".{name}").read_text()
