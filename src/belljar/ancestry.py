"""Whether others could put another file in the place of a path: what sshd asks about a user's keys.

The standard library only: the init's build, which runs before Belljar is installed, loads this file by its path.
"""

from __future__ import annotations

import os
import stat

_MOST_LINKS = 40  # as the kernel


def untrusted(path: str | os.PathLike[str]) -> str | None:
    """The first directory or link on the way to `path`, or itself, that others own or may write; None if there is none.

    In a directory with the sticky bit (/tmp) others cannot replace what is ours. What is not there yet is not judged.
    """
    # Whoever owns / needs no tricks. In a user namespace that is not 0.
    trusted = {0, os.geteuid(), os.stat("/").st_uid}
    here, links = "/", 0
    rest = os.path.join(os.getcwd(), path).split("/")[::-1]
    while rest:
        name = rest.pop()
        if name in ("", "."):
            continue
        found = os.path.dirname(here) if name == ".." else os.path.join(here, name)
        try:
            status = os.lstat(found)
        except FileNotFoundError:
            return None
        if status.st_uid not in trusted:
            return found
        if stat.S_ISLNK(status.st_mode):
            target, links = os.readlink(found), links + 1
            if links > _MOST_LINKS:
                return found
            rest += target.split("/")[::-1]
            here = "/" if target.startswith("/") else here
            continue
        if _others_write(status):
            return found
        here = found
    return None


def _others_write(status: os.stat_result) -> bool:
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and not _only_ours(status.st_gid)


def _only_ours(gid: int) -> bool:
    """Whether nobody else is in the group: a umask of 002, usual on some systems, lets one's own group write."""
    import grp  # rarely asked
    import pwd

    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False
    members.update(user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid)
    return members <= {0, os.geteuid()}
