"""Asks the user what to do with staged changes: after `run --staged` and `shell --staged`, and in `apply -p`."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec

from belljar import host as hosts
from belljar.errors import BelljarError, UsageError
from belljar.session.ledger import Ledger
from belljar.staged.apply import Applied
from belljar.staged.area import StagedArea
from belljar.staged.change import Change, counted, ignored_in_words, without_ignored
from belljar.staged.diff import quoted
from belljar.staged.review import Review
from belljar.surfaces.cli import console
from belljar.surfaces.cli.staged_choice import ask as ask_for
from belljar.surfaces.cli.staged_choice import choose, line

QUESTION = "Apply these changes ({})? [y]es, [n]o (discard), [c]hoose, [r]eview, [k]eep for later: "
MOST_LINES = 40


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
        console.note(
            f"{counted(changes)} staged as {area.id}: see `belljar diff`, keep with `belljar apply`, "
            "drop with `belljar discard`"
        )
    else:
        _decide(review, changes)


def _decide(review: Review, changes: list[Change]) -> None:
    shown = lines(changes)
    for text in shown[:MOST_LINES]:
        console.note(text)
    if len(shown) > MOST_LINES:
        console.note(
            f"… and {len(shown) - MOST_LINES} more; `belljar changes` lists them all"
        )
    while (answer := ask_for(QUESTION.format(counted(changes)))[:1]) not in tuple(
        "yncrkq"
    ):
        pass
    if answer == "n":
        review.discard()
        console.note("discarded")
        return
    if answer == "y":
        report(review.apply(), "applied")
    elif answer == "c":
        report(choose(review, None), "applied")
    elif answer == "r":
        done, dropped = on_screen(review, review.listed())
        report(done or Applied(), "applied")
        if dropped:
            report(Applied(review.discard(dropped)), "discarded")
    if left := review.changes(ignored=False):
        console.note(f"{counted(left)} kept as {review.area.id}")
    # The area stays even without changes, so that the apply can be undone. `prune` and the next apply remove it.


def on_screen(
    review: Review, changes: list[Change]
) -> tuple[Applied | None, list[str]]:
    """What was applied from the full screen (None: nothing was to be), and the paths that are to be dropped."""
    if os.environ.get("TERM", "dumb") == "dumb" or find_spec("prompt_toolkit") is None:
        return choose(review, [change.path for change in changes]), []
    from belljar.surfaces.cli import review_screen  # imports prompt_toolkit

    screen, end = review_screen.reviewed(
        review, changes, review.area.name or review.area.id
    )
    if end == "leave":
        return None, []
    done, seen = screen.choice.applied(), {change.path for change in changes}
    return done, [
        change.path for change in review.changes() if change.path in seen
    ] if end == "drop" else []


def report(result: Applied, done: str) -> None:
    merged = (
        f", {len(result.merged)} of them merged with the host's own changes"
        if result.merged
        else ""
    )
    console.note(f"{len(result.paths)} {done}{merged}")
    for path in result.held:
        console.note(
            f"not applied: the host would run {quoted(path)} by itself; --runs-later applies it"
        )
    if result.ignored and done == "applied":
        console.note(
            f"not applied: {len(result.ignored)} that the project ignores; --ignored applies them"
        )
    for path in result.refused:
        console.note(
            f"not applied: {quoted(path)} is a FIFO, a socket, a device or nested too deeply"
        )


def lines(changes: list[Change]) -> list[str]:
    """A line for each change. A new directory is one line with the number of its files, but files that the host would
    run are always listed."""
    shown: list[str] = []
    folded = ""
    for change in changes:
        if folded and change.path.startswith(folded):
            shown += [line(change)] if change.runs_later else []
            continue
        folded = (
            f"{change.path}/"
            if change.kind == "added" and change.is_directory and not change.members
            else ""
        )
        inside = (
            sum(other.path.startswith(folded) for other in changes) if folded else 0
        )
        shown.append(
            f"{change.mark} {quoted(change.path)}/  ({inside} new)"
            if inside > 1
            else line(change)
        )
        folded = folded if inside > 1 else ""
    return shown
