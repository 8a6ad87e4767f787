"""Three-way merge of text, and its bases: files as they were before a staged session changed them.

A base is saved when changes are listed (`changes`, a checkpoint, the end of the session), if the host has not touched
the file since the session began: then the file in the workspace is the base. Without a base there can be no merge.

    <area>/base/<path's digest>          the base
    <area>/base/<path's digest>.merged   after an apply: the sandbox's side, which is the base of the next one
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from belljar.staged import git_index
from belljar.staged.change import Change
from belljar.staged.conflicts import is_newer
from belljar.staged.copying import fingerprint, user_attributes
from belljar.staged.diff import LARGEST, lines_of, split_lines
from belljar.staged.layers import Began, Layers, flattened
from belljar.staged.matching import Matcher
from belljar.workspace.beneath import Folder

FOLDER = "base"
NEXT = ".next"  # a base of a merge that is not applied yet
MOST_FILES = 2000
_DIGEST = 32
Lines = Sequence[bytes]


def merged(base: Lines, host: Lines, sandbox: Lines) -> list[bytes] | None:
    """The text with the changes of both sides; None if these overlap."""
    result: list[bytes] = []
    at = (0, 0, 0)
    for start, mine, other, length in [
        *_common(base, host, sandbox),
        (len(base), len(host), len(sandbox), 0),
    ]:
        piece = _either(base[at[0] : start], host[at[1] : mine], sandbox[at[2] : other])
        if piece is None:
            return None
        result += [*piece, *base[start : start + length]]
        at = (start + length, mine + length, other + length)
    return result


def _either(base: Lines, host: Lines, sandbox: Lines) -> Lines | None:
    if sandbox in (host, base):
        return host
    return sandbox if host == base else None


def _common(
    base: Lines, host: Lines, sandbox: Lines
) -> Iterator[tuple[int, int, int, int]]:
    """Blocks of lines that all three have: their positions, and the number of lines."""
    left, right = _blocks(base, host), _blocks(base, sandbox)
    while left and right:
        (a, b, n), (c, d, m) = left[-1], right[-1]
        start, end = max(a, c), min(a + n, c + m)
        if start < end:
            yield start, b + start - a, d + start - c, end - start
        (left if a + n < c + m else right).pop()


def _blocks(base: Lines, side: Lines) -> list[tuple[int, int, int]]:
    """Matching blocks, the last one first."""
    return [
        (block.a, block.b, block.size)
        for block in reversed(Matcher(base, side).get_matching_blocks())
    ]


# Bases.


def keep_bases(area: Began, layers: Layers, changes: Iterable[Change]) -> None:
    """Save the bases of modified files. A full disk is no error: then there is no base."""
    modified = [
        c
        for c in flattened(list(changes))
        if c.kind == "modified" and c.before and c.before.kind == "file"
    ]
    with suppress(OSError), Folder.at(area.path) as own:
        with suppress(FileExistsError):
            own.mkdir(FOLDER, 0o700)
        known = set(own.names(FOLDER))
        applied = area.applied
        for change in modified[: MOST_FILES - len(known)]:
            small = (
                not change.binary and change.before and change.before.size <= LARGEST
            )
            if (small or git_index.is_index(change.path)) and _name(
                change.path
            ) not in known:
                _keep(own, layers.lower, change.path, area.since, applied)


def _keep(
    own: Folder, lower: Folder, path: str, since: int, applied: Mapping[str, int]
) -> None:
    """Of git's index only its meaning is saved."""
    if is_newer(path, lower.stat(path), since, applied):
        return
    content = (
        (git_index.meaning_of(lower, path) or b"")
        if git_index.is_index(path)
        else lower.read(path, LARGEST)
    )
    if not is_newer(
        path, lower.stat(path), since, applied
    ):  # not changed while we read it either
        _put(own, _name(path), content)


