"""Commands for staged changes: `changes`, `diff`, `apply`, `discard`, `checkpoint` and `rollback`."""

from __future__ import annotations

import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.errors import Conflict, UsageError
from belljar.session.session import Session
from belljar.staged.apply import Applied
from belljar.staged.area import Point, StagedArea
from belljar.staged.change import (
    Change,
    counted,
    has_changes,
    ignored_in_words,
    select,
    without_ignored,
)
from belljar.staged.diff import lines_counted, quoted
from belljar.staged.review import Review
from belljar.surfaces.cli import console, names, pending
from belljar.surfaces.cli.session_commands import sessions
from belljar.surfaces.cli.staged_choice import choose, line
from belljar.surfaces.cli.staged_offer import lines, on_screen, report, reviewed
from belljar.surfaces.terminal import colours

T = TypeVar("T")


def changes(args: Namespace) -> int:
    review = _review(args)
    selected = _selected(args, review.listed(ignored=True))
    shown = _shown(args, selected)
    _note_if_none(args, shown)
    printed = map(line, shown) if args.all or args.paths else lines(shown)
    if hidden := _hidden(selected, shown):
        console.note(f"{hidden}; --ignored shows them")
    plain = [change.as_dict() for change in shown] if args.json else None
    return console.answer(args, plain, *printed)


def _hidden(selected: Sequence[Change], shown: Sequence[Change]) -> str:
    """What is not shown, in words; there may be very many of both."""
    paths = {change.path for change in shown}
    return ignored_in_words(change for change in selected if change.path not in paths)


def diff(args: Namespace) -> int:
    review = _review(args)
    if args.since or args.until:
        return _diff_between(args, review)
    selected = _selected(args, review.listed(ignored=True))
    shown = _shown(args, selected)
    if args.stat:
        return _stat(args, review, shown)
    text = review.diff([change.path for change in shown]) if shown else ""
    _note_if_none(args, text)
    for change in shown:
        if change.conflict and not args.json:
            console.note(
                f"{quoted(change.path)}: {change.conflict}; the diff is against your file as it is now"
            )
    if (hidden := _hidden(selected, shown)) and not args.json:
        console.note(f"{hidden}; --ignored shows them")
    return _answer_diff(args, text)


def _answer_diff(args: Namespace, text: str) -> int:
    if args.json or not sys.stdout.isatty():
        return console.answer(
            args, {"diff": text}, *([text.rstrip("\n")] if text else [])
        )
    for each in text.rstrip("\n").split("\n") if text else ():
        console.say(each, colours.coloured)
    return 0


def _diff_between(args: Namespace, review: Review) -> int:
    if args.stat:
        raise UsageError("--stat does not go together with --since")
    text = review.between(args.since, args.until, args.paths or None)
    _note_if_none(args, text)
    return _answer_diff(args, text)


def _shown(args: Namespace, selected: list[Change]) -> list[Change]:
    """Without what git ignores, unless that is asked for, or named."""
    return selected if args.ignored or args.paths else without_ignored(selected)


def _selected(args: Namespace, changes: list[Change]) -> list[Change]:
    """The changes at or below the given paths. A path without changes gets a note; if all have none, an error."""
    unchanged = [path for path in args.paths if not has_changes(changes, path)]
    if len(unchanged) == len(args.paths):
        return select(changes, args.paths or None, parents=False)
    for path in unchanged:
        console.note(f"{path}: nothing changed there")
    return select(
        changes, [path for path in args.paths if path not in unchanged], parents=False
    )


def _note_if_none(args: Namespace, shown: object) -> None:
    if not shown and not args.json:
        console.note("nothing changed")


def _stat(args: Namespace, review: Review, shown: list[Change]) -> int:
    """Like `git diff --stat` without the histogram. Directories are left out."""
    files = [change for change in shown if change.members or not change.is_directory]
    counts = [(change, *lines_counted(review.show(change).text)) for change in files]
    facts = [
        {"path": c.path, "kind": c.kind, "added": plus, "removed": minus}
        for c, plus, minus in counts
    ]
    _note_if_none(args, files)
    width = max((len(quoted(change.path)) for change in files), default=0)
    lines = [
        f"{change.mark} {quoted(change.path):<{width}}  +{plus} −{minus}"
        for change, plus, minus in counts
    ]
    total = f"{len(files)} changed, +{sum(plus for _, plus, _ in counts)} −{sum(minus for _, _, minus in counts)}"
    return console.answer(args, facts, *lines, *([total] if files else []))


