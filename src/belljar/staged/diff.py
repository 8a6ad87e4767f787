"""Changes as a diff in git's format, which `git apply` and `patch` accept."""

from __future__ import annotations

import stat
from collections import Counter
from collections.abc import Iterable, Iterator

from belljar.patterns import lazy_pattern
from belljar.records import record
from belljar.staged.change import Change, Entry, counted
from belljar.staged.layers import Layers
from belljar.staged.matching import Matcher
from belljar.workspace.beneath import Folder

LARGEST = 1 << 20  # bytes of a file that is compared line by line
MOST_LINES = 20_000
MOST_MATCHED = 2000  # lines of both sides that are counted by matching them
_LINE = lazy_pattern(rb"[^\n]*\n|[^\n]+")
_ODD = {
    "too_deep": "a directory nested too deeply",
    "fifo": "a FIFO",
    "socket": "a socket",
    "device": "a device",
}
_MODES = {"file": stat.S_IFREG, "link": stat.S_IFLNK, "directory": stat.S_IFDIR}


@record
class Sides:
    """The lines of a text file, on the host and staged."""

    old: list[bytes]
    new: list[bytes]


def unified(layers: Layers, changes: Iterable[Change]) -> str:
    return "".join(
        text
        for change in changes
        for text in of_sides(change, text_sides(layers, change))
    )


def of_sides(change: Change, sides: Sides | None) -> Iterator[str]:
    """A change as a diff. `sides` None: it cannot be compared line by line."""
    yield f"diff --git {_name('a', change.path)} {_name('b', change.path)}\n"
    if change.members:
        yield f"# {counted(change.members)} in {quoted(change.path)}\n"
        return
    yield from _modes(change)
    if odd := [kind for kind in change.kinds if kind not in _MODES]:
        yield f"# {_ODD[odd[-1]]}: cannot be applied\n"
        return
    if sides is None:
        if change.kind != "mode" and {*change.kinds} != {"directory"}:
            yield f"Binary files {_name('a', change.path)} and {_name('b', change.path)} differ\n"
        return
    yield from _hunks(change, sides)


def _modes(change: Change) -> Iterator[str]:
    before, after = change.before, change.after
    if before is None and after is not None:
        yield f"new file mode {_mode(after):06o}\n"
    elif after is None and before is not None:
        yield f"deleted file mode {_mode(before):06o}\n"
    elif before is not None and after is not None and _mode(before) != _mode(after):
        yield f"old mode {_mode(before):06o}\nnew mode {_mode(after):06o}\n"


def _mode(entry: Entry) -> int:
    return _MODES.get(entry.kind, 0) | (0 if entry.kind == "link" else entry.mode)


def text_sides(layers: Layers, change: Change) -> Sides | None:
    """The lines of both sides; None if they are not text or too large."""
    if change.kind == "mode" or change.binary:
        return None
    old = lines_of(layers.lower, change.path, change.before)
    holder = layers.holder(change.path)
    new = (
        lines_of(holder, change.path, change.after)
        if holder is not None or change.after is None
        else None
    )
    return None if old is None or new is None else Sides(old, new)


def lines_of(
    folder: Folder | None, path: str, entry: Entry | None
) -> list[bytes] | None:
    if entry is None:
        return []
    if entry.kind == "link":
        return [(entry.target or "").encode("utf-8", "surrogateescape")]
    if entry.kind != "file" or entry.size > LARGEST or folder is None:
        return None
    try:
        lines = split_lines(folder.read(path, LARGEST))
    except OSError:
        return None
    return lines if len(lines) <= MOST_LINES else None


def split_lines(data: bytes) -> list[bytes]:
    return _LINE.findall(data)


def _hunks(change: Change, sides: Sides) -> Iterator[str]:
    if sides.old == sides.new and change.kind == "modified":
        yield "# extended attributes differ\n"
    yield from named_hunks(*names(change.path, change.before, change.after), sides)


def names(path: str, before: Entry | None, after: Entry | None) -> tuple[str, str]:
    """Of both sides, as a diff shows them."""
    return _name("a", path) if before else "/dev/null", _name(
        "b", path
    ) if after else "/dev/null"


def named_hunks(old: str, new: str, sides: Sides) -> Iterator[str]:
    for number, group in enumerate(hunks(sides)):
        yield f"--- {old}\n+++ {new}\n" if number == 0 else ""
        yield hunk_text(sides, group)


Opcode = tuple[str, int, int, int, int]


def hunk_text(sides: Sides, group: list[Opcode]) -> str:
    start, end = group[0], group[-1]
    lines = [f"@@ -{_range(start[1], end[2])} +{_range(start[3], end[4])} @@\n"]
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            lines += [_line(" ", each) for each in sides.old[i1:i2]]
            continue
        lines += [_line("-", each) for each in sides.old[i1:i2]]
        lines += [_line("+", each) for each in sides.new[j1:j2]]
    return "".join(lines)


def _range(start: int, stop: int) -> str:
    length = stop - start
    return (
        f"{start + 1}"
        if length == 1
        else f"{start if length == 0 else start + 1},{length}"
    )


def _line(sign: str, line: bytes) -> str:
    text = line.decode("utf-8", "surrogateescape")
    return (
        f"{sign}{text}"
        if text.endswith("\n")
        else f"{sign}{text}\n\\ No newline at end of file\n"
    )


def hunks(sides: Sides) -> list[list[Opcode]]:
    return [
        list(group) for group in Matcher(sides.old, sides.new).get_grouped_opcodes(3)
    ]


def with_hunks(sides: Sides, chosen: list[list[Opcode]]) -> bytes:
    """The host's text with only these hunks applied."""
    wanted = {
        (code[1], code[2], code[3], code[4])
        for group in chosen
        for code in group
        if code[0] != "equal"
    }
    result: list[bytes] = []
    for tag, i1, i2, j1, j2 in Matcher(sides.old, sides.new).get_opcodes():
        taken = tag != "equal" and (i1, i2, j1, j2) in wanted
        result += sides.new[j1:j2] if taken else sides.old[i1:i2]
    return b"".join(result)


def _name(side: str, path: str) -> str:
    return quoted(f"{side}/{path}")


def quoted(path: str) -> str:
    """A path quoted as git does, if it has control characters, quotes or invalid UTF-8."""
    raw = path.encode("utf-8", "surrogateescape")
    if path.isprintable() and '"' not in path and "\\" not in path:
        return path
    return '"' + "".join(_escaped(byte) for byte in raw) + '"'


def _escaped(byte: int) -> str:
    special = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 92: "\\\\"}
    return special.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}")


def numbers(sides: Sides) -> tuple[int, int]:
    """How many lines are added and removed. Of large texts moved lines are not counted."""
    old, new = Counter(sides.old), Counter(sides.new)
    if len(sides.old) + len(sides.new) > MOST_MATCHED:
        return (new - old).total(), (old - new).total()
    codes = [
        code
        for code in Matcher(sides.old, sides.new).get_opcodes()
        if code[0] != "equal"
    ]
    return sum(j2 - j1 for *_, j1, j2 in codes), sum(
        i2 - i1 for _, i1, i2, _, _ in codes
    )


def lines_counted(text: str) -> tuple[int, int]:
    """How many lines a diff adds and removes."""
    hunks = "\n".join(text.split("\n@@")[1:]).splitlines()
    return sum(line.startswith("+") for line in hunks), sum(
        line.startswith("-") for line in hunks
    )
