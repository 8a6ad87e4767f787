"""The routes for reviewing what a staged session changed: what, how, yes or no, and back again.

`ETag` is a hash of all changes with their contents on both sides; `If-Match` on apply makes sure that what is applied
is what was shown. An ended session's changes can still be decided about if its workspace has a name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import Any

from anyio import to_thread
from starlette.responses import JSONResponse, Response

from belljar.errors import Conflict, UsageError
from belljar.session.session import Session
from belljar.staged.area import StagedArea
from belljar.staged.change import Change, select
from belljar.staged.review import Review, Shown
from belljar.surfaces.http import models as m
from belljar.surfaces.http.calls import Call, Route
from belljar.surfaces.http.pages import page
from belljar.surfaces.http.problems import Problem
from belljar.surfaces.http.routes import CONTENTS_HEADERS
from belljar.surfaces.http.sessions import ended_problem

Seen = dict[Change, Shown]


async def _box(call: Call) -> Session:
    """The open sandbox of a staged session."""
    _needs_staged(call)
    return await call.session.usable()


def _needs_staged(call: Call) -> None:
    if call.session.data["changes"] != "staged":
        raise Problem(
            "usage",
            'this session writes straight into its workspace: make it with changes: "staged"',
        )


async def _review(call: Call) -> Review:
    """The changes as they are now, of a living session or one that has ended."""
    _needs_staged(call)
    session = call.session
    if not session.is_over:
        box = await session.usable()
        await box.copy_out()
    elif session.data["workspace"] is None:
        raise ended_problem()
    host, trail = (
        call.service.host_of(session.tenant),
        call.service.trail(session.tenant),
    )

    def found() -> Review:
        try:
            area = StagedArea.find(host.staged_root, session.id)
        except UsageError:
            raise Problem("conflict", "no changes of this session are left") from None
        return Review(
            area, lambda kind, **fields: trail.note(kind, session=session.id, **fields)
        )

    return await to_thread.run_sync(found)


def _seen(review: Review) -> Seen:
    return {change: review.show(change) for change in review.changes()}


def _etag(seen: Seen) -> str:
    shown = [
        [change.as_dict(), shown.text, sorted(shown.digests.items())]
        for change, shown in seen.items()
    ]
    text = json.dumps(sorted(shown, key=lambda item: item[0]["path"]), default=str)
    return f'"{hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()}"'


async def list_changes(call: Call) -> Any:
    """What a session changed."""
    review = await _review(call)
    seen = await to_thread.run_sync(_seen, review)
    listed = await to_thread.run_sync(lambda: review.listed(ignored=True))
    body = {"items": [change.as_dict() for change in listed], "next": None}
    return JSONResponse(body, headers={"ETag": _etag(seen)})


async def get_sides(call: Call) -> Any:
    """A changed text file: before the session, on the host's side now, and in the session."""
    review = await _review(call)
    sides = await to_thread.run_sync(review.sides, call.query.path)
    return {
        name: None if text is None else text.decode("utf-8", "replace")
        for name, text in sides.items()
    }


async def get_diff(call: Call) -> Any:
    """The changes as a unified diff."""
    query: m.DiffQuery = call.query
    if query.against is not None:
        other = await call.service.live_for(call.key, query.against)
        box = await _box(call)
        text = await box.diff(query.path or None, against=await other.usable())
        return Response(text, media_type="text/x-diff", headers=CONTENTS_HEADERS)
    review = await _review(call)
    seen = await to_thread.run_sync(_seen, review)
    text = await to_thread.run_sync(lambda: review.diff(query.path or None))
    body = text.encode("utf-8", "surrogateescape")
    return Response(
        body,
        media_type="text/x-diff",
        headers={**CONTENTS_HEADERS, "ETag": _etag(seen)},
    )


async def apply(call: Call) -> Any:
    """Write changes to the workspace."""
    body: m.ApplyBody = call.body
    review = await _review(call)
    wanted = call.request.headers.get("if-match")

    def done() -> Any:
        seen = _seen(review)
        if wanted is not None and wanted not in ("*", _etag(seen)):
            raise Conflict(
                {change.path: "changed since it was shown" for change in seen}
                or {"": "it has changed"}
            )
        chosen = select([*seen], body.paths)
        held = (
            []
            if body.runs_later
            else [change.path for change in chosen if change.runs_later]
        )
        kept = {change: seen[change] for change in chosen if change.path not in held}
        contents = {path: text.encode() for path, text in (body.contents or {}).items()}
        contents |= {
            path: review.with_hunks(path, chosen)
            for path, chosen in (body.hunks or {}).items()
        }
        if (body.force or body.merge) and kept:
            applied = review.apply(
                [change.path for change in kept],
                force=body.force,
                merge=body.merge,
                runs_later=body.runs_later,
                ignored=True,
                contents=contents,
            )
            applied.held += held
            return applied
        return review.apply_chosen(kept, contents, held)

    async with call.session.review:
        applied = await to_thread.run_sync(done)
    return {
        "paths": applied.paths,
        "held": applied.held,
        "refused": applied.refused,
        "merged": sorted(applied.merged),
    }


