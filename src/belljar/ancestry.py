"""Checks that nobody else could replace the file at a path, as sshd does for a user's keys.

Uses the standard library only: the init's build loads this file by its path, before Belljar is installed.
"""

from __future__ import annotations

import os
import stat

_MOST_LINKS = 40  # the kernel's limit


def untrusted(path: str | os.PathLike[str]) -> str | None:
    """The first part of `path` (a directory, a link or the file itself) that others own or may write; None: there is
    none.

    In a directory with the sticky bit (/tmp) others cannot replace our files. Parts that do not exist yet are not
    checked.
    """
    # Whoever owns / can do anything already. In a user namespace that owner is not 0.
    trusted = {0, os.geteuid(), os.stat("/").st_uid}
    directory, links = "/", 0
    remaining = os.path.join(os.getcwd(), path).split("/")[::-1]
    while remaining:
        name = remaining.pop()
        if name in ("", "."):
            continue
        current = (
            os.path.dirname(directory)
            if name == ".."
            else os.path.join(directory, name)
        )
        try:
            status = os.lstat(current)
        except FileNotFoundError:
            return None
        if status.st_uid not in trusted:
            return current
        if stat.S_ISLNK(status.st_mode):
            target, links = os.readlink(current), links + 1
            if links > _MOST_LINKS:
                return current
            remaining += target.split("/")[::-1]
            directory = "/" if target.startswith("/") else directory
            continue
        if _others_may_write(current, status):
            return current
        directory = current
    return None


def _others_may_write(path: str, status: os.stat_result) -> bool:
    if stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX:
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    return bool(status.st_mode & stat.S_IWGRP) and (
        _has_acl(path) or not _is_private_group(status.st_gid)
    )


def _has_acl(path: str) -> bool:
    """The group's bits then stand for everybody that the list names."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False


def _is_private_group(gid: int) -> bool:
    """Whether nobody else is in the group: with a umask of 002, the default on some systems, it may write."""
    import grp  # rarely needed
    import pwd

    try:
        members = {pwd.getpwnam(name).pw_uid for name in grp.getgrgid(gid).gr_mem}
    except KeyError:
        return False
    members.update(user.pw_uid for user in pwd.getpwall() if user.pw_gid == gid)
    return members <= {0, os.geteuid()}
