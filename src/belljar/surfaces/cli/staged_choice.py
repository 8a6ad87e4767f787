"""`belljar apply -p`: decide change by change and hunk by hunk, forwards and backwards; nothing is applied before that.

A new directory is one question. What was chosen is applied together, so that one undo takes all of it back.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from belljar.errors import UsageError
from belljar.staged.apply import Applied
from belljar.staged.change import Change, counted, in_bytes, select
from belljar.staged.diff import quoted
from belljar.staged.review import Review, Shown
from belljar.surfaces.cli import console
from belljar.surfaces.cli.signals import answering
from belljar.surfaces.terminal import colours

LETTERS = {
    "y": "apply it",
    "n": "leave it staged",
    "a": "apply it and all that follow in this directory",
    "d": "leave it and all that follow in this directory staged",
    "s": "decide hunk by hunk",
    "e": "edit it: what is in the editor when it ends is applied",
    "m": "apply both sides' changes: yours and the sandbox's",
    "t": "show what you changed and what the sandbox changed",
    "j": "leave it undecided, go to the next",
    "k": "go back to the one before",
    "/": "go to the next that holds a text",
    "q": "leave this and all that follow staged",
    "?": "print this help",
}
MOST_NAMED = 20  # files of a new directory that are listed


def ask(question: str) -> str:
    """The user's answer; `q` at the end of input."""
    if not sys.stdin.isatty():
        raise UsageError("choosing needs a terminal; name the paths instead")
    sys.stderr.write(question)
    sys.stderr.flush()
    try:
        with answering():
            answer = sys.stdin.readline()
    except KeyboardInterrupt:
        answer = ""
    if not answer:
        sys.stderr.write("\n")
    return answer.strip().lower() if answer else "q"


@dataclass(eq=False)
class Item:
    """One question: a change, or a new directory with all that is in it."""

    changes: list[Change]
    directory: bool = False
    answer: str = ""
    """`y`, `n`, or empty while it is undecided."""
    hunks: list[int] = field(default_factory=list)
    """Of these only, if only some were chosen."""
    text: bytes | None = None
    """As it was edited."""
    both: bool = False
    """The host's change is kept as well."""

    @property
    def change(self) -> Change:
        return self.changes[0]

    @property
    def above(self) -> str:
        return posixpath.dirname(self.change.path)

    @property
    def needs_own_yes(self) -> bool:
        """Whether a yes to all is no yes to this: the host would run it, or it replaces the host's own change."""
        return any(change.runs_later or change.conflict for change in self.changes)

    @property
    def can_be_applied(self) -> bool:
        return all(change.can_be_applied for change in self.changes)

    def decide(
        self,
        answer: str,
        *,
        hunks: Sequence[int] = (),
        text: bytes | None = None,
        both: bool = False,
    ) -> None:
        self.answer, self.hunks, self.text, self.both = answer, [*hunks], text, both


def line(change: Change) -> str:
    """`~ src/app.py`, with notes."""
    notes: list[str] = [change.kind] if change.kind in ("mode", "type") else []
    notes += [counted(change.members)] if change.members else []
    notes += ["the host would run it"] if change.runs_later else []
    notes += (
        [f"binary, {in_bytes(change.size)}"]
        if change.binary and not change.members
        else []
    )
    notes += ["changed on your side too"] if change.conflict else []
    return f"{change.mark} {quoted(change.path)}" + (
        f"  ({', '.join(notes)})" if notes else ""
    )


def choose(
    review: Review, paths: list[str] | None, *, ignored: bool = False
) -> Applied:
    if not sys.stdin.isatty():
        raise UsageError("choosing needs a terminal; name the paths instead")
    changes = review.listed(ignored=ignored or paths is not None)
    return Choice(review, items_of(select(changes, paths, parents=False))).made()


