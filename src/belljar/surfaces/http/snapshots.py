"""Snapshots and forks: what a session begins with, and the routes for what is kept.

The tenant's host has the files, a row says whose they are. Of an unstaged session with no named workspace all files are
kept, since nobody else has them. What a request leaves out is as it was in the original.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from anyio import to_thread
from pydantic import ValidationError

from belljar.errors import UsageError
from belljar.session import snapshot as kept
from belljar.surfaces.http import models as m
from belljar.surfaces.http import storage
from belljar.surfaces.http.calls import Call, Route
from belljar.surfaces.http.pages import page
from belljar.surfaces.http.problems import Elsewhere, Problem

if TYPE_CHECKING:
    from belljar.surfaces.http.keys import Key
    from belljar.surfaces.http.service import Service
    from belljar.surfaces.http.sessions import LiveSession

FIELDS = frozenset(
    field.alias or name for name, field in m.SessionBody.model_fields.items()
) - {"from", "snapshot"}


async def make(call: Call) -> Any:
    """Keep what a session holds under a name."""
    body: m.SnapshotBody = call.body
    session = await call.service.live_for(call.key, body.session)
    return await keep(call.service, call.key, session, body.name)


async def keep(
    service: Service,
    key: Key,
    session: LiveSession,
    name: str,
    *,
    replace: bool = False,
) -> dict[str, Any]:
    box = await session.usable()
    id = _id(session.tenant, name)
    before = await service.store.get(storage.snapshots, id)
    if before is not None and not (
        replace and key.sees(before["tenant"], before["path"])
    ):
        raise Problem("conflict", f"there is a snapshot {name} already")
    whole = session.data["changes"] == "direct" and session.data["workspace"] is None
    made = await box.snapshot(name, workspace=whole, replace=True)
    told = {
        "name": made.name,
        "image": made.image,
        "size": made.size,
        "created": made.created,
        "left_out": list(made.left_out),
    }
    given = {name: value for name, value in session.data.items() if name in FIELDS}
    data = {"told": told, "given": given, "server": service.id, "session": session.id}
    row = {
        "tenant": session.tenant,
        "name": name,
        "path": key.path,
        "created": made.created,
        "data": data,
    }
    if before is None:
        await service.store.insert(storage.snapshots, id=id, **row)
    else:
        await service.store.update(storage.snapshots, id, **row)
    return told


async def listing(call: Call) -> Any:
    """List snapshots."""
    return page(
        [row["data"]["told"] for row in await visible(call.service, call.key)],
        call.query,
        id="name",
    )


async def visible(service: Service, key: Key) -> list[dict[str, Any]]:
    """The rows of those that this key may see."""
    rows = await service.store.all(
        sa.select(storage.snapshots).where(storage.snapshots.c.tenant == key.tenant)
    )
    return [dict(row) for row in rows if key.sees(row["tenant"], row["path"])]


async def remove(call: Call) -> Any:
    """Remove a snapshot. Sessions that began with it go on."""
    await drop(call.service, call.key, call.ids["name"])


async def drop(service: Service, key: Key, name: str) -> None:
    row = await _row(service, key, name)
    await to_thread.run_sync(
        kept.remove_if_there, service.host_of(row["tenant"]), row["name"]
    )
    await service.store.delete(storage.snapshots, row["id"])


async def forget(service: Service, tenant: str) -> None:
    """Remove all of a tenant."""
    table = storage.snapshots
    for row in await service.store.all(
        sa.select(table).where(table.c.tenant == tenant)
    ):
        await to_thread.run_sync(
            kept.remove_if_there, service.host_of(tenant), row["name"]
        )
        await service.store.delete(table, row["id"])


async def completed(call: Call) -> m.SessionBody:
    """The body of a new session, with what the snapshot or the original session says where it says nothing."""
    body: m.SessionBody = call.body
    if body.from_ is None and body.snapshot is None:
        return body
    if body.from_ is not None and body.snapshot is not None:
        raise Problem("usage", "from and snapshot do not go together", field="snapshot")
    if body.snapshot is not None:
        given = (await _row(call.service, call.key, body.snapshot))["data"]["given"]
    else:
        origin = await call.service.live_for(call.key, str(body.from_))
        given = {name: value for name, value in origin.data.items() if name in FIELDS}
    own = body.model_dump(by_alias=True, exclude_unset=True)
    try:
        merged = m.SessionBody.model_validate({**given, **own})
    except ValidationError as error:
        raise Problem("usage", str(error.errors(include_url=False)[0]["msg"])) from None
    if merged.from_ is not None and merged.changes != "staged":
        raise Problem(
            "usage",
            'only a staged session can be forked: make it with changes: "staged"',
            field="from",
        )
    return merged


async def freeze(origin: LiveSession) -> None:
    """Make the checkpoint that a fork begins with."""
    box = await origin.usable()
    if not box.is_staged:
        raise Problem(
            "usage",
            'only a staged session can be forked: make it with changes: "staged"',
            field="from",
        )
    try:
        await box.checkpoint(box.staged.area.unused("fork"))
    except UsageError as error:
        raise Problem("conflict", str(error)) from None


async def _row(service: Service, key: Key, name: str) -> dict[str, Any]:
    row = await service.store.get(storage.snapshots, _id(key.tenant, name))
    if row is None or not key.sees(row["tenant"], row["path"]):
        raise Problem("not_found", "there is no such snapshot")
    owner = row["data"]["server"]
    is_here = await to_thread.run_sync(
        (service.host_of(row["tenant"]).snapshots_root / row["name"]).exists
    )
    if not is_here and service.store.is_shared and owner != service.id:
        raise Elsewhere(owner)
    return dict(row)


def _id(tenant: str, name: str) -> str:
    return f"{tenant}/{name}"


ROUTES = [
    Route(
        "POST",
        "/v1/snapshots",
        make,
        "run",
        body=m.SnapshotBody,
        answer=m.SnapshotAnswer,
        status=201,
    ),
    Route("GET", "/v1/snapshots", listing, "read", m.Page, answer=m.Items),
    Route("DELETE", "/v1/snapshots/{name}", remove, "run", status=204),
]
