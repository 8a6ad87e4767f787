"""Asking a person what becomes of staged changes: at the end of `run --staged` and `shell --staged`; `apply -p`."""

from __future__ import annotations

import sys

from belljar import host as hosts
from belljar.errors import BelljarError, UsageError
from belljar.session.ledger import Ledger
from belljar.staged.apply import Applied
from belljar.staged.area import StagedArea
from belljar.staged.change import Change, counted
from belljar.staged.diff import quoted
from belljar.staged.review import Review, Shown
from belljar.surfaces.cli import console
from belljar.surfaces.cli.signals import answering

QUESTION = "Apply these changes ({})? [y]es, [n]o (discard), [c]hoose, [k]eep for later: "
MOST_LINES = 40


def ask(question: str) -> str:
    """`q` where nobody answers any more."""
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


def conclude(id: str, *, ask: bool) -> None:
    """After a staged session has ended. Nothing is asked where nobody could answer: the changes are kept."""
    try:
        area = StagedArea.find(hosts.default().staged_root, id)
    except UsageError:
        return  # it changed nothing, so nothing was kept
    try:
        _offer(area, ask and sys.stdin.isatty() and sys.stderr.isatty())
    except BelljarError as error:
        console.note(f"{error}; the changes are kept as {area.id}")


def reviewed(area: StagedArea) -> Review:
    """What is decided about it is in the audit trail, also when its session is over."""
    ledger = Ledger(hosts.default().audit)
    ledger.session = area.id
    return Review(area, ledger.record)


def _offer(area: StagedArea, asked: bool) -> None:
    """What changed, and what shall become of it."""
    review = reviewed(area)
    found = review.changes()
    if area.incomplete:
        console.note(f"some changes are lost: {area.incomplete}")
    if not found:
        review.discard()
    elif not asked:
        console.note(f"{counted(found)} staged as {area.id}: see `belljar diff`, keep with `belljar apply`, "
                     "drop with `belljar discard`")  # fmt: skip
    else:
        _decide(review, found)


def _decide(review: Review, found: list[Change]) -> None:
    shown = lines(found)
    for each in shown[:MOST_LINES]:
        console.note(each)
    if len(shown) > MOST_LINES:
        console.note(f"… and {len(shown) - MOST_LINES} more; `belljar changes` lists them all")
    while (answer := ask(QUESTION.format(counted(found)))[:1]) not in tuple("ynckq"):
        pass  # whoever leaves (q) keeps
    if answer == "n":
        review.discard()
        console.note("discarded")
        return
    if answer == "y":
        report(review.apply(), "applied")
    elif answer == "c":
        report(choose(review, None), "applied")
    if left := review.changes():
        console.note(f"{counted(left)} kept as {review.area.id}")
    # An area without changes stays as long as its apply can be undone; `prune` and the next apply take it away.


def report(result: Applied, done: str) -> None:
    merged = f", {len(result.merged)} of them merged with the host's own changes" if result.merged else ""
    console.note(f"{len(result.paths)} {done}{merged}")
    for path in result.held:
        console.note(f"not applied: the host would run {quoted(path)} by itself; --runs-later applies it")
    for path in result.refused:
        console.note(f"not applied: {quoted(path)} is a FIFO, a socket, a device or nested too deeply")


def lines(found: list[Change]) -> list[str]:
    """Of new directories one line each, with how much is in them; but what the host would run is always shown."""
    shown: list[str] = []
    folded = ""
    for change in found:
        if folded and change.path.startswith(folded):
            shown += [line(change)] if change.runs_later else []
            continue
        folded = f"{change.path}/" if change.kind == "added" and change.is_directory and not change.members else ""
        inside = sum(each.path.startswith(folded) for each in found) if folded else 0
        shown.append(f"{change.mark} {quoted(change.path)}/  ({inside} new)" if inside > 1 else line(change))
        folded = folded if inside > 1 else ""
    return shown


def line(change: Change) -> str:
    """`~ src/app.py`, with what a person should know of it."""
    notes: list[str] = [change.kind] if change.kind in ("mode", "type") else []
    notes += [counted(change.members)] if change.members else []
    notes += ["the host would run it"] if change.runs_later else []
    return f"{change.mark} {quoted(change.path)}" + (f"  ({', '.join(notes)})" if notes else "")


def choose(review: Review, paths: list[str] | None) -> Applied:
    """Change by change, and hunk by hunk where there is text; `q` leaves the rest staged. What was chosen is applied in
    the end, at once: an undo takes all of it back."""
    seen: dict[Change, Shown] = {}
    contents: dict[str, bytes] = {}
    found = review.changes()
    for change in found:
        if paths and not any(change.path == path or change.path.startswith(f"{path}/") for path in paths):
            continue
        if _is_made_on_the_way(change, found):
            continue
        shown = review.show(change)
        console.say(shown.text.rstrip("\n"))
        if not change.can_be_applied:
            continue
        answer, taken = _one(change, _hunks(review, change))
        if answer == "y" or taken:
            seen[change] = shown
        if taken:
            contents[change.path] = review.with_hunks(change.path, taken)
        if answer == "q":
            break
    return review.apply_chosen(seen, contents)


def _is_made_on_the_way(change: Change, found: list[Change]) -> bool:
    """A new directory, when something in it is taken."""
    is_directory = change.after is not None and change.after.kind == "directory" and change.kind != "mode"
    return is_directory and any(each.path.startswith(f"{change.path}/") for each in found)


def _one(change: Change, pieces: list[str]) -> tuple[str, list[int]]:
    """What was answered, and the hunks that are wanted if only some are."""
    warning = " The host would run it by itself." if change.runs_later else ""
    letters = "ynsq" if len(pieces) > 1 else "ynq"
    answer = _letter(f"Apply {quoted(change.path)}?{warning}", letters)
    taken: list[int] = []
    for number, piece in enumerate(pieces if answer == "s" else []):
        console.say(piece.rstrip("\n"))
        if (each := _letter(f"Apply hunk {number + 1} of {len(pieces)}?", "ynq")) == "y":
            taken.append(number)
        elif each == "q":
            return "q", taken
    return answer, taken


LETTERS = {
    "y": "apply it",
    "n": "leave it staged",
    "s": "decide hunk by hunk",
    "q": "leave this and all that follow staged",
    "?": "print this help",
}


def _letter(question: str, letters: str) -> str:
    """One of these; `?` and everything else explains them."""
    while True:
        answer = ask(f"{question} [{','.join(letters)},?] ")[:1]
        if answer and answer in letters:
            return answer
        for letter in (*letters, "?"):
            console.say(f"{letter} - {LETTERS[letter]}")


def _hunks(review: Review, change: Change) -> list[str]:
    if change.kind != "modified" or change.binary or change.members:
        return []
    try:
        return review.hunks(change.path)
    except UsageError:
        return []