def items_of(changes: Sequence[Change]) -> list[Item]:
    """The questions. Files that the host would run are asked about one by one."""
    items: list[Item] = []
    folder: Item | None = None
    for change in changes:
        if (
            folder is not None
            and change.path.startswith(f"{folder.change.path}/")
            and not change.runs_later
        ):
            folder.changes.append(change)
            continue
        is_new = change.kind == "added" and change.is_directory and not change.members
        items.append(Item([change], directory=is_new))
        folder = items[-1] if is_new else folder
    return [
        item
        for item in items
        if not (item.directory and len(item.changes) == 1 and _holds(item, items))
    ]


def _holds(item: Item, items: Sequence[Item]) -> bool:
    return any(
        other is not item and other.change.path.startswith(f"{item.change.path}/")
        for other in items
    )


class Choice:
    def __init__(self, review: Review, items: list[Item]) -> None:
        self._review, self._items = review, items
        self._shown: dict[str, Shown] = {}

    def made(self) -> Applied:
        """Ask about each, and apply what was chosen."""
        at = 0
        while 0 <= at < len(self._items):
            at = self._ask(at)
        return self.applied()

    def applied(self) -> Applied:
        """Apply what was chosen, all at once."""
        chosen: dict[Change, Shown] = {}
        contents: dict[str, bytes] = {}
        for item in self._items:
            if item.answer != "y":
                continue
            for change in item.changes:
                chosen[change.plain] = self.show(change)
            if item.text is not None:
                contents[item.change.path] = item.text
            elif item.hunks:
                contents[item.change.path] = self._review.with_hunks(
                    item.change, item.hunks
                )
        single = [
            item for item in self._items if not item.directory and item.change.conflict
        ]
        return self._review.apply_chosen(
            chosen,
            contents,
            over=[item.change.path for item in single if not item.both],
            both=[item.change.path for item in single if item.both],
        )

    def show(self, change: Change) -> Shown:
        if change.path not in self._shown:
            self._shown[change.path] = self._review.show(change)
        return self._shown[change.path]

    def _ask(self, at: int) -> int:
        """Ask about one; the number of the next."""
        item = self._items[at]
        self._print(item)
        if not item.change.can_be_applied:
            return at + 1
        hunks = self._hunks(item)
        answer = self._letter(item, hunks)
        if answer == "q":
            return len(self._items)
        if answer == "k":
            return max(0, at - 1)
        if answer == "/":
            return self._found(at, ask("search for: "))
        if answer in "ad":
            return self._all_of_directory(at, "y" if answer == "a" else "n")
        if answer == "s" and item.directory:
            self._unfold(at)
            return at
        if answer == "t":
            console.say(self._review.three(item.change.path).rstrip("\n"))
            return at
        if answer == "e":
            item.decide("y", text=self.edited(item))
        elif answer == "s":
            chosen, over = self._chosen_hunks(hunks)
            item.decide("y" if chosen else "n", hunks=chosen)
            return len(self._items) if over else at + 1
        elif answer == "m":
            item.decide("y", both=True)
        elif answer in "yn":
            item.decide(answer)
        return at + 1

    def _print(self, item: Item) -> None:
        change = item.change
        if not item.directory:
            for text in self.show(change).text.rstrip("\n").split("\n"):
                console.say(text, colours.coloured)
            if change.binary and not change.members:
                console.say(f"# binary, {in_bytes(change.size)}")
            if change.conflict:
                console.say(
                    f"# {change.conflict}; the diff is against your file as it is now: yes undoes your change"
                )
            return
        files = [each for each in item.changes if not each.is_directory]
        console.say(
            f"+ {quoted(change.path)}/  {len(files)} new, {in_bytes(sum(each.size for each in files))}"
        )
        for each in files[:MOST_NAMED]:
            console.say(f"    {quoted(each.path)}")
        if len(files) > MOST_NAMED:
            console.say(f"    … and {len(files) - MOST_NAMED} more")

    def _letter(self, item: Item, hunks: list[str]) -> str:
        """Ask until the answer is one that there is. Any other answer explains them."""
        several = len(self._items) > 1
        letters = [
            *"yn",
            *("ad" if several else ""),
            *("s" if len(hunks) > 1 or len(item.changes) > 1 else ""),
        ]
        letters += [
            *("e" if hunks else ""),
            *self._letters_of_conflict(item),
            *("jk/" if several else ""),
            "q",
        ]
        warning = " The host would run it by itself." if item.change.runs_later else ""
        warning += " It replaces your own change." if item.change.conflict else ""
        name = quoted(item.change.path) + ("/" if item.directory else "")
        decided = {"y": " (chosen)", "n": " (left)", "": ""}[item.answer]
        while True:
            answer = ask(f"Apply {name}?{warning}{decided} [{','.join(letters)},?] ")[
                :1
            ]
            if answer and answer in letters:
                return answer
            for letter in (*letters, "?"):
                console.say(f"{letter} - {LETTERS[letter]}")

    def _letters_of_conflict(self, item: Item) -> str:
        if not item.change.conflict or item.directory:
            return ""
        try:
            return "mt" if self._review.both(item.change.path) is not None else "t"
        except UsageError:  # no text
            return ""

    def _unfold(self, at: int) -> None:
        """Ask about each file of a new directory, which is made with the first of them."""
        files = [
            Item([change])
            for change in self._items[at].changes
            if not change.is_directory
        ]
        self._items[at : at + 1] = files

    def _all_of_directory(self, at: int, answer: str) -> int:
        """Decide this and all that follow in the same directory."""
        above = self._items[at].above
        while at < len(self._items) and self._is_in(self._items[at], above):
            item = self._items[at]
            if item.change.can_be_applied and not (
                answer == "y" and item.needs_own_yes
            ):
                item.decide(answer)
            at += 1
        return at

    @staticmethod
    def _is_in(item: Item, above: str) -> bool:
        return not above or item.change.path.startswith(f"{above}/")

    def _found(self, at: int, text: str) -> int:
        for step in range(1, len(self._items) + 1):
            item = self._items[(at + step) % len(self._items)]
            if any(
                text in each.path or text in self.show(each).text
                for each in item.changes
            ):
                return (at + step) % len(self._items)
        console.note(f"{text!r} is in none of them")
        return at

    def _chosen_hunks(self, hunks: list[str]) -> tuple[list[int], bool]:
        """The numbers of the chosen hunks, and whether `q` ended it all."""
        chosen: set[int] = set()
        at = 0
        while at < len(hunks):
            for each in hunks[at].rstrip("\n").split("\n"):
                console.say(each, colours.coloured)
            answer = ""
            while answer not in ("y", "n", "a", "d", "k", "q"):
                answer = ask(f"Apply hunk {at + 1} of {len(hunks)}? [y,n,a,d,k,q,?] ")[
                    :1
                ]
                if answer not in ("y", "n", "a", "d", "k", "q"):
                    console.say(
                        "a - apply it and the rest\nd - leave it and the rest\nk - the one before"
                    )
            if answer == "q":
                return sorted(chosen), True
            if answer == "k":
                at = max(0, at - 1)
                continue
            if answer in "ad":
                chosen |= {*range(at, len(hunks))} if answer == "a" else set()
                break
            chosen.discard(at)
            chosen |= {at} if answer == "y" else set()
            at += 1
        return sorted(chosen), False

    def _hunks(self, item: Item) -> list[str]:
        change = item.change
        if (
            item.directory
            or change.kind not in ("modified", "added")
            or change.binary
            or change.members
        ):
            return []
        try:
            return self._review.hunks(change)
        except UsageError:
            return []

    def edited(self, item: Item) -> bytes:
        """The sandbox's text, or what was made of it before, as the user's editor leaves it."""
        from belljar.surfaces.cli.editing import edited

        text = self._review.both(item.change.path) if item.both else item.text
        return edited(
            self._review.text(item.change) if text is None else text,
            posixpath.basename(item.change.path),
        )
