"""Staged changes on the command line: `changes`, `diff`, `apply`, `discard`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from belljar import host as hosts
from belljar.errors import BelljarError, UsageError
from belljar.staged.apply import Applied
from belljar.staged.area import StagedArea
from belljar.staged.change import Change, counted
from belljar.staged.diff import quoted
from belljar.staged.review import Review
from belljar.surfaces.cli import console
from belljar.workspace.beneath import Folder

Answer = Callable[[str], str]


def changes(args: Namespace) -> int:
    found = _review(args).changes()
    if args.json:
        console.document([change.as_dict() for change in found])
    else:
        for change in found:
            console.say(line(change))
    return 0


def line(change: Change) -> str:
    """`~ src/app.py`, with what a person should know of it."""
    notes: list[str] = [change.kind] if change.kind in ("mode", "type") else []
    notes += [f"{len(change.members)} changes"] if change.members else []
    notes += ["the host would run it"] if change.runs_later else []
    return f"{change.mark} {quoted(change.path)}" + (f"  ({', '.join(notes)})" if notes else "")


def diff(args: Namespace) -> int:
    text = _review(args).diff(args.paths or None)
    if args.json:
        console.document({"diff": text})
    elif text:
        console.say(text.rstrip("\n"))
    return 0


def apply(args: Namespace) -> int:
    review = _review(args)
    if args.undo:
        return _told(args, Applied(review.undo(force=args.force)), "taken back")
    if args.patch:
        return _told(args, choose(review, args.paths or None, _ask), "applied")
    result = review.apply(args.paths or None, force=args.force, runs_later=args.runs_later)
    return _told(args, result, "applied")


def _told(args: Namespace, result: Applied, done: str) -> int:
    if args.json:
        console.document({"paths": result.paths, "held": result.held, "refused": result.refused})
        return 0
    console.note(f"{len(result.paths)} {done}")
    for path in result.held:
        console.note(f"not applied: the host would run {quoted(path)} by itself; --runs-later applies it")
    for path in result.refused:
        console.note(f"not applied: {quoted(path)} is a FIFO, a socket or a device")
    return 0


def discard(args: Namespace) -> int:
    review = _review(args)
    with _live(review.area.id) as live:
        if args.paths or live is not None:
            gone = review.discard(args.paths or None, live=live)
        else:
            gone = [change.path for change in review.changes()]
            review.area.remove()
    return _told(args, Applied(gone), "discarded")


@contextmanager
def _live(id: str) -> Iterator[Folder | None]:
    """The workspace as the session's own sandbox sees it, if it still runs."""
    from belljar.sandbox import rundir

    host = hosts.default()
    facts = rundir.read_session(host.run_root / id)
    try:
        pid = host.connect().inspect(facts["container"]).pid if facts else 0
    except BelljarError:
        pid = 0
    if not pid:
        yield None
        return
    try:
        with Folder.at(f"/proc/{pid}/root") as root, root.folder("workspace") as merged:
            yield merged
    except PermissionError as error:
        raise UsageError("single changes of a running session can be discarded by root only; stop it first") from error


# Which changes are meant.


def _review(args: Namespace) -> Review:
    return Review(find(args.session, applied=getattr(args, "undo", False)))


def find(id: str | None, *, applied: bool = False) -> StagedArea:
    """The named one; without a name, the only one of the directory we are in. `applied`: one that can be undone."""
    root = hosts.default().staged_root
    if id is not None:
        return StagedArea.find(root, id)
    here = os.path.realpath(".")
    found = [area for area in StagedArea.all(root) if os.path.commonpath([here, area.workspace]) == area.workspace]
    with_changes = [area for area in found if ((area.path / "undo").is_dir() if applied else area.changes())]
    if len(with_changes) == 1:
        return with_changes[0]
    if not with_changes:
        raise UsageError("no staged changes of this directory; `belljar run --staged` makes some")
    ids = ", ".join(area.id for area in with_changes)
    raise UsageError(f"several sessions have staged changes of this directory: name one with --session ({ids})")


# Asking a person.


def _ask(question: str) -> str:
    if not sys.stdin.isatty():
        raise UsageError("choosing needs a terminal; name the paths instead")
    sys.stderr.write(question)
    sys.stderr.flush()
    answer = sys.stdin.readline()
    return answer.strip().lower() if answer else "q"


def choose(review: Review, paths: list[str] | None, ask: Answer) -> Applied:
    """Change by change, and hunk by hunk where there is text; `q` leaves the rest staged."""
    total = Applied()
    for change in review.changes():
        if paths and not any(change.path == path or change.path.startswith(f"{path}/") for path in paths):
            continue
        if change.after is not None and change.after.kind == "directory":
            continue  # made when something in it is taken
        answer = _one(review, change, ask, total)
        if answer == "q":
            break
    return total


def _one(review: Review, change: Change, ask: Answer, total: Applied) -> str:
    console.say(review.diff([change.path]).rstrip("\n"))
    pieces = _hunks(review, change)
    warning = " The host would run it by itself." if change.runs_later else ""
    options = "y,n,s,q" if len(pieces) > 1 else "y,n,q"
    answer = ask(f"Apply {quoted(change.path)}?{warning} [{options}] ")
    if answer == "s" and len(pieces) > 1:
        taken = []
        for number, piece in enumerate(pieces):
            console.say(piece.rstrip("\n"))
            if (each := ask(f"Apply hunk {number + 1} of {len(pieces)}? [y,n,q] ")) == "y":
                taken.append(number)
            elif each == "q":
                answer = "q"
                break
        if taken:
            total.paths += review.apply_hunks(change.path, taken).paths
    elif answer == "y":
        total.paths += review.apply([change.path], runs_later=True).paths
    return answer


def _hunks(review: Review, change: Change) -> list[str]:
    if change.kind != "modified" or change.binary or change.members:
        return []
    try:
        return review.hunks(change.path)
    except UsageError:
        return []


def offer(area: StagedArea, ask: Answer | None) -> None:
    """After a staged run: what changed, and what shall become of it. Without a terminal it is kept, and said so."""
    review = Review(area)
    found = review.changes()
    if not found:
        area.remove()
        console.note("nothing changed")
        return
    if ask is None:
        console.note(
            f"{counted(found)} staged as {area.id}: `belljar diff --session {area.id}` shows them, "
            "`belljar apply` or `belljar discard` decides"
        )
        return
    for change in found:
        console.note(line(change))
    answer = ask(f"Apply these changes ({counted(found)})? [y]es, [n]o (discard), [c]hoose, [k]eep for later: ")
    if answer.startswith("y"):
        result = review.apply()
        console.note(f"{len(result.paths)} applied")
        if result.held:
            console.note(f"kept as {area.id}: the host would run {', '.join(map(quoted, result.held))} by itself")
            return
    elif answer.startswith("c"):
        choose(review, None, ask)
    elif not answer.startswith("n"):
        console.note(f"kept as {area.id}")
        return
    if answer.startswith("n") or not review.changes():
        area.remove()
    else:
        console.note(f"{counted(review.changes())} kept as {area.id}")
