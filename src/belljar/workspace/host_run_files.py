"""Files in the workspace that the host may run later by itself: git hooks, editor tasks, servers that agents start.

A command that writes one acts outside its sandbox at the user's next `git commit`. So its result lists them
(`runs_later`).

Only files that run unasked count: a Makefile, a test or a package's scripts are run on purpose. Checked are fixed names
at the top of the workspace and every git directory (its settings, its hooks, and the target of `core.hooksPath`), with
lstat before and after the command. Contents are read only where harmless changes are common, such as a remote added to
`.git/config`. A repository that a command makes more than one level down is found only by the next session. If there
are more files than are checked, the directory itself (`.`) is in every result.
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, islice
from typing import NamedTuple

from belljar.patterns import lazy_pattern
from belljar.workspace import git_settings
from belljar.workspace.beneath import Folder, named_below, open_beneath

_AGENT = lazy_pattern(rb"hooks|mcpServers|apiKeyHelper|statusLine|awsAuthRefresh|awsCredentialExport|\"env\"")
_EDITOR = lazy_pattern(rb"allowAutomaticTasks|terminal\.integrated|[Pp]ath\"|[Ee]xecutable|[Ii]nterpreter|[Cc]ommand")
_NOT_RUN = lazy_pattern(r".*\.sample|README(\..*)?|\.gitignore", re.IGNORECASE)
"""Harmless names in a directory of hooks; any other may be a hook, or read by one."""


def _lines(keys: bytes | re.Pattern[bytes]) -> Callable[[bytes], set[object] | None]:
    pattern = lazy_pattern(keys) if isinstance(keys, bytes) else keys
    return lambda content: {line.strip() for line in content.splitlines() if pattern.search(line)}


def _git(content: bytes) -> set[object] | None:
    settings = git_settings.that_run(content)
    return None if settings is None else set(settings)


Reader = Callable[[bytes], "set[object] | None"]
"""The parts of a file's content that may run something; None if that cannot be known."""
_HOOKS = "hooks"
"""Instead of names: all files in the directory."""
# Directory → names to check. None: any change of that file counts.
_PLACES: dict[str, Mapping[str, Reader | None] | str] = {
    "": dict.fromkeys(
        (".envrc", ".mcp.json", ".exrc", ".nvimrc", ".nvim.lua", ".gdbinit", ".lldbinit", ".git", ".husky", ".githooks",
         ".vscode", ".idea", ".devcontainer", ".claude", ".cursor", ".gemini", "HEAD")
    ),
    ".husky": _HOOKS,
    ".husky/_": _HOOKS,
    ".githooks": _HOOKS,
    ".vscode": {"tasks.json": _lines(rb"folderOpen"), "settings.json": _lines(_EDITOR), "mcp.json": None},
    ".idea": {"startup.xml": None},
    ".devcontainer": {"devcontainer.json": _lines(rb"initializeCommand")},
    ".claude": {"settings.json": _lines(_AGENT), "settings.local.json": _lines(_AGENT)},
    ".cursor": {"mcp.json": None, "hooks.json": None},
    ".gemini": {"settings.json": _lines(_AGENT)},
}  # fmt: skip
_GIT_DIRECTORY: Mapping[str, Reader | None] = {
    "config": _git, "config.worktree": _git, "commondir": None, "hooks": None, "remotes": None, "branches": None,
}  # fmt: skip
_ALL_OF = ("hooks", "remotes", "branches")
"""Directories in a git directory: the hooks, and git's old places for addresses."""
READ = 256 << 10  # any change of a longer file counts
KEPT = READ  # bytes of contents that are kept in memory, of all files together
_TICK = 50_000_000  # ns; a directory that changed so recently may change again without a new time
_LISTED = 4096  # entries of a directory that are checked; if it has more, the directory itself counts as well
_BELOW = 1024  # directories at the top that are checked; each costs some microseconds per command
_SCANNED = 16 * _LISTED  # entries of the top that are listed
_WATCHED = 256  # repositories that commands made; each costs some microseconds per command
MARKS_BELOW = (".git", "HEAD")  # a directory with HEAD may be, or become, a git directory itself


class FileState(NamedTuple):
    """The state of one file; any change of the file changes it."""

    inode: int
    mode: int
    size: int
    written: int
    changed: int


class Snapshot(NamedTuple):
    states: Mapping[str, FileState]
    contents: Mapping[str, bytes | None]
    """Of files whose contents matter; None if they cannot be read."""


