"""What commands changed of the files that the host may run later, in a live workspace or a staged one's layer.

A look asks which names were made (notify.py), learns what these lead to (ground.py), and compares the state of each
file that may be run (lstat) with the last look: its cost depends on the number of such files, not on the workspace.
Contents are read only where harmless changes are common, such as a remote added to `.git/config`.

Of a workspace with more directories than are watched the deep ones are found by the next session only; if not even the
directories at the top can all be watched, the workspace itself (`.`) is in every result.
"""

from __future__ import annotations

import _thread
import os
import posixpath
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import count
from typing import NamedTuple

from anyio import to_thread

from belljar.runs_later import values
from belljar.runs_later.ground import Ground
from belljar.runs_later.notify import Made, Notifier
from belljar.runs_later.values import LONGEST, Values
from belljar.runs_later.view import FolderView, View
from belljar.syscalls import closing
from belljar.workspace.beneath import open_beneath, parents
from belljar.workspace.survey import MARKS

MOST_READ = (
    1 << 20
)  # bytes of all files that are parsed in one look; any change of the others counts
MOST_NEW = 4096  # directories that commands made
MOST_OPEN = 64  # directories whose descriptors are remembered
MOST_TIMES = 1024  # directories whose times are compared, if there is no notifier
ROUNDS = 8
_FILE_CLOCK = 5  # CLOCK_REALTIME_COARSE, which files get their times from
_TICK = 50_000_000  # ns; a directory that changed so recently may change again without a new time


class FileState(NamedTuple):
    """The state of one file; any change of the file changes it."""

    inode: int
    mode: int
    size: int
    written: int
    changed: int


class Look(NamedTuple):
    states: dict[str, FileState]
    said: Mapping[str, Values | None]
    """Of files whose contents matter: what they say that runs something."""


