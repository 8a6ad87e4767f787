"""Staged changes on the command line: `changes`, `diff`, `apply`, `discard`; `checkpoint` and `rollback`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import TypeVar

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.errors import Conflict, UsageError
from belljar.session.session import Session
from belljar.staged.apply import Applied, has_changes, select
from belljar.staged.area import StagedArea
from belljar.staged.change import Change
from belljar.staged.diff import lines_counted, quoted
from belljar.staged.review import Review
from belljar.surfaces.cli import console, names
from belljar.surfaces.cli.session_commands import sessions
from belljar.surfaces.cli.staged_offer import choose, line, lines, report, reviewed

T = TypeVar("T")


def changes(args: Namespace) -> int:
    review = _review(args)
    found = _named(args, review)
    _say_if_none(args, found)
    shown = map(line, found) if args.all or args.paths else lines(found)
    return console.answer(args, [change.as_dict() for change in found], *shown)


def diff(args: Namespace) -> int:
    review = _review(args)
    if args.stat:
        return _stat(args, review)
    text = review.diff([change.path for change in _named(args, review)] if args.paths else None)
    _say_if_none(args, text)
    return console.answer(args, {"diff": text}, *([text.rstrip("\n")] if text else []))


def _named(args: Namespace, review: Review) -> list[Change]:
    """Those at or below the paths that were named. A path without a change is told; without any, it is an error."""
    found = review.changes()
    unchanged = [path for path in args.paths if not has_changes(found, path)]
    if len(unchanged) == len(args.paths):
        return select(found, args.paths or None, parents=False)
    for path in unchanged:
        console.note(f"{path}: nothing changed there")
    return select(found, [path for path in args.paths if path not in unchanged], parents=False)


def _say_if_none(args: Namespace, found: object) -> None:
    if not found and not args.json:
        console.note("nothing changed")


def _stat(args: Namespace, review: Review) -> int:
    """As `git diff --stat`, without its histogram: files, not the directories they are in."""
    found = [change for change in _named(args, review) if change.members or not change.is_directory]
    counts = [(change, *lines_counted(review.show(change).text)) for change in found]
    facts = [
        {"path": change.path, "kind": change.kind, "added": plus, "removed": minus} for change, plus, minus in counts
    ]
    _say_if_none(args, found)
    width = max((len(quoted(change.path)) for change in found), default=0)
    lines = [f"{change.mark} {quoted(change.path):<{width}}  +{plus} −{minus}" for change, plus, minus in counts]
    together = f"{len(found)} changed, +{sum(each[1] for each in counts)} −{sum(each[2] for each in counts)}"
    return console.answer(args, facts, *lines, *([together] if found else []))


def apply(args: Namespace) -> int:
    review = reviewed(_review(args).area)
    if args.undo:
        return _undo(args, review)
    if args.patch:
        return _answer(args, choose(review, args.paths or None), "applied")
    try:
        result = review.apply(args.paths or None, force=args.force, merge=args.merge, runs_later=args.runs_later)
    except Conflict as conflict:
        both = "" if args.merge else "--merge keeps both sides' changes where they do not meet, "
        raise _advised(conflict, f"{both}--force takes the sandbox's side, paths choose what to apply") from None
    return _answer(args, result, "applied")


def _undo(args: Namespace, review: Review) -> int:
    area = review.area
    when = f"{datetime.fromtimestamp(area.can_undo, UTC).astimezone():%Y-%m-%d %H:%M:%S}"
    try:
        back = Applied(review.undo(force=args.force))
    except Conflict as conflict:
        raise _advised(conflict, f"{area.id} applied it at {when}; --force takes it back all the same, and loses what "
                                 "was changed since") from None  # fmt: skip
    if not _runs(area.id) and not area.can_undo and not review.changes():
        area.remove()
    return _answer(args, back, f"taken back, applied by {area.id} at {when}")


def _advised(conflict: Conflict, advice: str) -> Conflict:
    """The same, and behind it what helps."""
    conflict.args = (f"{conflict}; {advice}",)
    return conflict


def _answer(args: Namespace, result: Applied, done: str) -> int:
    if not args.json:
        report(result, done)
    facts = {"paths": result.paths, "held": result.held, "refused": result.refused, "merged": list(result.merged)}
    return console.answer(args, facts)


def discard(args: Namespace) -> int:
    review = reviewed(_review(args).area)
    id, paths = review.area.id, args.paths or None
    gone = anyio.run(_asked, id, lambda box: box.discard(paths)) if _runs(id) else review.discard(paths)
    return _answer(args, Applied(gone), "discarded")


async def _asked(id: str, question: Callable[[Session], Awaitable[T]]) -> T:
    async with await Session.attach(id) as box:
        return await question(box)


def _runs(id: str) -> bool:
    return id in {each["id"] for each in sessions()}


# Checkpoints of a session that runs.


async def checkpoint(args: Namespace) -> int:
    async with _staged(args) as box:
        point = await box.checkpoint(args.name or "")
        if left := await to_thread.run_sync(box.left_out, point):
            console.note(f"a rollback leaves {' and '.join(left)} as they are then")
    return console.answer(args, {"name": point.name, "when": point.when}, point.name)


async def rollback(args: Namespace) -> int:
    async with _staged(args) as box:
        point = await box.rollback(args.name)
    if not args.json:
        console.note(f"the files are as they were at {point.name!r}; what ran has ended")
    return console.answer(args, {"name": point.name, "when": point.when})


@asynccontextmanager
async def _staged(args: Namespace) -> AsyncIterator[Session]:
    async with await Session.attach(await to_thread.run_sync(_running, args)) as box:
        if not box.is_staged:
            direct = f"{box.id} writes straight into its workspace"
            raise UsageError(f"{direct}; `belljar session start --staged` starts one that has checkpoints")
        yield box


def _running(args: Namespace) -> str:
    """The named session; without a name, the only staged one that runs for the directory we are in."""
    _take_id(args, "name")
    if args.session is not None:
        return names.session(args.session)
    alive = {each["id"] for each in sessions()}
    found = [area.id for area in _here() if area.id in alive]
    if len(found) != 1:
        said = f"several staged sessions run ({', '.join(found)})" if found else "no staged session runs"
        raise UsageError(f"{said} for this directory: name one with --session")
    return found[0]


# Which changes are meant.


def _review(args: Namespace) -> Review:
    _take_id(args, "paths")
    return Review(find(args.session, applied=getattr(args, "undo", False)))


def _take_id(args: Namespace, name: str) -> None:
    """`belljar diff ID` is `--session ID`, by id or by name, unless there is a file of that name."""
    given = getattr(args, name)
    words = given if isinstance(given, list) else [given] if given else []
    if args.session is not None or not words or os.path.exists(words[0]):
        return
    if names.is_id(words[0]) or words[0] in names.known():
        args.session = words[0]
        setattr(args, name, words[1:] if isinstance(given, list) else None)


def find(id: str | None, *, applied: bool = False) -> StagedArea:
    """The named one; without a name, the only one of the directory we are in. `applied`: the one applied last."""
    if id is not None:
        return _up_to_date(StagedArea.find(hosts.default().staged_root, names.session(id)))
    if applied:
        return _applied_last()
    here = _here()
    changes = {area: found for area in here if (found := area.changes())}
    # What can never be applied, such as a socket that a server left, makes no choice difficult.
    with_changes = [area for area, found in changes.items() if any(each.can_be_applied for each in found)] or [*changes]
    if len(with_changes) == 1:
        return with_changes[0]
    if not with_changes:
        if running := next((area for area in here if _runs(area.id)), None):
            return running  # in which nothing changed
        raise UsageError("no staged changes of this directory; `belljar run --staged` makes some")
    ids = ", ".join(area.id for area in with_changes)
    raise UsageError(f"several sessions have staged changes of this directory: name one with --session ({ids})")


def _applied_last() -> StagedArea:
    found = sorted((area for area in _here() if area.can_undo), key=lambda area: area.can_undo)
    if not found:
        raise UsageError("nothing that was applied to this directory can be taken back any more")
    return found[-1]


def _here() -> list[StagedArea]:
    """Of the directory we are in, or one above it; not of another that was there before."""
    here, root = os.path.realpath("."), hosts.default().staged_root
    found = [area for area in StagedArea.all(root) if os.path.commonpath([here, area.workspace]) == area.workspace]
    return [_up_to_date(area) for area in found if area.is_in_place]


def _up_to_date(area: StagedArea) -> StagedArea:
    """Of a session that shares no files with us: what is in its sandbox now."""
    if area.is_copied and _runs(area.id):
        anyio.run(_asked, area.id, Session.copy_out)
    return area
