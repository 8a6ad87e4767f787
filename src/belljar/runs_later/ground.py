"""Where the links and settings of one workspace lead: there, too, are files that the host runs.

If `core.hooksPath` is `scripts/hooks`, `.git/hooks/pre-commit` is a link to `scripts/check`, a hook calls
`./tools/lint.sh` or `.claude` is a link to `agents`, then files are run whose names do not show it. And a directory
with a `HEAD` is or may become a git directory, whatever its name.

The ground is learnt by looking into directories, the shallow ones first, each once or when something was made in it.
It only grows: a place that a link once led to stays one.
"""

from __future__ import annotations

import errno
import posixpath
import shlex
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from operator import attrgetter

from belljar.patterns import lazy_pattern
from belljar.runs_later import git, git_settings, values
from belljar.runs_later.table import PACKAGES, is_no_hook, table
from belljar.runs_later.values import Reader
from belljar.runs_later.view import LISTED, Entry, View
from belljar.workspace.beneath import parents

_NAME = attrgetter("name")
MOST_DIRECTORIES = 8192  # that are looked into
MOST_CANDIDATES = 4096
MOST_PLACES = 4096
MOST_LINKS = 40
LONGEST = 64 << 10  # bytes of a file that is searched for names of other files
MOST_READ = 4 << 20  # bytes of all files
MOST_NAMES = 2000
_WORD = lazy_pattern(r"[\w@%+=:,./~-]+")
_PREFIX = lazy_pattern(
    r"^(?:\$\{?\w+\}?|~\+)/"
)  # $CLAUDE_PROJECT_DIR/, ${workspaceFolder}/
_SCRIPT = (
    ".sh",
    ".bash",
    ".zsh",
    ".fish",
    ".py",
    ".js",
    ".mjs",
    ".cjs",
    ".ts",
    ".rb",
    ".pl",
    ".php",
    ".lua",
)
_CI = frozenset(
    (
        "GitHub",
        "GitLab",
        "Travis",
        "Drone",
        "Cirrus",
        "AppVeyor",
        "sourcehut",
        "Woodpecker",
        "Azure",
        "Bitbucket",
        "Cloud Build",
        "CodeBuild",
        "Jenkins",
        "CircleCI",
        "Buildkite",
        "Semaphore",
        "TeamCity",
        "Tekton",
        "Forgejo",
        "Gitea",
        "CI",
    )
)
"""These name half of the project, which is run there on purpose."""