async def discard(call: Call) -> Any:
    """Drop changes."""
    _needs_staged(call)
    paths = call.body.paths
    async with call.session.review:
        if call.session.is_over:
            review = await _review(call)
            return {"paths": await to_thread.run_sync(review.discard, paths)}
        box = await _box(call)
        return {"paths": await box.discard(paths)}


async def undo(call: Call) -> Any:
    """Take the last apply back."""
    review = await _review(call)
    async with call.session.review:
        if not review.area.can_undo:
            raise Problem("conflict", "there is nothing to undo")
        return {"paths": await to_thread.run_sync(review.undo)}


# Checkpoints.


async def list_checkpoints(call: Call) -> Any:
    """List checkpoints."""
    box = await _box(call)
    points = [_point(point) for point in box.checkpoints()]
    return page(points, call.query, id="name", when="when")


def _point(point: Any) -> dict[str, Any]:
    return {"name": point.name, "when": point.when}


async def make_checkpoint(call: Call) -> Any:
    """Remember the files as they are."""
    box = await _box(call)
    _needs_quiet(call)
    async with call.session.review:
        try:
            return _point(await box.checkpoint(call.body.name))
        except UsageError as error:
            raise Problem("conflict", str(error)) from error


def _needs_quiet(call: Call) -> None:
    if running := [
        command.id
        for command in call.session.commands.values()
        if command.state == "running"
    ]:
        raise Problem(
            "conflict",
            f"commands run ({', '.join(running)}): wait for them, or end them",
        )


def _named(points: Iterable[Any], name: str) -> Any:
    found = [point for point in points if point.name == name]
    if not found:
        raise Problem("not_found", "there is no such checkpoint")
    return found[-1]


async def forget_checkpoint(call: Call) -> Any:
    """Forget a checkpoint."""
    box = await _box(call)
    await box.forget_checkpoint(_named(box.checkpoints(), call.ids["name"]))


async def rollback(call: Call) -> Any:
    """Go back to a checkpoint; what runs is killed."""
    box, name = await _box(call), call.body.name
    points = box.checkpoints()
    if not points:
        raise Problem("conflict", "there is no checkpoint to go back to")
    target = points[-1] if name is None else _named(points, name)
    async with call.session.review:
        await call.session.kill_commands()
        return _point(await box.rollback(target))


_SESSION = "/v1/sessions/{sid}"
ROUTES = [
    Route("GET", f"{_SESSION}/changes", list_changes, "read", answer=m.Items),
    Route(
        "GET", f"{_SESSION}/diff", get_diff, "read", m.DiffQuery, media="text/x-diff"
    ),
    Route("GET", f"{_SESSION}/sides", get_sides, "read", m.SidesQuery),
    Route(
        "POST",
        f"{_SESSION}/apply",
        apply,
        "approve",
        body=m.ApplyBody,
        answer=m.AppliedAnswer,
    ),
    Route(
        "POST",
        f"{_SESSION}/discard",
        discard,
        "run",
        body=m.PathsBody,
        answer=m.PathsAnswer,
    ),
    Route(
        "POST", f"{_SESSION}/undo", undo, "approve", body=m.NoBody, answer=m.PathsAnswer
    ),
    Route(
        "GET",
        f"{_SESSION}/checkpoints",
        list_checkpoints,
        "read",
        m.Page,
        answer=m.Items,
    ),
    Route(
        "POST",
        f"{_SESSION}/checkpoints",
        make_checkpoint,
        "run",
        body=m.NameBody,
        answer=m.PointAnswer,
        status=201,
    ),
    Route(
        "DELETE",
        f"{_SESSION}/checkpoints/{{name}}",
        forget_checkpoint,
        "run",
        status=204,
    ),
    Route(
        "POST",
        f"{_SESSION}/rollback",
        rollback,
        "run",
        body=m.RollbackBody,
        answer=m.PointAnswer,
    ),
]
