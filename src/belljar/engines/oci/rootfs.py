"""Mounts a sandbox's root file system in a mount namespace that only its runtime sees.

Mount namespaces belong to threads. So a thread of this process gets its own, mounts what the sandbox needs and starts
the runtime from there. The sandbox keeps the mounts and the thread ends. This machine's own mounts never change, and
nothing has to be unmounted afterwards, even if a process was killed.

    <place>/0 …      the image's layers, each mapped to the sandbox's own ids (idmapped mounts)
    <place>/upper    the top layer: mount points, and the changes to a writable root
    <place>/root     overlayfs of these
    <place>/staged   overlayfs of a workspace whose changes are kept apart
    <place>/userns   the sandbox's user namespace, for the runtime to join

On disk, layers belong to ids 0 to 65535. Mapped, they belong to ids that nobody has on this machine. For an ordinary
user nothing is mapped, and a separate program does this instead of a thread (callers.py).

The mount points are made in `upper`, on top of the image. They hide what the image has there, so a link in the image
cannot lead a mount somewhere else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from belljar.engines.spec import IdMap, outside
from belljar.errors import EngineError
from belljar.records import record
from belljar.syscalls import (
    CLONE_FS,
    CLONE_NEWNS,
    MS_BIND,
    MS_NODEV,
    MS_NOSUID,
    MS_PRIVATE,
    MS_REC,
    checked,
    closing,
    in_new_thread,
    libc,
    mount,
)
from belljar.workspace import idmap

# Directories that every Linux system has and anybody may enter; we mount over one of them, in our own namespace.
PLACES = ("/mnt", "/media", "/srv", "/opt")
LAST_ID = 65535
SKELETON_BYTES = 1 << 20
RESOLVER = "nameserver 127.0.0.1\n"
USER_NAMESPACE = "userns"
STAGED = "staged"

T = TypeVar("T")


@record
class Overlay:
    """A staged workspace."""

    lowers: Sequence[str]
    """From the top down."""
    upper: str
    work: str


@record
class Root:
    """What a root file system is made of."""

    layers: Sequence[Path]
    """From the top down."""
    uid_map: tuple[IdMap, ...]
    gid_map: tuple[IdMap, ...]
    directories: Mapping[str, int]
    """Mount points and their modes, which a runtime gives to what it mounts there."""
    files: Mapping[str, str]
    """Path → contents; the empty ones are mount points."""
    user: tuple[int, int]
    """Uid and gid on the host of whoever runs in it; the owner of the user namespace."""
    upper_bytes: int = SKELETON_BYTES
    upper_on: str = ""
    """A directory on a disk for the changes; empty: they are kept in memory."""
    mapped: bool = True
    """Whether layers are mounted through the maps, which needs root; otherwise their owners are right already."""
    staged: Overlay | None = None
    hidden: Sequence[str] = ()
    """Mount points of this machine to hide from the runtime."""

    @property
    def owner(self) -> tuple[int, int]:
        """Uid and gid on the host of root inside."""
        return outside(0, self.uid_map), outside(0, self.gid_map)


def place(sources: Sequence[str]) -> str:
    """A directory to mount over that hides none of `sources`, which are real paths."""
    for directory in PLACES:
        below = any(
            path == directory or path.startswith(f"{directory}/") for path in sources
        )
        if os.path.isdir(directory) and not os.path.islink(directory) and not below:
            return directory
    raise EngineError(
        f"no directory to mount a root file system over: tried {', '.join(PLACES)}"
    )


def in_own_namespace(work: Callable[[], T]) -> T:
    """Call `work` in a thread with its own mount namespace, and wait for it."""

    def run() -> T:
        leave_mounts()
        return work()

    try:
        return in_new_thread(run, "belljar-oci")
    except OSError as error:
        kernel = tuple(int(part) for part in re.findall(r"\d+", os.uname().release)[:2])
        old = "; id-mapped layers need Linux 5.19" if kernel < (5, 19) else ""
        raise EngineError(
            f"the root file system cannot be mounted: {error}{old}"
        ) from error


def leave_mounts() -> None:
    """From here on, only this thread and its children see what it mounts."""
    checked(libc.unshare(CLONE_NEWNS | CLONE_FS), "a mount namespace")
    mount("none", "/", None, MS_REC | MS_PRIVATE, None)


def _make(path: str) -> None:
    """A directory that everyone may enter: the caller's umask is for the caller's files."""
    os.mkdir(path)
    os.chmod(path, 0o755)


def assemble(root: Root, at: str) -> str:
    """Mount everything below `at` and return the path of the root file system. Only in a private mount namespace."""
    mount(
        "tmpfs", at, "tmpfs", MS_NOSUID | MS_NODEV, f"mode=0755,size={root.upper_bytes}"
    )
    names = (
        _map_layers(root, at, keep=f"{at}/{USER_NAMESPACE}")
        if root.mapped
        else _bind_layers(root, at)
    )
    on = root.upper_on or at
    for name in ("upper", "work"):
        _make(f"{on}/{name}")
        os.chown(f"{on}/{name}", *root.owner)
    _make(f"{at}/root")
    _skeleton(f"{on}/upper", root)
    options = f"lowerdir={':'.join(names)},upperdir={on}/upper,workdir={on}/work"
    options += "" if root.mapped else ",userxattr"
    mount("overlay", f"{at}/root", "overlay", MS_NOSUID | MS_NODEV, options)
    if root.staged is not None:
        from belljar.staged import overlay

        _make(f"{at}/{STAGED}")
        upper, work = Path(root.staged.upper), Path(root.staged.work)
        overlay.mount(
            root.staged.lowers,
            upper,
            work,
            Path(at, STAGED),
            user_marks=not root.mapped,
        )
    for point in root.hidden:
        mount("tmpfs", point, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0555,size=4k")
    return f"{at}/root"


def _bind_layers(root: Root, at: str) -> list[str]:
    names = [f"{at}/{number}" for number in range(len(root.layers))]
    for path, name in zip(root.layers, names, strict=True):
        _make(name)
        mount(str(path), name, None, MS_BIND, None)
    return names


def _map_layers(root: Root, at: str, keep: str) -> list[str]:
    """Map the layers by the sandbox's user namespace, which is then bound at `keep`."""
    with closing(
        idmap.owned_namespace(
            _map_text(root.uid_map), _map_text(root.gid_map), root.user
        )
    ) as namespace:
        Path(keep).touch()
        mount(f"/proc/self/fd/{namespace}", keep, None, MS_BIND, None)
        return [
            _layer(path, f"{at}/{number}", namespace)
            for number, path in enumerate(root.layers)
        ]