class Ground:
    def __init__(
        self, views: Sequence[View], place: str, git_directories: Sequence[str] = ()
    ) -> None:
        """`views`: of the workspace, and of what is changed in it. `place`: the workspace's path. `git_directories`:
        those that are known already."""
        self._views, self._place = list(views), place
        self.gits: set[str] = set()
        self._places: set[str] = set()
        self.candidates: dict[str, Reader] = {}
        """The files that were found, with how to read each."""
        self.directories: list[str] = []
        self._looked: dict[str, int] = {}
        """Directory → its place in `directories`."""
        self._odd = False
        """Some git directory has another name."""
        self.led: set[str] = set()
        """Those that only something else led to: they may be as they always were."""
        self._leading = False
        self.room = MOST_READ
        """Bytes that may still be read to see where they lead."""
        self.unknown = False
        """There may be more: settings that lead anywhere could not be read, or there are too many files."""
        self.most = MOST_DIRECTORIES
        for path in git_directories:
            self._is_git(path)

    # Asking.

    def reader(self, path: str, *, link: bool = False) -> Reader | None:
        """How to tell whether a change of this file counts; None: it never does."""
        if (above := self._git_above(path)) is not None:
            rest = path[len(above) + 1 :] if above else path
            found = git.reader(rest, partial(self._looks_like_git, above), link=link)
            if found is not None and (
                posixpath.basename(above) == ".git" or git.is_gits_own(rest)
            ):
                return found
            if posixpath.basename(above) == ".git":
                return values.anything if self._is_place(path) else None
        directory, name = posixpath.split(path)
        if (
            name == ".git"
            or self._is_place(path)
            or (name == "HEAD" and self._is_armed(directory))
        ):
            return values.anything
        line = table().find_link(path) if link else table().find(path)
        if line is None:
            return None
        return values.anything if link else line.reader

    def _is_armed(self, directory: str) -> bool:
        """Whether a directory would run something if it became a git directory."""
        hooks = self._entries(posixpath.join(directory, "hooks"))
        if any(not is_no_hook(entry.name) for entry in hooks):
            return True
        settings = [
            posixpath.join(directory, name) for name in ("config", "config.worktree")
        ]
        return any(
            values.git(content) != frozenset()
            for path in settings
            for content in self._contents(path)
        )

    def leads_to(self, directory: str) -> bool:
        """Whether something leads to all that is in this directory."""
        return self._is_place(directory)

    def is_in_git(self, directory: str) -> bool:
        """Whether it is a git directory or in one."""
        return self._git_above(posixpath.join(directory, "x")) is not None

    def _git_above(self, path: str) -> str | None:
        """The outermost git directory that the path is in."""
        if not self._odd and ".git" not in path:  # nearly always
            return None
        above = ["", *parents(path)]
        return next(
            (
                each
                for each in above
                if posixpath.basename(each) == ".git" or each in self.gits
            ),
            None,
        )

    def _is_place(self, path: str) -> bool:
        return bool(self._places) and any(
            each in self._places for each in (*parents(path), path)
        )

    def _looks_like_git(self, above: str, inner: str) -> bool:
        path = posixpath.join(above, inner)
        return path in self.gits or any(
            self._kind(posixpath.join(path, mark)) for mark in ("HEAD", "config")
        )

    # Looking.

    def survey(
        self,
        directories: Sequence[str] = ("",),
        visit: Callable[[str], None] = lambda path: None,
    ) -> list[str]:
        """Look into these directories and all below them, the shallow ones first and those of packages last; returns
        those that were too many, but for packages. `visit` is called before each."""
        waiting, later = deque(directories), deque[str]()
        while waiting or later:
            if len(self.directories) >= self.most:
                return [*waiting]
            path = waiting.popleft() if waiting else later.popleft()
            visit(path)
            for name in self.look_in(path):
                inner = posixpath.join(path, name)
                (waiting if PACKAGES.isdisjoint(inner.split("/")) else later).append(
                    inner
                )
        return []

    def look_in(self, directory: str) -> list[str]:
        """Look into one directory; the names of those in it that are to be looked into as well."""
        if directory not in self._looked:
            self._looked[directory] = len(self.directories)
            self.directories.append(directory)
        entries = self._entries(directory)
        if "HEAD" in map(_NAME, entries) and posixpath.basename(directory) != ".git":
            self._is_git(directory)
        above = self._git_above(posixpath.join(directory, "x"))
        hot = (
            above is not None
            or self._is_place(directory)
            or any(map(table().matters, directory.split("/")))
        )
        matters, inner = table().matters, []
        for entry in entries:
            if entry.kind == "directory":
                inner.append(entry.name)
            elif hot or entry.name in (".git", "HEAD") or matters(entry.name):
                self.see(posixpath.join(directory, entry.name), entry.kind)
        return [name for name in inner if self.is_worth(directory, name)]

    def is_worth(self, directory: str, name: str) -> bool:
        """Whether a directory is to be looked into: where git only stores there is nothing to find."""
        above = self._git_above(posixpath.join(directory, name, "x"))
        if above is None or posixpath.basename(above) != ".git":
            return True
        rest = posixpath.join(directory, name)[len(above) :].strip("/")
        first = rest.partition("/")[0]
        return first not in git.STORES or rest in ("objects", "objects/info")

    def see(self, path: str, kind: str) -> None:
        """Learn of a file or link, for the first time or because it was changed."""
        if posixpath.basename(path) == "HEAD" and self._git_above(path) is None:
            self._is_git(posixpath.dirname(path))
        if (
            kind not in ("file", "link")
            or (found := self.reader(path, link=kind == "link")) is None
        ):
            return
        if path not in self.candidates and len(self.candidates) >= MOST_CANDIDATES:
            self.unknown = True
            return
        if path not in self.candidates and self._leading:
            self.led.add(path)
        self.candidates[path] = found
        if kind == "link":
            self._lead(path)
        else:
            self._follow(path)

    def is_of_the_first(self, number: int, directory: str) -> bool:
        """Whether a directory was looked into when so many were known."""
        return self._looked.get(directory, number) < number

    def learn(self, path: str) -> None:
        """The same for a file that was changed."""
        self.see(path, self._kind(path))

    def _is_git(self, path: str) -> None:
        if path not in self.gits:
            self.gits.add(path)
            self._odd |= ".git" not in path
            for name in ("config", "config.worktree", "commondir", "hooks"):
                self._look_at_place(posixpath.join(path, name))

    # Following.

    def _follow(self, path: str) -> None:
        """Learn where the contents of a file lead."""
        if posixpath.basename(path) == ".git":
            for content in self._contents(path):
                named = (
                    content.partition(b"gitdir:")[2]
                    .strip()
                    .decode("utf-8", "surrogateescape")
                )
                if target := self._below(posixpath.dirname(path), named):
                    self._is_git(target)
        elif git.is_settings(path) and (above := self._git_above(path)) is not None:
            for content in self._contents(path, values.LONGEST, must=True):
                for name in self._named_by_settings(above, content):
                    self._mark(name)
        elif (line := table().find(path)) is None or line.who not in _CI:
            for content in self._contents(path):
                for name in self._named(path, content):
                    self._mark(name)

    def _named_by_settings(self, directory: str, content: bytes) -> Iterator[str]:
        above = posixpath.dirname(directory)
        for setting in git_settings.settings(content) or ():
            if (setting.section, setting.key) == ("core", "hookspath"):
                yield from filter(None, (self._below(above, setting.value),))
            elif setting.section in ("include", "includeif") and setting.key == "path":
                yield from filter(None, (self._below(directory, setting.value),))
            elif not setting.harmless:
                with suppress(ValueError):
                    for word in shlex.split(setting.value.lstrip("!")):
                        found = self._below(above, word)
                        if found and self._kind(found) == "file":
                            yield found

    def _named(self, path: str, content: bytes) -> Iterator[str]:
        """Programs and scripts of the workspace that a file names: relative to the workspace's top, to the file's own
        directory, or to the one above it."""
        try:
            texts = list(values.strings(values.parsed_json(content)))
        except (ValueError, RecursionError):
            texts = [content.decode("utf-8", "replace")]
        words = {word for text in texts for word in _WORD.findall(text)[:MOST_NAMES]}
        own = posixpath.dirname(path)
        for word in sorted(words)[:MOST_NAMES]:
            name = _PREFIX.sub("", word)
            if not name.endswith(_SCRIPT) and "/" not in name:
                continue
            for start in dict.fromkeys(("", posixpath.dirname(own), own)):
                found = self._below(start, name)
                if found and found != path and self._is_script(found):
                    yield found

    def _is_script(self, path: str) -> bool:
        if path.endswith(_SCRIPT):
            return self._kind(path) == "file"
        for view in self._views:
            with suppress(OSError):
                if view.is_program(path):
                    return True
        return False

    def _lead(self, path: str) -> None:
        """Follow a link, step by step, as far as it stays in the workspace."""
        for _ in range(MOST_LINKS):
            target = next(
                (each for view in self._views if (each := _link(view, path))), None
            )
            found = self._below(posixpath.dirname(path), target) if target else None
            if found is None:
                return
            found = self._through(found)
            self._mark(found)
            path = found

    def _through(self, path: str) -> str:
        """The path with a link among its directories replaced by what it leads to."""
        for above in parents(path):
            if self._kind(above) == "link":
                target = next(
                    (each for view in self._views if (each := _link(view, above))), ""
                )
                found = self._below(posixpath.dirname(above), target)
                if found is not None:
                    return posixpath.normpath(
                        posixpath.join(found, path[len(above) + 1 :])
                    )
        return path

    def _mark(self, path: str) -> None:
        """From now on this file, or all in this directory, is run."""
        if (
            path in self._places
            or len(self._places) >= MOST_PLACES
            or posixpath.basename(path) == ".git"
        ):
            return
        self._places.add(path)
        self._look_at_place(path)

    def _look_at_place(self, path: str) -> None:
        before, self._leading = self._leading, True
        try:
            self._look_at_all_of(path)
        finally:
            self._leading = before

    def _look_at_all_of(self, path: str) -> None:
        kind = self._kind(path)
        if kind == "directory":
            for entry in self._entries(path):
                if entry.kind == "directory":
                    self._look_at_all_of(posixpath.join(path, entry.name))
                elif posixpath.join(path, entry.name) not in self.candidates:
                    self.see(posixpath.join(path, entry.name), entry.kind)
        elif kind and path not in self.candidates:
            self.see(path, kind)

    # Reading.

    def _below(self, start: str, name: str) -> str | None:
        """A name in the workspace, relative to a directory of it or absolute, as a path below its top."""
        if name.startswith("/"):
            name = posixpath.relpath(name, self._place)
            start = ""
        path = posixpath.normpath(posixpath.join(start, name))
        return (
            None
            if path in (".", "..") or path.startswith("../") or "\0" in path
            else path
        )

    def _entries(self, directory: str) -> list[Entry]:
        found: dict[str, Entry] = {}
        for view in self._views:
            with suppress(OSError):
                for entry in view.entries(directory):
                    found[entry.name] = entry
        self.unknown |= len(found) >= LISTED
        return [found[name] for name in sorted(found)]

    def _kind(self, path: str) -> str:
        for view in reversed(self._views):
            with suppress(OSError):
                return view.kind(path)
        return ""

    def _contents(
        self, path: str, most: int = LONGEST, *, must: bool = False
    ) -> list[bytes]:
        """What all views have at a path, as far as there is room. `must`: a file that is too long may lead anywhere."""
        found: list[bytes] = []
        for view in self._views:
            try:
                content = view.read(path, min(most, self.room))
            except OSError as error:
                self.unknown |= must and error.errno == errno.EFBIG
                continue
            self.room -= len(content)
            found.append(content)
        return found


def _link(view: View, path: str) -> str:
    try:
        return view.readlink(path)
    except OSError:
        return ""
