"""Files in the workspace that the host may run later by itself: git hooks, editor tasks, servers that agents start.

A sandboxed command that plants one acts outside its sandbox at the user's next `git commit`. So what it left there is
told in its result (`runs_later`), or taken back (`Session(planted="undo")`), however it came there.

Only what runs without being asked for counts: a Makefile, a test or a package's scripts are run by someone who means
to. Looked at are the places at the top of the workspace, by lstat before and after; contents are read only where a
harmless change is usual, such as a remote added to `.git/config`.
"""

from __future__ import annotations

import os
import re
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from typing import Literal, NamedTuple

Planting = Literal["report", "undo"]

_GIT = re.compile(
    rb"\b(fsmonitor|hookspath|sshcommand|pager|editor|askpass|clean|smudge|process|textconv|command|cmd|driver|helper"
    rb"|program|path|uploadpack|receivepack|gitproxy|worktree|templatedir)\s*=|=\s*\"?!|ext::|^\s*\[\s*(include|pager)",
    re.IGNORECASE | re.MULTILINE,
)
_AGENT = re.compile(rb"hooks|mcpServers|apiKeyHelper|statusLine|awsAuthRefresh|awsCredentialExport|\"env\"")
_EDITOR = re.compile(rb"allowAutomaticTasks|terminal\.integrated|[Pp]ath\"|[Ee]xecutable|[Ii]nterpreter|[Cc]ommand")
# What of it runs: None: whatever is in it; an expression: lines like these.
_PLACES: dict[str, dict[str, re.Pattern[bytes] | None]] = {
    "": dict.fromkeys([".envrc", ".mcp.json", ".exrc", ".nvimrc", ".nvim.lua", ".gdbinit", ".lldbinit"]),
    ".git": {"config": _GIT, "config.worktree": _GIT},
    ".vscode": {"tasks.json": re.compile(rb"folderOpen"), "settings.json": _EDITOR, "mcp.json": None},
    ".idea": {"startup.xml": None},
    ".devcontainer": {"devcontainer.json": re.compile(rb"initializeCommand")},
    ".claude": {"settings.json": _AGENT, "settings.local.json": _AGENT},
    ".cursor": {"mcp.json": None, "hooks.json": None},
    ".gemini": {"settings.json": _AGENT},
}
_FOLDERS = {".git": ".git/hooks", ".husky": ".husky"}
_KEYS = {f"{at}/{name}".lstrip("/"): keys for at, names in _PLACES.items() for name, keys in names.items()}
_READ = 256 << 10  # longer files are not looked through: they count as they are
_HOOKS = 512  # a folder with more in it counts as one


class Seen(NamedTuple):
    """One file, so that any change to it shows."""

    inode: int
    mode: int
    size: int
    written: int
    changed: int


Snapshot = Mapping[str, Seen]


class Planted:
    """Of one session. `root` is a descriptor of the workspace."""

    def __init__(self, root: int, undo: bool = False) -> None:
        self._root, self._undo = root, undo
        self._last: Snapshot = {}
        self._contents: dict[str, tuple[Seen, bytes | None]] = {}

    def before(self, alone: bool = True) -> Snapshot:
        """How it is now. While other commands go on, what they plant between two looks must show: then, as it was."""
        if alone or not self._last:
            self._last = self._look()
            for name, seen in self._last.items():
                if self._undo or _KEYS.get(name):
                    self._read(name, seen)
        return self._last

    def since(self, before: Snapshot) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What was planted since: what is still there, and what was taken back."""
        now = self._last = self._look()
        if now == before:
            return (), ()
        old = {name: self._contents.get(name, (None, b""))[1] for name in before}
        new = [(name, seen) for name, seen in now.items() if seen != before.get(name)]
        found = [name for name, seen in new if self._runs(name, seen, old.get(name))]
        undone = [name for name in found if self._undo and self._take_back(name, before.get(name), old.get(name))]
        return tuple(sorted(set(found) - set(undone))), tuple(sorted(undone))

    def _look(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        for at, names in _PLACES.items():
            if at and not self._enter(at, found):
                continue
            for name in names:
                path = f"{at}/{name}" if at else name
                if (seen := self._stat(path)) and not stat.S_ISDIR(seen.mode):
                    found[path] = seen
        for top, folder in _FOLDERS.items():
            if (top == folder or top not in found) and self._enter(folder, found):
                found.update(self._folder(folder))
        return found

    def _enter(self, directory: str, found: dict[str, Seen]) -> bool:
        """Whether it is a directory. Something else in its place leads elsewhere, and counts itself."""
        seen = self._stat(directory)
        if seen is not None and not stat.S_ISDIR(seen.mode):
            found[directory] = seen
        return seen is not None and stat.S_ISDIR(seen.mode)

    def _open(self, path: str, flags: int) -> int:
        return os.open(path or ".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)

    def _folder(self, folder: str) -> Iterator[tuple[str, Seen]]:
        try:
            descriptor = self._open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return
        try:
            names = [entry.name for entry in islice(os.scandir(descriptor), _HOOKS + 1)]
        finally:
            os.close(descriptor)
        paths = [f"{folder}/{name}" for name in names if not name.endswith(".sample")]
        if len(names) > _HOOKS:
            paths = [folder]
        for path in paths:
            if (seen := self._stat(path)) and (path == folder or not stat.S_ISDIR(seen.mode)):
                yield path, seen

    def _stat(self, path: str) -> Seen | None:
        try:
            found = os.stat(path, dir_fd=self._root, follow_symlinks=False)
        except OSError:
            return None
        return Seen(found.st_ino, found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns)

    def _runs(self, name: str, seen: Seen, old: bytes | None) -> bool:
        keys = _KEYS.get(name)
        content = self._read(name, seen) if keys else None
        if keys is None or content is None:
            return True
        return bool(_lines(keys, content) - _lines(keys, old or b""))

    def _read(self, name: str, seen: Seen) -> bytes | None:
        """Its content; None where that is not to be had."""
        known = self._contents.get(name)
        if known is None or known[0] != seen:
            self._contents[name] = known = seen, self._content(name)
        return known[1]

    def _content(self, name: str) -> bytes | None:
        try:
            with open(self._open(name, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    return None
                content = file.read(_READ + 1)
        except OSError:
            return None
        return content if len(content) <= _READ else None

    def _take_back(self, name: str, before: Seen | None, old: bytes | None) -> bool:
        """As it was. Through the parent's descriptor: whatever is swapped in meanwhile, nothing outside is touched."""
        folder, base = os.path.split(name)
        try:
            parent = self._open(folder, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            if before is None:
                os.unlink(base, dir_fd=parent)
            elif old is not None:
                _restore(parent, base, before, old)
            else:
                return False
        except OSError:
            return False
        finally:
            os.close(parent)
            self._last = self._look()
        return True


def _lines(keys: re.Pattern[bytes], content: bytes) -> set[bytes]:
    return {line.strip() for line in content.splitlines() if keys.search(line)}


def _restore(parent: int, name: str, before: Seen, content: bytes) -> None:
    owner = os.stat(name, dir_fd=parent, follow_symlinks=False)
    temporary = f".{secrets.token_hex(8)}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=parent), "wb") as file:
            with suppress(PermissionError):
                os.fchown(file.fileno(), owner.st_uid, owner.st_gid)
            os.fchmod(file.fileno(), stat.S_IMODE(before.mode) & 0o777)
            file.write(content)
        os.rename(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=parent)
        raise