def apply(args: Namespace) -> int:
    review = reviewed(_review(args).area)
    if args.undo:
        return _undo(args, review)
    if args.patch:
        return _answer(
            args, choose(review, args.paths or None, ignored=args.ignored), "applied"
        )
    try:
        result = review.apply(
            args.paths or None,
            force=args.force,
            merge=args.merge,
            runs_later=args.runs_later,
            ignored=args.ignored,
        )
    except Conflict as conflict:
        both = (
            ""
            if args.merge
            else "--merge keeps both sides' changes where they do not meet, "
        )
        raise _advised(
            conflict,
            f"{both}-p shows both sides and asks, --force takes the sandbox's side, "
            "paths choose what to apply",
        ) from None
    return _answer(args, result, "applied")


def review(args: Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(
            "`belljar review` needs a terminal; `belljar apply PATH` takes paths"
        )
    review = reviewed(_review(args).area)
    every = review.listed(ignored=args.ignored or bool(args.paths))
    changes = select(every, args.paths or None, parents=False)
    if not changes:
        _note_if_none(args, changes)
        return 0
    done, dropped = on_screen(review, changes)
    if done is None:
        console.note("nothing was applied")
        return 0
    status = _answer(args, done, "applied")
    return _drop(args, review, dropped) if dropped else status


def _undo(args: Namespace, review: Review) -> int:
    area = review.area
    when = (
        f"{datetime.fromtimestamp(area.can_undo, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    )
    try:
        undone = Applied(review.undo(force=args.force))
    except Conflict as conflict:
        raise _advised(
            conflict,
            f"{area.id} applied it at {when}; --force takes it back all the same, and loses what "
            "was changed since",
        ) from None
    left = {change.path for change in review.changes()}
    if not _runs(area.id) and not area.can_undo and not left:
        area.remove()
    again = (
        "; `belljar changes` shows what is staged again"
        if left.intersection(undone.paths)
        else ""
    )
    return _answer(args, undone, f"taken back, applied by {area.id} at {when}{again}")


def _advised(conflict: Conflict, advice: str) -> Conflict:
    conflict.args = (f"{conflict}; {advice}",)
    return conflict


def _answer(args: Namespace, result: Applied, done: str) -> int:
    if not args.json:
        report(result, done)
    facts = {
        "paths": result.paths,
        "held": result.held,
        "refused": result.refused,
        "merged": list(result.merged),
        "ignored": result.ignored,
    }
    return console.answer(args, facts)


def discard(args: Namespace) -> int:
    return _drop(args, reviewed(_review(args).area), args.paths or None)


def _drop(args: Namespace, review: Review, paths: list[str] | None) -> int:
    id = review.area.id
    gone = (
        anyio.run(_attached, id, lambda box: box.discard(paths))
        if _runs(id)
        else review.discard(paths)
    )
    return _answer(args, Applied(gone), "discarded")


async def _attached(id: str, call: Callable[[Session], Awaitable[T]]) -> T:
    async with await Session.attach(id) as box:
        return await call(box)


def _runs(id: str) -> bool:
    return id in {session["id"] for session in sessions()}


# Checkpoints: listed and forgotten at any time, made and gone back to in a session that runs.


async def checkpoint(args: Namespace) -> int:
    if args.list:
        return await to_thread.run_sync(_list_checkpoints, args)
    if args.forget:
        return await to_thread.run_sync(_forget_checkpoint, args)
    async with _staged(args) as box:
        point = await box.checkpoint(args.name or "", replace=args.replace)
        if left := await to_thread.run_sync(box.left_out, point):
            console.note(
                f"{' and '.join(left)}: too large to be remembered, so a rollback leaves them alone"
            )
    return console.answer(args, {"name": point.name, "when": point.when}, point.name)


def _list_checkpoints(args: Namespace) -> int:
    area = _of_checkpoints(args)
    changed = [(point, _changed_by(area, point)) for point in area.points]
    facts = [
        {"name": point.name, "when": point.when, "changes": changes}
        for point, changes in changed
    ]
    rows = [
        (point.name, pending.ago(point.when), changes) for point, changes in changed
    ]
    if not rows and not args.json:
        console.note("no checkpoints")
        return 0
    return console.answer_table(args, facts, rows, "CHECKPOINT", "MADE", "CHANGES")


def _of_checkpoints(args: Namespace) -> StagedArea:
    """The session that has them, which may have ended."""
    _take_id(args, "name")
    if args.name:
        raise UsageError(
            f"{args.name}: no session of that name; --list and --forget take no other name"
        )
    return find(args.session)


def _changed_by(area: StagedArea, point: Point) -> str:
    with area.layers(point) as layers:
        return counted(without_ignored(layers.changes()))


def _forget_checkpoint(args: Namespace) -> int:
    area = _of_checkpoints(args)
    point = area.point(args.forget)
    area.forget(point)
    return console.answer(args, {"name": point.name, "when": point.when})


async def rollback(args: Namespace) -> int:
    async with _staged(args) as box:
        point = await box.rollback(args.name)
        left = await to_thread.run_sync(box.left_out, point)
    if not args.json:
        but = f" except {' and '.join(left)}, which were too large" if left else ""
        console.note(
            f"the sandbox's files are as they were at {point.name!r}{but}; what ran in it has ended, "
            "later checkpoints are gone, your own files did not change"
        )
    return console.answer(args, {"name": point.name, "when": point.when})


@asynccontextmanager
async def _staged(args: Namespace) -> AsyncIterator[Session]:
    async with await Session.attach(await to_thread.run_sync(_running, args)) as box:
        if not box.is_staged:
            reason = f"{box.id} writes straight into its workspace"
            raise UsageError(
                f"{reason}; `belljar session start --staged` starts one that has checkpoints"
            )
        yield box


def _running(args: Namespace) -> str:
    """The named session, or the only running staged session of the current directory."""
    _take_id(args, "name")
    if args.session is not None:
        return names.session(args.session)
    running = {session["id"] for session in sessions()}
    ids = [area.id for area in _here() if area.id in running]
    if len(ids) != 1:
        raise UsageError(
            f"several staged sessions run ({', '.join(ids)}) for this directory: name one with --session"
            if ids
            else "no staged session runs for this directory, and only a running one has checkpoints: "
            "`belljar session start --staged` starts one"
        )
    return ids[0]


# Choosing the staged area.


def _review(args: Namespace) -> Review:
    _take_id(args, "paths")
    return Review(find(args.session, applied=getattr(args, "undo", False)))


def _take_id(args: Namespace, name: str) -> None:
    """`belljar diff ID` means `--session ID` (an id or a name), unless there is a file of that name."""
    value = getattr(args, name)
    words = value if isinstance(value, list) else [value] if value else []
    if args.session is not None or not words or os.path.exists(words[0]):
        return
    if names.is_id(words[0]) or words[0] == names.LAST or words[0] in names.known():
        args.session = words[0]
        setattr(args, name, words[1:] if isinstance(value, list) else None)


def find(id: str | None, *, applied: bool = False) -> StagedArea:
    """The named area, or the only one of the current directory. With `applied`, the one that was applied last."""
    if id is not None and not id.isdigit():
        return _up_to_date(
            StagedArea.find(hosts.default().staged_root, names.session(id))
        )
    if applied:
        return _applied_last()
    here = sorted(_here(), key=lambda area: -float(area.meta["created"]))
    changes_of = {area: changes for area in here if (changes := area.changes())}
    # Areas with nothing that can be applied (a server's socket) or only ignored files count if there are no others.
    with_changes = {
        area: changes
        for area, changes in changes_of.items()
        if any(change.can_be_applied and not change.ignored for change in changes)
    } or changes_of
    if not with_changes:
        if running := next((area for area in here if _runs(area.id)), None):
            return running  # nothing changed in it
        raise UsageError(
            "no staged changes of this directory; `belljar run --staged` makes some"
        )
    if len(with_changes) == 1 and id is None:
        return next(iter(with_changes))
    return pending.chosen(with_changes, id)


def _applied_last() -> StagedArea:
    areas = [area for area in _here() if area.can_undo]
    if not areas:
        raise UsageError(
            "nothing that was applied to this directory can be taken back any more"
        )
    return max(areas, key=lambda area: area.can_undo)


def _here() -> list[StagedArea]:
    """The areas of the current directory, or of one above it. A directory that was replaced since does not count."""
    here, root = os.path.realpath("."), hosts.default().staged_root
    areas = [
        area
        for area in StagedArea.all(root)
        if os.path.commonpath([here, area.workspace]) == area.workspace
    ]
    return [_up_to_date(area) for area in areas if area.is_in_place]


def _up_to_date(area: StagedArea) -> StagedArea:
    """If the sandbox works on a copy of the workspace, fetch the changes in it."""
    if area.is_copied and _runs(area.id):
        anyio.run(_attached, area.id, Session.copy_out)
    return area
