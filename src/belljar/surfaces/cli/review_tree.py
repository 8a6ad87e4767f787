"""The left side of `belljar review`: changes as a tree of directories, and which of them are chosen.

A directory stands for the changes below it, which are the items from `first` to before `last`. New directories with
many files are folded at first.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

from belljar.staged.change import Change
from belljar.surfaces.cli.staged_choice import Item

Mark = Literal["[x]", "[ ]", "[-]"]
FOLDED = 20  # files of a new directory that is folded at first


@dataclass(eq=False)
class Node:
    """A row: a directory with changes in it, or one change."""

    path: str
    depth: int
    first: int
    item: Item | None = None
    is_new: bool = False
    last: int = 0
    is_open: bool = True
    below: list[Node] = field(default_factory=list)

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)


class Tree:
    def __init__(self, changes: Sequence[Change]) -> None:
        self.items: list[Item] = []
        self._top = Node("", -1, 0, is_new=False)
        self._fill(changes)
        self.rows: list[Node] = []
        self.unfold()

    def _fill(self, changes: Sequence[Change]) -> None:
        """The changes come in the order of a walk: a directory before its contents."""
        open_now = [self._top]
        for number, change in enumerate(changes):
            while open_now[-1] is not self._top and not change.path.startswith(
                f"{open_now[-1].path}/"
            ):
                self._close(open_now.pop())
            follows = changes[number + 1].path if number + 1 < len(changes) else ""
            holds = not change.members and follows.startswith(f"{change.path}/")
            for above in self._missing(
                open_now[-1], change.path if holds else posixpath.dirname(change.path)
            ):
                node = Node(above, open_now[-1].depth + 1, len(self.items))
                open_now[-1].below.append(node)
                open_now.append(node)
            if holds and change.kind in (
                "added",
                "type",
            ):  # it comes with what is in it
                open_now[-1].is_new = change.kind == "added"
                continue
            item = Item([change])
            self.items.append(item)
            open_now[-1].below.append(
                Node(change.path, open_now[-1].depth + 1, len(self.items) - 1, item)
            )
            open_now[-1].below[-1].last = len(self.items)
        while open_now:
            self._close(open_now.pop())

    def _close(self, node: Node) -> None:
        node.last = len(self.items)
        node.is_open = not node.is_new or node.last - node.first <= FOLDED

    @staticmethod
    def _missing(above: Node, path: str) -> Iterator[str]:
        """The directories from below `above` down to `path`."""
        inner = path[len(above.path) :].strip("/") if path else ""
        for end in range(1, len(inner.split("/")) + 1 if inner else 1):
            yield posixpath.join(above.path, *inner.split("/")[:end])

    def unfold(self) -> None:
        """Make the rows that are seen."""
        self.rows = [*self._seen(self._top)]

    def _seen(self, node: Node) -> Iterator[Node]:
        waiting = [iter(node.below)]
        while waiting:
            for each in waiting[-1]:
                yield each
                if each.below and each.is_open:
                    waiting.append(iter(each.below))
                    break
            else:
                waiting.pop()

    def fold(self, node: Node, *, is_open: bool) -> None:
        node.is_open = is_open
        self.unfold()

    def above(self, node: Node) -> Node | None:
        """The row of the directory that a row is in."""
        parent = (
            posixpath.dirname(node.path)
            if node.item is None or not self._is_own(node)
            else node.path
        )
        return next(
            (each for each in self.rows if each.item is None and each.path == parent),
            None,
        )

    @staticmethod
    def _is_own(node: Node) -> bool:
        """Whether a row is the change of a directory itself, in the row of that directory."""
        change = node.item.change if node.item else None
        return (
            change is not None
            and change.is_directory
            and not change.members
            and change.kind == "mode"
        )

    def show(self, item: Item) -> int:
        """Unfold what is around an item; the number of its row."""
        path = item.change.path
        node = self._top
        while node.item is not item:
            node.is_open = True
            node = next(
                each
                for each in node.below
                if each.first <= self._number(item) < each.last
            )
        self.unfold()
        return next(
            number
            for number, each in enumerate(self.rows)
            if each.item is item and each.path == path
        )

    def _number(self, item: Item) -> int:
        return self.items.index(item)

    # Choosing.

    def mark(self, node: Node) -> Mark:
        chosen = sum(
            self.items[number].answer == "y" for number in range(node.first, node.last)
        )
        if node.item is not None:
            return "[-]" if chosen and node.item.hunks else "[x]" if chosen else "[ ]"
        return "[x]" if chosen == node.last - node.first else "[-]" if chosen else "[ ]"

    @property
    def chosen(self) -> list[Item]:
        return [item for item in self.items if item.answer == "y"]

    def toggle(self, node: Node) -> list[Item]:
        """Choose what a row stands for, or let it go. Of a directory, what needs a yes of its own is left out; that is
        returned."""
        if node.item is not None:
            if node.item.can_be_applied:
                node.item.decide("n" if node.item.answer == "y" else "y")
            return []
        return self.choose(node.first, node.last)

    def toggle_all(self) -> list[Item]:
        return self.choose(0, len(self.items))

    def choose(self, first: int, last: int) -> list[Item]:
        found = [item for item in self.items[first:last] if item.can_be_applied]
        easy = [item for item in found if not item.needs_own_yes]
        if any(item.answer != "y" for item in easy):
            for item in easy:
                item.decide("y")
            return [item for item in found if item.needs_own_yes and item.answer != "y"]
        for item in found:
            item.decide("n")
        return []