def _layer(path: Path, target: str, namespace: int) -> str:
    _make(target)
    with closing(
        os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    ) as descriptor:
        idmap.mount_mapped(descriptor, Path(target), namespace)
    return target


def _skeleton(upper: str, root: Root) -> None:
    made: set[str] = set()
    for target, mode in sorted(root.directories.items()):
        _make_directories(upper, target, root.owner, made)
        os.chmod(f"{upper}/{target.lstrip('/')}", mode)
    for target, text in root.files.items():
        _make_directories(upper, os.path.dirname(target), root.owner, made)
        _write(f"{upper}/{target.lstrip('/')}", text, root.owner)
    _make_directories(upper, "/etc", root.owner, made)
    _write(f"{upper}/etc/resolv.conf", RESOLVER, root.owner)


def _make_directories(
    upper: str, target: str, owner: tuple[int, int], made: set[str]
) -> None:
    path = upper
    for part in target.strip("/").split("/"):
        path = f"{path}/{part}"
        if path not in made:
            made.add(path)
            _make(path)
            os.chown(path, *owner)


def _write(path: str, text: str, owner: tuple[int, int]) -> None:
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, 0o644)
    os.chown(path, *owner)


def _map_text(maps: tuple[IdMap, ...]) -> str:
    return "\n".join(f"{each.inside} {each.outside} {each.count}" for each in maps)
