"""Working directories: turns a caller's `cwd` into a path in the sandbox.

An absolute path is one of the sandbox's, except that a host path below the workspace means the same place inside. A
relative one stays in the workspace: neither `..` nor a link leads out of it.
"""

from __future__ import annotations

import posixpath
from pathlib import PurePosixPath

from belljar.errors import WorkingDirectoryError
from belljar.layout import WORKSPACE
from belljar.workspace.beneath import Folder

_LINKS = 40  # as many as the kernel follows


def in_sandbox(workspace: str, cwd: str | None, *, root: int | None = None) -> str:
    """The path of `cwd` in the sandbox, anywhere there. A missing directory is reported when the command starts."""
    if cwd and posixpath.isabs(cwd) and "\0" not in cwd:
        path = PurePosixPath(posixpath.normpath(cwd))
        if not path.is_relative_to(workspace) and not path.is_relative_to(WORKSPACE):
            return "/" + str(path).lstrip("/")
    return inside(workspace, cwd, root=root)


def inside(workspace: str, cwd: str | None, *, root: int | None = None) -> str:
    """The same for a place in the workspace; WorkingDirectoryError for any other.

    With `root`, the workspace's descriptor, symbolic links are followed as the sandbox would. A link that is changed
    afterwards can only lead elsewhere in the sandbox: this check gives clear errors, the container is the wall.
    """
    if not cwd:
        return WORKSPACE
    if "\0" in cwd:
        raise WorkingDirectoryError("Invalid working directory: it holds a NUL byte")
    path = PurePosixPath(cwd)
    if path.is_absolute() and path.is_relative_to(workspace):
        path = path.relative_to(workspace)
    parts = _walk(PurePosixPath(WORKSPACE) / path, cwd, root)
    if parts[:1] != ["workspace"]:
        raise _outside(cwd)
    return "/" + "/".join(parts)


def _walk(path: PurePosixPath, cwd: str, root: int | None) -> list[str]:
    todo = list(reversed(path.parts[1:]))
    done = list[str]()
    links = 0
    while todo:
        part = todo.pop()
        if part == "..":
            done = done[:-1]
            continue
        if done[:1] != ["workspace"] and part != "workspace":
            raise _outside(cwd)
        if (
            root is not None
            and done
            and (link := _link(root, "/".join([*done[1:], part]))) is not None
        ):
            links += 1
            if links > _LINKS:
                raise WorkingDirectoryError(
                    f"Invalid working directory: {cwd}: too many symbolic links"
                )
            target = PurePosixPath(link)
            if target.is_absolute():
                done, target = [], target.relative_to("/")
            todo.extend(reversed(target.parts))
            continue
        done.append(part)
    return done


def _link(root: int, path: str) -> str | None:
    try:
        with Folder.of(root) as folder:
            return folder.readlink(path)
    except OSError:  # not a link, or no longer
        return None


def _outside(cwd: str) -> WorkingDirectoryError:
    return WorkingDirectoryError(
        f"Invalid working directory: {cwd} is outside the workspace"
    )
