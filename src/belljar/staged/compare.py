"""Two staged sessions of one workspace, against each other: which of n attempts is best?"""

from __future__ import annotations

from belljar.errors import UsageError
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.staged.diff import Sides, hunk_text, quoted
from belljar.staged.layers import Layers, flattened
from belljar.staged.matching import Matcher

LARGEST = 1 << 20


def compared(one: StagedArea, other: StagedArea) -> str:
    """From `one` to `other`, as a diff; files that are the same in both are left out."""
    if one.meta["inode"] != other.meta["inode"]:
        raise UsageError("the two sessions have different workspaces")
    with one.layers() as left, other.layers() as right:
        ours = {change.path: change for change in flattened(left.changes())}
        theirs = {change.path: change for change in flattened(right.changes())}
        paths = sorted({*ours, *theirs})
        return "".join(
            _one(path, left, right, ours.get(path), theirs.get(path)) for path in paths if ".git/" not in path
        )


def _one(path: str, left: Layers, right: Layers, ours: Change | None, theirs: Change | None) -> str:
    old, new = _text(left, path, ours), _text(right, path, theirs)
    if old == new:
        return ""
    head = f"diff --git {quoted(f'a/{path}')} {quoted(f'b/{path}')}\n"
    names = [
        quoted(f"a/{path}") if old is not None else "/dev/null",
        quoted(f"b/{path}") if new is not None else "/dev/null",
    ]
    if any(text is not None and b"\0" in text for text in (old, new)):
        return f"{head}Binary files {names[0]} and {names[1]} differ\n"
    sides = Sides((old or b"").splitlines(keepends=True), (new or b"").splitlines(keepends=True))
    groups = Matcher(sides.old, sides.new).get_grouped_opcodes(3)
    return head + f"--- {names[0]}\n+++ {names[1]}\n" + "".join(hunk_text(sides, list(group)) for group in groups)


def _text(layers: Layers, path: str, change: Change | None) -> bytes | None:
    """A file's contents in a session; None where there is none, or it is no file."""
    if change is not None and (change.after is None or change.after.kind == "directory"):
        return None
    if change is not None and change.after is not None and change.after.kind == "link":
        return (change.after.target or "").encode("utf-8", "surrogateescape")
    folder = layers.holder(path) if change is not None else layers.lower
    try:
        return folder.read(path, LARGEST) if folder is not None else None
    except OSError:
        return None