class Watch:
    view: View
    _host: View | None = None

    def __init__(
        self, root: int, git_directories: Iterable[str] = (), *, host: int | None = None
    ) -> None:
        """`root`: the workspace, or the layer that changes go to. `host`: then the workspace itself."""
        own = FolderView(
            root
        )  # its own descriptor: a command may outlive the mount that it began with
        self._root, self.view = own.folder.descriptor, own
        below = [] if host is None else [FolderView(host)]
        self._prepare([*below, own], (below or [own])[0].place, tuple(git_directories))
        self._host = below[0] if below else None

    def _prepare(
        self, views: Sequence[View], place: str, git_directories: Sequence[str]
    ) -> None:
        self.ground = Ground(views, place, git_directories)
        self._lock = threading.Lock()
        self._notifier: Notifier | None = None
        self._made: list[Made] | None = []
        self._times: dict[str, tuple[int, ...] | None] = {}
        """Of directories, where nobody tells us what was made in them."""
        self._begun, self._cut = False, False
        self._said: dict[str, tuple[FileState, Values | None]] = {}
        self._known, self._when = 0, 0
        """How many directories were known, and when, at the last look."""
        self._open: dict[str, int] = {}
        self._groups: dict[str, list[tuple[str, str]]] = {}
        self._count = -1
        self._unknowns = count(1)
        self._room = MOST_READ
        self._now = Look({}, {})
        self._last: Look | None = None
        self._between: set[str] = set()

    # For the two ends of a command.

    def before(self, busy: bool = False, *, look: bool = True) -> Look:
        """The state before a command. While other commands run (`busy`), files that were written since the last look
        are in the next result: whether a command or the user wrote them is unknown."""
        if look or not self._begun:
            self.look()
        if busy and self._last is not None and self._last is not self._now:
            self._between |= set(self._changed(self._last, self._now))
        self._last = self._now
        return self._now

    def since(self, before: Look, *, look: bool = True) -> tuple[str, ...]:
        """The files that were changed since, and that the host may run."""
        if look:
            self.look()
        self._last = self._now
        new, self._between = {*self._changed(before, self._now), *self._between}, set()
        return tuple(sorted(new))

    def _changed(self, before: Look, now: Look) -> list[str]:
        if before.states is now.states:
            return []
        changed = [
            path
            for path, state in now.states.items()
            if state != before.states.get(path)
        ]
        return [path for path in changed if self._runs(path, before, now)]

    def _runs(self, path: str, before: Look, now: Look) -> bool:
        said = now.said.get(path)
        if said is None:
            return True
        old = (
            before.said.get(path) if path in before.states else self._on_the_host(path)
        )
        return bool(said - (old or frozenset()))

    def _on_the_host(self, path: str) -> Values | None:
        """What the workspace's own file says, of one that a command has just copied into a staged session's layer."""
        if self._host is None or (reader := self.ground.candidates.get(path)) is None:
            return None
        with suppress(OSError):
            return reader(self._host.read(path, LONGEST))
        return None

    # Looking.

    async def refresh(self) -> None:
        """Look now; in a thread if anything was made or changed, since that may take a while."""
        if not self.is_quick():
            await to_thread.run_sync(self.look)

    def look(self) -> None:
        """Look at all of it now. Blocks."""
        with self._lock:
            self._look()

    def is_quick(self) -> bool:
        """Whether nothing was made and no file has changed since the last look."""
        if not self._begun or self._notifier is None or self._lock.locked():
            return False
        with self._lock:
            now = time.clock_gettime_ns(_FILE_CLOCK)
            self._hear()
            if (
                self._made
                or self._made is None
                or "." in self._now.states
                or self._states() != self._now.states
            ):
                return False
            self._when = now
            return True

    def _hear(self) -> None:
        """Ask what was made; None: too much to be told."""
        if self._notifier is not None and self._made is not None:
            made = self._notifier.made()
            self._made = None if made is None else self._made + made

    def _look(self) -> None:
        self._known = len(self.ground.directories)
        now = time.clock_gettime_ns(_FILE_CLOCK)
        self._look_now()
        self._when = now

    def _look_now(self) -> None:
        if not self._begun:
            self._begun = True
            with suppress(OSError):
                self._notifier = Notifier(self._root)
            self._cut = any(
                "/" not in path for path in self.ground.survey([""], self._watch)
            )
            self.ground.most = len(self.ground.directories) + MOST_NEW
        elif self._notifier is None:
            self._look_at_times()
        else:
            self._hear()
            made, self._made = self._made, []
            if made is None:
                self._forget_open()
                self._survey([""])
            else:
                self._learn(made)
        self._take()

    def _take(self) -> None:
        """Take the state of all files as it is now."""
        self.ground.room, self._room = MOST_READ, MOST_READ
        states = self._states()
        for _ in range(ROUNDS):  # what a changed file leads to may lead further
            changed = [
                path
                for path, state in states.items()
                if state != self._now.states.get(path)
            ]
            known = len(self.ground.candidates)
            for path in changed:
                self.ground.learn(path)
            if len(self.ground.candidates) == known:
                break
            states = self._states()
        if self._known:
            self._now.states.update(self._old(states))
        if self._cut or self.ground.unknown:
            states["."] = self._unknown()
        if states != self._now.states:
            self._now = Look(states, self._read(states))

    def _old(self, states: Mapping[str, FileState]) -> dict[str, FileState]:
        """Files that something leads to only now, and that are as they were at the last look."""
        new = (
            path
            for path in self.ground.led
            if path in states and path not in self._now.states
        )
        return {
            path: states[path]
            for path in new
            if states[path].changed < self._when
            and self.ground.is_of_the_first(self._known, posixpath.dirname(path))
        }

    def _survey(self, directories: Sequence[str]) -> None:
        """Look into directories that were made, and all below. If they are too many, nobody knows what is in them."""
        self._cut |= bool(self.ground.survey(directories, self._watch))

    def _watch(self, path: str) -> None:
        self._times[path] = None
        if (
            self._notifier is not None
            and not self._notifier.watch(path)
            and self._time_of(path) is not None
        ):
            self._forget_open()
            self._notifier = None  # no more watches: from now on times are compared

    def _learn(self, made: Sequence[Made]) -> None:
        for directory, name, is_directory, gone in dict.fromkeys(made):
            path = posixpath.join(directory, name)
            self._forget_open(path)
            if gone:
                continue
            if is_directory:
                if self.ground.is_worth(directory, name):
                    self._survey([path])
            else:
                with suppress(OSError):
                    self.ground.see(path, self.view.kind(path))
            if name in MARKS:
                self.ground.look_in(directory)

    def _look_at_times(self) -> None:
        """Without a notifier: a directory's time changes with what is made in it."""
        for path, known in [*self._times.items()][:MOST_TIMES]:
            now = self._time_of(path)
            if now is None:
                del self._times[path]
            elif now != known:
                inner = [
                    posixpath.join(path, name) for name in self.ground.look_in(path)
                ]
                self._survey([each for each in inner if each not in self._times])
                self._cut |= not path and len(inner) > MOST_TIMES
                self._times[path] = now if time.time_ns() - now[-1] > _TICK else None

    def _time_of(self, path: str) -> tuple[int, ...] | None:
        try:
            status = os.stat(path or ".", dir_fd=self._root, follow_symlinks=False)
        except OSError:
            return None
        return (
            (status.st_ino, status.st_ctime_ns)
            if stat.S_ISDIR(status.st_mode)
            else None
        )

    def _states(self) -> dict[str, FileState]:
        found: dict[str, FileState] = {}
        for directory, names in self._grouped().items():
            with suppress(OSError), self._opened(directory) as descriptor:
                for name, path in names:
                    if (state := _state_of(name, descriptor)) is not None:
                        found[path] = state
        return found

    def _grouped(self) -> dict[str, list[tuple[str, str]]]:
        """The files by their directories."""
        if self._count != len(self.ground.candidates):
            self._count, self._groups = len(self.ground.candidates), {}
            for path in self.ground.candidates:
                directory, name = posixpath.split(path)
                self._groups.setdefault(directory, []).append((name, path))
        return self._groups

    @contextmanager
    def _opened(self, directory: str) -> Iterator[int]:
        """A descriptor of a directory, opened without following a link. It is remembered if each directory above is
        watched: then we hear of whatever takes its place."""
        if (known := self._open.get(directory)) is not None:
            yield known
            return
        descriptor = open_beneath(self._root, directory, os.O_PATH | os.O_DIRECTORY)
        above = ["", *parents(directory)]
        if (
            self._notifier is not None
            and len(self._open) < MOST_OPEN
            and self._times.keys() >= {*above}
        ):
            self._open[directory] = descriptor
            yield descriptor
            return
        with closing(descriptor):
            yield descriptor

    def _forget_open(self, made: str = "") -> None:
        """Something else may be at this path, or (empty) anywhere."""
        for directory in [
            each for each in self._open if not made or f"{each}/".startswith(f"{made}/")
        ]:
            os.close(self._open.pop(directory))

    def end(self) -> None:
        """End the kernel's watches, in a thread of its own: that may take the kernel 20 ms."""
        with suppress(RuntimeError):  # the interpreter is ending, and they end with it
            _thread.start_new_thread(self._close, ())

    def _close(self) -> None:
        with self._lock:
            notifier, self._notifier = self._notifier, None
            if notifier is not None:
                notifier.close()

    def __del__(self) -> None:
        if hasattr(self, "_open"):
            self._forget_open()

    def _unknown(self) -> FileState:
        """A state that counts as changed each time."""
        return FileState(next(self._unknowns), stat.S_IFREG, 0, 0, 0)

    # Contents.

    def _read(self, states: Mapping[str, FileState]) -> dict[str, Values | None]:
        said: dict[str, Values | None] = {}
        for path, state in states.items():
            reader = self.ground.candidates.get(path)
            if reader is None or reader is values.anything:
                continue
            known = self._said.get(path)
            if known is None or known[0] != state:
                self._said[path] = known = state, self._values(path, reader)
            said[path] = known[1]
        return said

    def _values(self, path: str, reader: values.Reader) -> Values | None:
        try:
            content = self.view.read(path, min(LONGEST, self._room))
        except OSError:
            return None
        self._room -= len(content)
        return reader(content)


def _state_of(name: str, directory: int) -> FileState | None:
    """None for directories, and for the marks of deleted files in a staged session's layer."""
    try:
        status = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except OSError:
        return None
    if stat.S_ISCHR(status.st_mode) or stat.S_ISDIR(status.st_mode):
        return None
    return FileState(
        status.st_ino,
        status.st_mode,
        status.st_size,
        status.st_mtime_ns,
        status.st_ctime_ns,
    )
