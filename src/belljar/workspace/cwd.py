"""Working directories: what a caller names, as a path inside the sandbox, and never outside the workspace."""

from __future__ import annotations

import os
from pathlib import PurePosixPath

from belljar.errors import WorkingDirectoryError
from belljar.layout import WORKSPACE

_LINKS = 40  # as many as the kernel follows


def inside(workspace: str, cwd: str | None, *, look: bool = True) -> str:
    """`cwd` (relative, inside the sandbox, or a path of the host below the workspace) as the sandbox sees it.

    With `look`, symbolic links are followed as the sandbox would follow them. One that is swapped in afterwards
    leads nowhere but around the sandbox: this check is for clear errors, the container is the wall.
    """
    if not cwd:
        return WORKSPACE
    if "\0" in cwd:
        raise WorkingDirectoryError("Invalid working directory: it holds a NUL byte")
    path = PurePosixPath(cwd)
    if path.is_absolute() and path.is_relative_to(workspace):
        path = path.relative_to(workspace)
    parts = _walk(workspace, PurePosixPath(WORKSPACE) / path, cwd, look)
    if parts[:1] != ["workspace"]:
        raise _outside(cwd)
    return "/" + "/".join(parts)


def _walk(workspace: str, path: PurePosixPath, cwd: str, look: bool) -> list[str]:
    todo, done, links = list(reversed(path.parts[1:])), list[str](), 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
            continue
        if done[:1] != ["workspace"] and part != "workspace":
            raise _outside(cwd)
        here = os.path.join(workspace, *done[1:], part) if done else workspace
        if look and done and (link := _link(here)) is not None:
            links += 1
            if links > _LINKS:
                raise WorkingDirectoryError(f"Invalid working directory: {cwd}: too many symbolic links")
            target = PurePosixPath(link)
            if target.is_absolute():
                done, target = [], target.relative_to("/")
            todo.extend(reversed(target.parts))
            continue
        done.append(part)
    return done


def _link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # not a link, or no longer
        return None


def _outside(cwd: str) -> WorkingDirectoryError:
    return WorkingDirectoryError(f"Invalid working directory: {cwd} is outside the workspace")
