"""Whom a command runs as: the sandbox's own user, or, where that one is root, any user of the sandbox.

The sandbox's /etc/passwd and /etc/group say who that is. They may be forged: root inside can become anyone there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from belljar.errors import Unsupported, UsageError
from belljar.records import record

if TYPE_CHECKING:
    from belljar.session.files import Files

MOST_GROUPS = 32
FILE_MAX = 1 << 20
ID_MAX = (1 << 16) - 1  # how many ids a sandbox has


@record
class Identity:
    uid: int
    gid: int
    groups: tuple[int, ...] = ()
    name: str = ""
    home: str = "/"

    @property
    def words(self) -> bytes:
        """As the init takes it."""
        return ":".join(map(str, (self.uid, self.gid, *self.groups))).encode()

    @property
    def environment(self) -> Mapping[str, str]:
        name = self.name or str(self.uid)
        return {"HOME": self.home, "USER": name, "LOGNAME": name}


async def identity(user: str | int, own: tuple[str, int], files: Files) -> Identity | None:
    """Whom `user`, a name or a number, means; None: the sandbox's own user, whose name and number are `own`."""
    wanted = str(user)
    if wanted in (own[0], str(own[1])):
        return None
    if own[1] != 0:
        raise Unsupported(
            f"user: {wanted!r}: this sandbox has only one user, {own[0]}; open it with root=True for more"
        )
    found = _entry(await _lines(files, "/etc/passwd"), wanted)
    if found is None:
        if not wanted.isdecimal() or int(wanted) > ID_MAX:
            raise UsageError(f"user: the sandbox has no user {wanted!r}")
        return Identity(int(wanted), int(wanted))
    name, _, uid, gid, _, home, _ = found
    groups = [line.split(":") for line in await _lines(files, "/etc/group")]
    member = [int(row[2]) for row in groups if len(row) == 4 and row[2].isdecimal() and name in row[3].split(",")]
    return Identity(
        _id(uid),
        _id(gid),
        tuple(id for id in member if id <= ID_MAX)[:MOST_GROUPS],
        name,
        home or "/",
    )


async def _lines(files: Files, path: str) -> list[str]:
    return (await files.read(path, length=FILE_MAX)).decode("utf-8", "replace").splitlines()


def _entry(lines: list[str], wanted: str) -> list[str] | None:
    rows = [row for line in lines if len(row := line.split(":")) == 7]
    return next((row for row in rows if row[0] == wanted or row[2] == wanted), None)


def _id(text: str) -> int:
    if not text.isdecimal() or int(text) > ID_MAX:
        raise UsageError(f"user: {text!r} is not an id of a user or group of this sandbox")
    return int(text)
