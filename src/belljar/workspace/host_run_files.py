"""Files in the workspace that the host may run later by itself: git hooks, editor tasks, servers that agents start.

A sandboxed command that plants one acts outside its sandbox at the user's next `git commit`. So what it left there is
told in its result (`runs_later`), however it came there.

Only what runs without being asked for counts: a Makefile, a test or a package's scripts are run by someone who means
to. Looked at are the places at the top of the workspace, by lstat before and after; contents are read only where a
harmless change is usual, such as a remote added to `.git/config`.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Mapping
from typing import NamedTuple

_GIT = re.compile(
    rb"\b(fsmonitor|hookspath|sshcommand|pager|editor|askpass|clean|smudge|process|textconv|command|cmd|driver|helper"
    rb"|program|path|uploadpack|receivepack|gitproxy|worktree|templatedir)\s*=|=\s*\"?!|ext::|^\s*\[\s*(include|pager)",
    re.IGNORECASE | re.MULTILINE,
)
_AGENT = re.compile(rb"hooks|mcpServers|apiKeyHelper|statusLine|awsAuthRefresh|awsCredentialExport|\"env\"")
_EDITOR = re.compile(rb"allowAutomaticTasks|terminal\.integrated|[Pp]ath\"|[Ee]xecutable|[Ii]nterpreter|[Cc]ommand")
_HOOKS: dict[str, re.Pattern[bytes] | None] = dict.fromkeys(
    (
        "applypatch-msg", "pre-applypatch", "post-applypatch", "pre-commit", "pre-merge-commit", "prepare-commit-msg",
        "commit-msg", "post-commit", "pre-rebase", "post-checkout", "post-merge", "pre-push", "pre-receive", "update",
        "proc-receive", "post-receive", "post-update", "push-to-checkout", "reference-transaction", "pre-auto-gc",
        "post-rewrite", "sendemail-validate", "fsmonitor-watchman", "post-index-change",
    )
)  # fmt: skip
# Where to look, from the top of the workspace down. None: all of that file runs; an expression: lines like these.
_PLACES: dict[str, dict[str, re.Pattern[bytes] | None]] = {
    "": dict.fromkeys(
        (".envrc", ".mcp.json", ".exrc", ".nvimrc", ".nvim.lua", ".gdbinit", ".lldbinit", ".git", ".husky", ".vscode",
         ".idea", ".devcontainer", ".claude", ".cursor", ".gemini")
    ),
    ".git": {"config": _GIT, "config.worktree": _GIT, "hooks": None},
    ".git/hooks": _HOOKS,
    ".husky": _HOOKS,
    ".vscode": {"tasks.json": re.compile(rb"folderOpen"), "settings.json": _EDITOR, "mcp.json": None},
    ".idea": {"startup.xml": None},
    ".devcontainer": {"devcontainer.json": re.compile(rb"initializeCommand")},
    ".claude": {"settings.json": _AGENT, "settings.local.json": _AGENT},
    ".cursor": {"mcp.json": None, "hooks.json": None},
    ".gemini": {"settings.json": _AGENT},
}  # fmt: skip
_KEYS = {f"{at}/{name}": keys for at, names in _PLACES.items() for name, keys in names.items() if keys}
_READ = 256 << 10  # longer files are not looked through: they count as they are
_TICK = 50_000_000  # a directory that changed so short a time ago (ns) may change again and look the same


class Seen(NamedTuple):
    """One file, so that any change to it shows."""

    inode: int
    mode: int
    size: int
    written: int
    changed: int


class Snapshot(NamedTuple):
    seen: Mapping[str, Seen]
    contents: Mapping[str, bytes | None]
    """Of those whose contents matter; None where there is none to be had."""


class HostRunFiles:
    """Of one session. `root` is a descriptor of the workspace."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._last: Mapping[str, Seen] | None = None
        self._between: set[str] = set()
        self._contents: dict[str, tuple[Seen, bytes | None]] = {}
        self._listed: dict[str, tuple[Seen | None, list[str]]] = {}

    def before(self, busy: bool = False) -> Snapshot:
        """How it is now. While other commands go on (`busy`), what was planted since the last look is told in the next
        result; who did it, one of them or the user, cannot be known."""
        last, self._last = self._last, self._look()
        if busy and last is not None and last != self._last:
            known = {name: content for name, (_, content) in self._contents.items()}
            self._between |= set(self._found(Snapshot(last, known), self._last))
        read = {name: self._read(name, seen) for name, seen in self._last.items() if name in _KEYS}
        return Snapshot(self._last, read)

    def since(self, before: Snapshot) -> tuple[str, ...]:
        """What was planted since."""
        self._last = self._look()
        found = self._found(before, self._last) if self._last != before.seen else []
        told, self._between = {*found, *self._between}, set()
        return tuple(sorted(told))

    def _found(self, before: Snapshot, now: Mapping[str, Seen]) -> list[str]:
        changed = [name for name, seen in now.items() if seen != before.seen.get(name)]
        return [name for name in changed if self._runs(name, now[name], before.contents.get(name))]

    def _look(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        if (top := self._stat(".")) is not None:
            self._look_in("", top, found)
        return found

    def _look_in(self, at: str, directory: Seen, found: dict[str, Seen]) -> None:
        for name in self._names(at, directory):
            path = f"{at}/{name}" if at else name
            seen = self._stat(path)
            if seen is None:
                continue
            if not stat.S_ISDIR(seen.mode):  # a link in place of a directory leads elsewhere, and counts itself
                found[path] = seen
            elif path in _PLACES:
                self._look_in(path, seen, found)

    def _names(self, at: str, directory: Seen) -> list[str]:
        """What there is to look at in a directory; known from last time if that has not changed since."""
        known = self._listed.get(at)
        if known is None or known[0] != directory:
            names = [name for name in _PLACES[at] if self._stat(f"{at}/{name}".lstrip("/"))]
            settled = time.time_ns() - max(directory.written, directory.changed) > _TICK
            self._listed[at] = known = directory if settled else None, names
        return known[1]

    def _open(self, path: str, flags: int) -> int:
        return os.open(path or ".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=self._root)

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


def _lines(keys: re.Pattern[bytes], content: bytes) -> set[bytes]:
    return {line.strip() for line in content.splitlines() if keys.search(line)}
