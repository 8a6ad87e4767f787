"""Snapshots and forks: what a session begins with, and the routes for what is kept.

The tenant's host has the files, a row says whose they are. Of an unstaged session with no named workspace all files are
kept, since nobody else has them. What a request leaves out is as it was in the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from anyio import to_thread
from pydantic import ValidationError
from starlette.responses import Response

from belljar.errors import UsageError
from belljar.session import snapshot as kept
from belljar.surfaces.http import models as m
from belljar.surfaces.http import storage
from belljar.surfaces.http.calls import Call, Route
from belljar.surfaces.http.pages import page
from belljar.surfaces.http.problems import Elsewhere, Problem

if TYPE_CHECKING:
    from belljar.surfaces.http.sessions import LiveSession

FIELDS = frozenset(field.alias or name for name, field in m.SessionBody.model_fields.items()) - {"from", "snapshot"}


async def make(call: Call) -> Any:
    """Keep what a session holds under a name."""
    body: m.SnapshotBody = call.body
    session = await call.service.live_for(call.key, body.session)
    box = await session.usable()
    if await call.service.store.get(storage.snapshots, _id(session.tenant, body.name)) is not None:
        raise Problem("conflict", f"there is a snapshot {body.name} already")
    whole = session.data["changes"] == "direct" and session.data["workspace"] is None
    made = await box.snapshot(body.name, workspace=whole, replace=True)
    told = {
        "name": made.name, "image": made.image, "size": made.size, "created": made.created,
        "left_out": list(made.left_out),
    }  # fmt: skip
    given = {name: value for name, value in session.data.items() if name in FIELDS}
    await call.service.store.insert(
        storage.snapshots, id=_id(session.tenant, made.name), tenant=session.tenant, name=made.name,
        path=call.key.path, created=made.created, data={"told": told, "given": given, "server": call.service.id},
    )  # fmt: skip
    return told


async def listing(call: Call) -> Any:
    """List snapshots."""
    table = storage.snapshots
    rows = await call.service.store.all(sa.select(table).where(table.c.tenant == call.key.tenant))
    found = [row["data"]["told"] for row in rows if call.key.sees(row["tenant"], row["path"])]
    return page(found, call.query, id="name")


async def remove(call: Call) -> Any:
    """Remove a snapshot. Sessions that began with it go on."""
    row = await _row(call, call.ids["name"])
    host = call.service.host_of(row["tenant"])
    await to_thread.run_sync(kept.remove_if_there, host, row["name"])
    await call.service.store.delete(storage.snapshots, row["id"])
    return Response(status_code=204)


async def completed(call: Call) -> m.SessionBody:
    """The body of a new session, with what the snapshot or the original session says where it says nothing."""
    body: m.SessionBody = call.body
    if body.from_ is None and body.snapshot is None:
        return body
    if body.from_ is not None and body.snapshot is not None:
        raise Problem("usage", "from and snapshot do not go together", field="snapshot")
    if body.snapshot is not None:
        given = (await _row(call, body.snapshot))["data"]["given"]
    else:
        origin = await call.service.live_for(call.key, str(body.from_))
        given = {name: value for name, value in origin.data.items() if name in FIELDS}
    own = body.model_dump(by_alias=True, exclude_unset=True)
    try:
        merged = m.SessionBody.model_validate({**given, **own})
    except ValidationError as error:
        raise Problem("usage", str(error.errors(include_url=False)[0]["msg"])) from None
    if merged.from_ is not None and merged.changes != "staged":
        raise Problem("usage", 'only a staged session can be forked: make it with changes: "staged"', field="from")
    return merged


async def freeze(origin: LiveSession) -> None:
    """Make the checkpoint that a fork begins with."""
    box = await origin.usable()
    if not box.is_staged:
        raise Problem("usage", 'only a staged session can be forked: make it with changes: "staged"', field="from")
    try:
        await box.checkpoint(box.staged.area.unused("fork"))
    except UsageError as error:
        raise Problem("conflict", str(error)) from None


async def _row(call: Call, name: str) -> dict[str, Any]:
    row = await call.service.store.get(storage.snapshots, _id(call.key.tenant, name))
    if row is None or not call.key.sees(row["tenant"], row["path"]):
        raise Problem("not_found", "there is no such snapshot")
    owner = row["data"]["server"]
    is_here = await to_thread.run_sync((call.service.host_of(row["tenant"]).snapshots_root / row["name"]).exists)
    if not is_here and call.service.store.is_shared and owner != call.service.id:
        raise Elsewhere(owner)
    return dict(row)


def _id(tenant: str, name: str) -> str:
    return f"{tenant}/{name}"


ROUTES = [
    Route("POST", "/v1/snapshots", make, "run", body=m.SnapshotBody, answer=m.SnapshotAnswer, status=201),
    Route("GET", "/v1/snapshots", listing, "read", m.Page, answer=m.Items),
    Route("DELETE", "/v1/snapshots/{name}", remove, "run", status=204),
]