def _put(own: Folder, name: str, content: bytes) -> None:
    """Without fsync: the digest shows whether a crash has cut it off."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(own.open(f"{FOLDER}/{name}", flags, 0o600), "wb") as file:
        file.write(hashlib.sha256(content).digest() + content)


def base_of(area: Began, path: str) -> bytes | None:
    """The file as it was before the session changed it, if that is known."""
    with suppress(OSError), Folder.at(area.path) as own:
        return _base(own, path)
    return None


def _base(own: Folder, path: str) -> bytes | None:
    for name in (f"{_name(path)}.merged", _name(path)):
        with suppress(OSError):
            data = own.read(f"{FOLDER}/{name}", LARGEST + _DIGEST)
            if hashlib.sha256(data[_DIGEST:]).digest() == data[:_DIGEST]:
                return data[_DIGEST:]
    return None


def is_as_it_was(area: Began, layers: Layers, path: str) -> bool:
    """Whether a file that the host rewrote has the same contents, or the same meaning, as when the session began: after
    `git status` (its index), `touch`, or a reverted change."""
    lower, holder = layers.lower, layers.holder(path)
    with suppress(OSError), Folder.at(area.path) as own:
        base = _base(own, path)
        if (
            base is None
            or holder is None
            or lower.stat(path).st_mode != holder.stat(path).st_mode
        ):
            return False  # either side may have changed the mode
        content = (
            git_index.meaning_of(lower, path)
            if git_index.is_index(path)
            else lower.read(path, LARGEST)
        )
        return content == base and user_attributes(lower, path) == user_attributes(
            holder, path
        )
    return False


def take_next_bases(own: Folder, paths: Iterable[str]) -> None:
    """These merges were applied: what the sandbox had then is the base of the next ones."""
    for path in paths:
        with suppress(FileNotFoundError):
            own.rename(
                f"{FOLDER}/{_name(path)}{NEXT}", f"{FOLDER}/{_name(path)}.merged"
            )


def forget_bases(
    own: Folder, paths: Iterable[str], ends: Sequence[str] = ("", ".merged")
) -> None:
    with suppress(FileNotFoundError):
        known = {*own.names(FOLDER)}
        for name in known.intersection(
            f"{_name(path)}{end}" for path in paths for end in ends
        ):
            with suppress(OSError):
                own.unlink(f"{FOLDER}/{name}")


def keep_applied(
    own: Folder, lower: Folder, applied: Iterable[str], whole: Iterable[str]
) -> None:
    """Forget the bases of what was just applied, and save the files that were applied whole as the next ones, unless
    there are very many. The old files are written again: ext4 makes files slowly where many were just removed."""
    with suppress(FileExistsError):
        own.mkdir(FOLDER, 0o700)
    kept = dict.fromkeys(islice(whole, MOST_FILES))
    forget_bases(own, [path for path in applied if path not in kept])
    known = {*own.names(FOLDER)}
    for path in kept:
        name, after = _name(path), f"{_name(path)}.merged"
        if name in known:
            own.rename(f"{FOLDER}/{name}", f"{FOLDER}/{after}")
        try:
            content = lower.read(path, LARGEST)
            is_index = git_index.is_index(path)
            _put(own, after, git_index.meaning(content) or b"" if is_index else content)
        except OSError:
            with suppress(OSError):
                own.unlink(f"{FOLDER}/{after}")


def _name(path: str) -> str:
    return hashlib.sha256(path.encode("utf-8", "surrogateescape")).hexdigest()


# Merging conflicts away.


def merge_conflicts(
    area: Began, layers: Layers, changes: Iterable[Change]
) -> tuple[dict[str, bytes], dict[str, str], dict[str, str]]:
    """Merges text files. Returns the merged contents, the digests of the sandbox's files, and the paths with
    overlapping changes. Until it is applied a merge changes no base."""
    contents, digests, overlapping = {}, {}, {}
    with Folder.at(area.path) as own:
        for change in changes:
            holder, base = layers.holder(change.path), _base(own, change.path)
            sandbox = lines_of(holder, change.path, change.after)
            host = lines_of(layers.lower, change.path, change.before)
            if change.kind != "modified" or change.binary:
                continue
            if holder is None or base is None or sandbox is None or host is None:
                continue
            result = merged(split_lines(base), host, sandbox)
            if result is None:
                overlapping[change.path] = (
                    "the host and the sandbox changed the same lines"
                )
            else:
                contents[change.path] = b"".join(result)
                digests[change.path] = fingerprint(
                    holder, change.path, b"".join(sandbox)
                )
                _put(own, f"{_name(change.path)}{NEXT}", b"".join(sandbox))
    return contents, digests, overlapping
