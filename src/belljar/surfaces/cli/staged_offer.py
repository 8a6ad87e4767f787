"""Asks the user what to do with staged changes: after `run --staged` and `shell --staged`, and in `apply -p`."""

from __future__ import annotations

import sys

from belljar import host as hosts
from belljar.errors import BelljarError, UsageError
from belljar.session.ledger import Ledger
from belljar.staged.apply import Applied
from belljar.staged.area import StagedArea
from belljar.staged.change import Change, counted, ignored_in_words, in_bytes, select, without_ignored
from belljar.staged.diff import quoted
from belljar.staged.review import Review, Shown
from belljar.surfaces.cli import console
from belljar.surfaces.cli.signals import answering

QUESTION = "Apply these changes ({})? [y]es, [n]o (discard), [c]hoose, [k]eep for later: "
MOST_LINES = 40


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


def conclude(id: str, *, ask: bool) -> None:
    """After the end of a staged session. If nobody can answer, the changes are kept."""
    try:
        area = StagedArea.find(hosts.default().staged_root, id)
    except UsageError:
        return  # the session changed nothing
    try:
        _offer(area, ask and sys.stdin.isatty() and sys.stderr.isatty())
    except BelljarError as error:
        console.note(f"{error}; the changes are kept as {area.id}")


def reviewed(area: StagedArea) -> Review:
    """A review that records its decisions in the audit trail, also after the session has ended."""
    ledger = Ledger(hosts.default().audit)
    ledger.session = area.id
    return Review(area, ledger.record)


def _offer(area: StagedArea, can_ask: bool) -> None:
    review = reviewed(area)
    every = review.changes()
    changes = without_ignored(every)
    if area.incomplete:
        console.note(f"some changes are lost: {area.incomplete}")
    if not every:
        review.discard()
    elif not changes:
        console.note(f"only {ignored_in_words(every)} changed; kept as {area.id}")
    elif not can_ask:
        console.note(f"{counted(changes)} staged as {area.id}: see `belljar diff`, keep with `belljar apply`, "
                     "drop with `belljar discard`")  # fmt: skip
    else:
        _decide(review, changes)


def _decide(review: Review, changes: list[Change]) -> None:
    shown = lines(changes)
    for text in shown[:MOST_LINES]:
        console.note(text)
    if len(shown) > MOST_LINES:
        console.note(f"… and {len(shown) - MOST_LINES} more; `belljar changes` lists them all")
    while (answer := ask(QUESTION.format(counted(changes)))[:1]) not in tuple("ynckq"):
        pass
    if answer == "n":
        review.discard()
        console.note("discarded")
        return
    if answer == "y":
        report(review.apply(), "applied")
    elif answer == "c":
        report(choose(review, None), "applied")
    if left := review.changes(ignored=False):
        console.note(f"{counted(left)} kept as {review.area.id}")
    # The area stays even without changes, so that the apply can be undone. `prune` and the next apply remove it.


def report(result: Applied, done: str) -> None:
    merged = f", {len(result.merged)} of them merged with the host's own changes" if result.merged else ""
    console.note(f"{len(result.paths)} {done}{merged}")
    for path in result.held:
        console.note(f"not applied: the host would run {quoted(path)} by itself; --runs-later applies it")
    if result.ignored and done == "applied":
        console.note(f"not applied: {len(result.ignored)} that the project ignores; --ignored applies them")
    for path in result.refused:
        console.note(f"not applied: {quoted(path)} is a FIFO, a socket, a device or nested too deeply")


def lines(changes: list[Change]) -> list[str]:
    """A line for each change. A new directory is one line with the number of its files, but files that the host would
    run are always listed."""
    shown: list[str] = []
    folded = ""
    for change in changes:
        if folded and change.path.startswith(folded):
            shown += [line(change)] if change.runs_later else []
            continue
        folded = f"{change.path}/" if change.kind == "added" and change.is_directory and not change.members else ""
        inside = sum(other.path.startswith(folded) for other in changes) if folded else 0
        shown.append(f"{change.mark} {quoted(change.path)}/  ({inside} new)" if inside > 1 else line(change))
        folded = folded if inside > 1 else ""
    return shown


def line(change: Change) -> str:
    """`~ src/app.py`, with notes."""
    notes: list[str] = [change.kind] if change.kind in ("mode", "type") else []
    notes += [counted(change.members)] if change.members else []
    notes += ["the host would run it"] if change.runs_later else []
    notes += [f"binary, {in_bytes(change.size)}"] if change.binary and not change.members else []
    notes += ["changed on your side too"] if change.conflict else []
    return f"{change.mark} {quoted(change.path)}" + (f"  ({', '.join(notes)})" if notes else "")


def choose(review: Review, paths: list[str] | None) -> Applied:
    """Ask about each change, and about each hunk of a text file. `q` leaves the rest staged. What was chosen is applied
    together at the end, so that one undo takes all of it back."""
    chosen: dict[Change, Shown] = {}
    contents: dict[str, bytes] = {}
    changes = review.changes(ignored=paths is not None)
    for change in select(changes, paths, parents=False):
        if _is_created_by_others(change, changes):
            continue
        shown = review.show(change)
        console.say(shown.text.rstrip("\n"))
        if not change.can_be_applied:
            continue
        answer, hunks = _ask_about(change, _hunks(review, change))
        if answer == "y" or hunks:
            chosen[change] = shown
        if hunks:
            contents[change.path] = review.with_hunks(change.path, hunks)
        if answer == "q":
            break
    return review.apply_chosen(chosen, contents)


def _is_created_by_others(change: Change, changes: list[Change]) -> bool:
    """A new directory with changes in it: applying one of those creates it."""
    is_directory = change.after is not None and change.after.kind == "directory" and change.kind != "mode"
    return is_directory and any(other.path.startswith(f"{change.path}/") for other in changes)


def _ask_about(change: Change, hunks: list[str]) -> tuple[str, list[int]]:
    """The answer, and the numbers of the chosen hunks if only some are chosen."""
    warning = " The host would run it by itself." if change.runs_later else ""
    letters = "ynsq" if len(hunks) > 1 else "ynq"
    answer = _letter(f"Apply {quoted(change.path)}?{warning}", letters)
    chosen: list[int] = []
    for number, hunk in enumerate(hunks if answer == "s" else []):
        console.say(hunk.rstrip("\n"))
        letter = _letter(f"Apply hunk {number + 1} of {len(hunks)}?", "ynq")
        if letter == "q":
            return "q", chosen
        if letter == "y":
            chosen.append(number)
    return answer, chosen


LETTERS = {
    "y": "apply it",
    "n": "leave it staged",
    "s": "decide hunk by hunk",
    "q": "leave this and all that follow staged",
    "?": "print this help",
}


def _letter(question: str, letters: str) -> str:
    """Ask until the answer is one of `letters`. Any other answer explains them."""
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
