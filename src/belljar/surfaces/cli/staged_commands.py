"""Staged changes on the command line: `changes`, `diff`, `apply`, `discard`; `checkpoint` and `rollback`."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio import to_thread

from belljar import host as hosts
from belljar.errors import Conflict, UsageError
from belljar.session.session import Session
from belljar.staged.apply import Applied
from belljar.staged.area import Point, StagedArea
from belljar.staged.review import Review
from belljar.surfaces.cli import console, names
from belljar.surfaces.cli.session_commands import sessions
from belljar.surfaces.cli.staged_offer import ask, choose, line, report


def changes(args: Namespace) -> int:
    found = _review(args).changes()
    return console.answer(args, [change.as_dict() for change in found], *map(line, found))


def diff(args: Namespace) -> int:
    text = _review(args).diff(args.paths or None)
    return console.answer(args, {"diff": text}, *([text.rstrip("\n")] if text else []))


def apply(args: Namespace) -> int:
    review = _review(args)
    if args.undo:
        return _answer(args, Applied(review.undo(force=args.force)), "taken back")
    if args.patch:
        return _answer(args, choose(review, args.paths or None, ask), "applied")
    try:
        result = review.apply(args.paths or None, force=args.force, merge=args.merge, runs_later=args.runs_later)
    except Conflict:
        both = "" if args.merge else "--merge keeps both sides' changes where they do not meet, "
        console.note(f"{both}--force takes the sandbox's side, paths choose what to apply")
        raise
    return _answer(args, result, "applied")


def _answer(args: Namespace, result: Applied, done: str) -> int:
    if not args.json:
        report(result, done)
    facts = {"paths": result.paths, "held": result.held, "refused": result.refused, "merged": list(result.merged)}
    return console.answer(args, facts)


def discard(args: Namespace) -> int:
    review = _review(args)
    if _runs(review.area.id):
        gone = anyio.run(_discard, review.area.id, args.paths or None)
    elif args.paths:
        gone = review.discard(args.paths)
    else:
        gone = [change.path for change in review.changes()]
        review.area.remove()
    return _answer(args, Applied(gone), "discarded")


async def _discard(id: str, paths: list[str] | None) -> list[str]:
    async with _attached(id) as box:
        return await box.discard(paths)


def _runs(id: str) -> bool:
    return id in {each["id"] for each in sessions()}


# Checkpoints of a session that runs.


def checkpoint(args: Namespace) -> int:
    point = anyio.run(_checkpoint, _running(args.session), args.name or "")
    return console.answer(args, {"name": point.name, "when": point.when}, point.name)


async def _checkpoint(id: str, name: str) -> Point:
    async with _attached(id) as box:
        point = await box.checkpoint(name)
        if left := await to_thread.run_sync(box.left_out, point):
            console.note(f"a rollback leaves {' and '.join(left)} as they are then")
        return point


def rollback(args: Namespace) -> int:
    point = anyio.run(_rollback, _running(args.session), args.name)
    if args.json:
        console.document({"name": point.name, "when": point.when})
    else:
        console.note(f"the files are as they were at {point.name!r}; what ran has ended")
    return 0


async def _rollback(id: str, name: str | None) -> Point:
    async with _attached(id) as box:
        return await box.rollback(name)


@asynccontextmanager
async def _attached(id: str) -> AsyncIterator[Session]:
    box = await Session.attach(id)
    try:
        yield box
    finally:
        await box.close()


def _running(id: str | None) -> str:
    """The named session; without a name, the only staged one that runs for the directory we are in."""
    if id is not None:
        return names.session(id)
    alive = {each["id"] for each in sessions()}
    found = [area.id for area in _here() if area.id in alive]
    if len(found) != 1:
        said = f"several staged sessions run ({', '.join(found)})" if found else "no staged session runs"
        raise UsageError(f"{said} for this directory: name one with --session")
    return found[0]


# Which changes are meant.


def _review(args: Namespace) -> Review:
    return Review(find(args.session, applied=getattr(args, "undo", False)))


def find(id: str | None, *, applied: bool = False) -> StagedArea:
    """The named one; without a name, the only one of the directory we are in. `applied`: one that can be undone."""
    if id is not None:
        return _up_to_date(StagedArea.find(hosts.default().staged_root, names.session(id)))
    with_changes = [area for area in _here() if (area.can_undo if applied else area.changes())]
    if len(with_changes) == 1:
        return with_changes[0]
    if not with_changes:
        raise UsageError("no staged changes of this directory; `belljar run --staged` makes some")
    ids = ", ".join(area.id for area in with_changes)
    raise UsageError(f"several sessions have staged changes of this directory: name one with --session ({ids})")


def _here() -> list[StagedArea]:
    """Of the directory we are in, or one above it."""
    here, root = os.path.realpath("."), hosts.default().staged_root
    found = [area for area in StagedArea.all(root) if os.path.commonpath([here, area.workspace]) == area.workspace]
    return [_up_to_date(area) for area in found]


def _up_to_date(area: StagedArea) -> StagedArea:
    """Of a session that shares no files with us: what is in its sandbox now."""
    if area.is_copied and _runs(area.id):
        anyio.run(_look, area.id)
    return area


async def _look(id: str) -> None:
    async with _attached(id) as box:
        await box.copy_out()
