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


async def identity(
    user: str | int, own: tuple[str, int], files: Files
) -> Identity | None:
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
        if (number := _number(wanted)) is None:
            raise UsageError(f"user: the sandbox has no user {wanted[:100]!r}")
        return Identity(number, number)
    name, _, uid, gid, _, home, _ = found
    groups = [line.split(":") for line in await _lines(files, "/etc/group")]
    member = [
        _number(row[2]) for row in groups if len(row) == 4 and name in row[3].split(",")
    ]
    return Identity(
        _id(uid),
        _id(gid),
        tuple(id for id in member if id is not None)[:MOST_GROUPS],
        name,
        home or "/",
    )


async def _lines(files: Files, path: str) -> list[str]:
    return (
        (await files.read(path, length=FILE_MAX))
        .decode("utf-8", "replace")
        .splitlines()
    )


def _entry(lines: list[str], wanted: str) -> list[str] | None:
    rows = [row for line in lines if len(row := line.split(":")) == 7]
    return next((row for row in rows if row[0] == wanted or row[2] == wanted), None)


def _id(text: str) -> int:
    if (number := _number(text)) is None:
        raise UsageError(
            f"user: {text[:100]!r} is not an id of a user or group of this sandbox"
        )
    return number


def _number(text: str) -> int | None:
    """An id; None if it is none. The text is the sandbox's."""
    if not (text.isascii() and text.isdecimal() and len(text) <= len(str(ID_MAX))):
        return None
    number = int(text)
    return number if number <= ID_MAX else None