class HostRunFiles:
    """Watches one session's workspace. `root`: its descriptor. `git_directories`: those that it has."""

    def __init__(self, root: int, git_directories: Iterable[str] = ()) -> None:
        self._root = os.dup(root)  # a command may outlive the mount that it began with
        self._last: Mapping[str, FileState] | None = None
        self._between: set[str] = set()
        self._contents: dict[str, tuple[FileState, bytes | None]] = {}
        self._listed: dict[str, tuple[FileState | None, list[str]]] = {}
        self._places = dict(_PLACES)
        self._hook_paths: dict[str, bytes | None] = {}
        self._below: list[str] = []
        self._cut = False
        self._asked: dict[str, tuple[tuple[int, int] | None, list[str]]] = {}
        self._unknowns = count(1)
        for path in (".git", *git_directories):
            self._watch(path)
        self._most = len(self._hook_paths) + _WATCHED

    def __del__(self) -> None:
        os.close(self._root)

    async def look(self, *, again: bool = True) -> None:
        """Ask for the current state where it is not on this machine; `again`: also if that was done before."""

    def before(self, busy: bool = False) -> Snapshot:
        """The current state. While other commands run (`busy`), files that were written since the last look are in the
        next result: whether a command or the user wrote them is unknown."""
        last, self._last = self._last, self._look()
        if busy and last is not None and last != self._last:
            known = {name: content for name, (_, content) in self._contents.items()}
            self._between |= set(self._changed(Snapshot(last, known), self._last))
        read = {name: self._read(name, state) for name, state in self._last.items() if self._reader(name)}
        return Snapshot(self._last, read)

    def since(self, before: Snapshot) -> tuple[str, ...]:
        self._last = self._look()
        changed = self._changed(before, self._last) if self._last != before.states else []
        new, self._between = {*changed, *self._between}, set()
        return tuple(sorted(new))

    def _changed(self, before: Snapshot, now: Mapping[str, FileState]) -> list[str]:
        changed = [name for name, state in now.items() if state != before.states.get(name)]
        return [name for name in changed if self._runs(name, now[name], before.contents.get(name))]

    # Which places.

    def _watch(self, path: str) -> None:
        """Check this git directory from now on."""
        if path not in self._hook_paths:
            self._hook_paths[path] = None
            known = self._places.get(path, {})
            self._places[path] = known if isinstance(known, str) else {**_GIT_DIRECTORY, **known}
            self._places.update(dict.fromkeys((posixpath.join(path, name) for name in _ALL_OF), _HOOKS))
            self._listed.clear()

    def _watch_below(self, mark: str, found: dict[str, FileState]) -> None:
        """Watch the git directory, one level down, that this mark belongs to."""
        path = mark if mark.endswith("/.git") else posixpath.dirname(mark)
        if path in self._hook_paths or len(self._hook_paths) < self._most:
            self._watch(path)
        else:
            found["."] = self._unknown()

    def _unknown(self, kind: int = stat.S_IFREG) -> FileState:
        """A state that counts as changed each time, for what cannot be read."""
        return FileState(next(self._unknowns), kind, 0, 0, 0)

    def _follow_hooks_path(self, path: str, found: dict[str, FileState]) -> None:
        """Also watch the hooks directory that this git directory's settings name, if it is in the workspace."""
        config = posixpath.join(path, "config")
        content = self._read(config, found[config]) if config in found else None
        if content is None and config in found and stat.S_ISREG(found[config].mode):
            found["."] = self._unknown()
        if content == self._hook_paths[path] or content is None:
            return
        self._hook_paths[path] = content
        if hooks := git_settings.lookup(content, "core", "hookspath"):
            tree = git_settings.lookup(content, "core", "worktree")
            top = posixpath.join(path, tree) if tree else posixpath.dirname(path)
            if (place := named_below(self._root, posixpath.join(top, hooks))) and place not in self._places:
                self._places[place] = _HOOKS
                self._look_in(place, found)

    # Looking.

    def _look(self) -> dict[str, FileState]:
        found: dict[str, FileState] = {}
        there = self._look_in("", found)

        def look_in(place: str) -> set[str]:
            first = place.partition("/")[0]
            return self._look_in(place, found) if place and (first in there or first not in _PLACES[""]) else set()

        inner = {posixpath.join(path, name) for path in list(self._hook_paths) for name in look_in(path)} | there
        for place in self._places.keys() - self._hook_paths.keys():
            above, name = posixpath.split(place)
            if place in inner or above not in self._hook_paths or name not in _ALL_OF:
                look_in(place)
        for path in list(self._hook_paths):
            self._follow_hooks_path(path, found)
        return found

    def _look_in(self, place: str, found: dict[str, FileState]) -> set[str]:
        """Check one directory; returns the names in it that are directories."""
        directories: set[str] = set()
        for name, state in self._entries(place):
            if stat.S_ISCHR(state.mode):  # a whiteout in a staged session's layer
                continue
            if name.endswith("/HEAD") or (name.endswith("/.git") and stat.S_ISDIR(state.mode)):
                self._watch_below(name, found)
            elif stat.S_ISDIR(state.mode) and name != ".":
                directories.add(name)
            else:
                found[posixpath.join(place, name)] = state
        return directories

    def _entries(self, place: str) -> Iterator[tuple[str, FileState]]:
        """The names to check in a directory that exist, with their state."""
        try:
            directory = open_beneath(self._root, place, os.O_PATH | os.O_DIRECTORY) if place else os.dup(self._root)
        except OSError:
            return  # of a link, the link itself counts
        try:
            for name in self._names(place, directory):
                if (state := _state_of(name, directory)) is not None:
                    yield name, state
            if place == "":
                yield from self._marks_below(directory)
        finally:
            os.close(directory)

    def _marks_below(self, top: int) -> Iterator[tuple[str, FileState]]:
        """The marks of repositories in the directories at the top. A new mark changes the directory's time, so most
        directories cost one system call."""
        if self._cut:
            yield ".", self._unknown()
        for name in self._below:
            try:
                status = os.stat(name, dir_fd=top, follow_symlinks=False)
            except OSError:
                continue
            now, known = (status.st_ino, status.st_ctime_ns), self._asked.get(name)
            if known is None or known[0] != now:
                marks = [mark for each in MARKS_BELOW if _state_of(mark := f"{name}/{each}", top)]
                settled = time.time_ns() - status.st_ctime_ns > _TICK
                self._asked[name] = known = now if settled else None, marks
            for mark in known[1]:
                if (state := _state_of(mark, top)) is not None:
                    yield mark, state

    def _names(self, place: str, directory: int) -> list[str]:
        """The names to check in a directory; cached until the directory changes."""
        now = _state_of("", directory)
        known = self._listed.get(place)
        if known is None or known[0] != now or now is None:
            to_check = self._places[place]
            if isinstance(to_check, str):
                listed = _listing(directory, _LISTED)
                names = [name for name, _ in listed if may_be_hook(name)]
                names += ["."] if len(listed) == _LISTED else []
            else:
                names = [name for name in to_check if _state_of(name, directory)]
            if place == "":
                self._list_below(directory)
            settled = now is not None and time.time_ns() - max(now.written, now.changed) > _TICK
            self._listed[place] = known = now if settled else None, names
        return known[1]

    def _list_below(self, top: int) -> None:
        listed = _listing(top, _SCANNED)
        below = [name for name, inner in listed if inner and name != ".git"]
        self._below, self._cut = below[:_BELOW], len(below) > _BELOW or len(listed) == _SCANNED
        self._asked = {name: self._asked[name] for name in self._below if name in self._asked}

    # Contents.

    def _reader(self, name: str) -> Reader | None:
        place, base = posixpath.split(name)
        names = self._places.get(place)
        return None if names is None or isinstance(names, str) else names.get(base)

    def _runs(self, name: str, state: FileState, old: bytes | None) -> bool:
        reader = self._reader(name)
        content = self._read(name, state) if reader else None
        if reader is None or content is None:
            return True
        now = reader(content)
        return now is None or bool(now - (reader(old or b"") or set()))

    def _read(self, name: str, state: FileState) -> bytes | None:
        """The content of a file; None if it is too long or cannot be read."""
        known = self._contents.get(name)
        if known is None or known[0] != state:
            self._contents.pop(name, None)
            room = KEPT - sum(len(content or b"") for _, content in self._contents.values())
            content = self._content(name) if state.size <= room else None
            self._contents[name] = known = state, content if len(content or b"") <= room else None
        return known[1]

    def _content(self, name: str) -> bytes | None:
        try:
            with Folder.of(self._root) as folder:
                return folder.read(name, READ)
        except OSError:
            return None


def may_be_hook(name: str) -> bool:
    """Whether a file in a directory of hooks may be one."""
    return not _NOT_RUN.fullmatch(name)


def _state_of(name: str, directory: int) -> FileState | None:
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False) if name else os.fstat(directory)
    except OSError:
        return None
    return FileState(status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _listing(directory: int, most: int) -> list[tuple[str, bool]]:
    """Names in a directory, and whether each is a directory."""
    try:
        readable = open_beneath(directory, "", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return []
    try:
        with os.scandir(readable) as entries:
            return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in islice(entries, most)]
    finally:
        os.close(readable)
