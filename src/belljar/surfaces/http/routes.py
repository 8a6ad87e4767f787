"""The routes of `/v1` for keys, sessions, commands and approvals: parse, call, print."""

from __future__ import annotations

import signal as signals
import time
from typing import Any

import sqlalchemy as sa
from anyio import to_thread
from starlette.responses import JSONResponse, Response

from belljar.errors import UsageError
from belljar.limits import Limits, parse_size
from belljar.network.allow import Allow, pattern
from belljar.policy import BUILT_IN
from belljar.sandbox.rundir import new_session_id
from belljar.surfaces.http import audit, quota, snapshots, storage, streams
from belljar.surfaces.http import models as m
from belljar.surfaces.http.calls import Call, Route
from belljar.surfaces.http.commands import Command
from belljar.surfaces.http.keys import Key, new_id
from belljar.surfaces.http.pages import page
from belljar.surfaces.http.problems import Problem, without_paths
from belljar.surfaces.http.sessions import LIVING, LiveSession, ended_problem
from belljar.surfaces.http.storage import IntegrityError

WAIT_FOR_COMMAND = 30.0
LONGEST_BYPASS = 8 * 3600.0
COOKIE, SECURE_COOKIE = "belljar", "__Host-belljar"

# Keys.


async def make_key(call: Call) -> Any:
    """Make a child key."""
    if call.replayed:
        known = call.service.keys.get(call.replayed)
        if known is None:
            raise Problem("not_found", "the key that this request made is gone")
        return call.service.keys.as_dict(known)
    body: m.KeyBody = call.body
    if body.expires is not None and body.expires <= time.time():
        raise Problem("usage", "expires: this time is over", field="expires")
    wanted = {**body.model_dump(), "quota": _bounds(body.quota)}
    id = new_id("key")
    key, secret = await call.service.keys.mint(
        call.key, wanted, *call.claims(id), id=id
    )
    call.service.trail(key.tenant).note(
        "key_created", made=key.id, made_name=key.name, scopes=list(key.scopes)
    )
    return {**call.service.keys.as_dict(key), "key": secret}


def _bounds(body: m.QuotaBody) -> dict[str, Any]:
    """What a body says of a quota, with sizes as numbers."""
    given = body.model_dump(include=body.model_fields_set)
    for name in ("memory", "disk"):
        if isinstance(given.get(name), str):
            try:
                given[name] = parse_size(given[name])
            except ValueError as error:
                raise Problem(
                    "usage", f"quota.{name}: {error}", field="quota"
                ) from None
    return given


async def list_keys(call: Call) -> Any:
    """List keys."""
    keys = call.service.keys
    return page([keys.as_dict(key) for key in keys.visible_to(call.key)], call.query)


async def own_key(call: Call) -> Any:
    """The key that asks; with a cookie, also when that ends."""
    cookie = call.request.state.cookie
    ends = (
        {"login_expires": call.service.keys.login_ends(cookie)}
        if cookie is not None
        else {}
    )
    return {**call.service.keys.as_dict(call.key), **ends}


async def revoke_key(call: Call) -> Any:
    """Revoke a key and all below it."""
    keys, id = call.service.keys, call.ids["kid"]
    key = keys.get(id)
    if key is None or not (
        key in keys.visible_to(call.key) or call.key.may("operator")
    ):
        raise Problem("not_found", "there is no such key")
    if not (call.key.may("admin") or (call.key.made(key.path) and key is not call.key)):
        raise Problem(
            "forbidden",
            "a key without the scope admin ends its own children only",
            scope="admin",
        )
    for gone in await keys.revoke(key):
        call.service.trail(gone.tenant).note(
            "key_revoked", gone=gone.id, gone_name=gone.name
        )


async def login(call: Call) -> Any:
    """Trade a key for a cookie."""
    client = call.request.client
    key, cookie = await call.service.keys.login(
        call.body.key, client.host if client else ""
    )
    with audit.caused_by(audit.Cause(key.id, key.name, call.request.state.request_id)):
        call.service.trail(key.tenant).note("login")
    response = Response(status_code=204)
    set_cookie(response, cookie, secure=call.request.app.state.is_secure)
    return response


def set_cookie(response: Response, cookie: str, *, secure: bool) -> None:
    response.set_cookie(
        SECURE_COOKIE if secure else COOKIE,
        cookie,
        max_age=12 * 3600,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )


async def logout(call: Call) -> Any:
    """End the cookie."""
    if (cookie := call.request.state.cookie) is not None:
        await call.service.keys.logout(cookie)
    response = Response(status_code=204)
    secure = call.request.app.state.is_secure
    response.delete_cookie(
        SECURE_COOKIE if secure else COOKIE,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return response


# Tenants.


async def make_tenant(call: Call) -> Any:
    """Make a tenant."""
    name = call.body.name
    if call.replayed:
        return call.service.keys.tenants.get(name) or await _no_tenant()
    bounds = {**quota.NEW_TENANT, **_bounds(call.body.quota)}
    try:
        return await call.service.keys.make_tenant(name, bounds, *call.claims(name))
    except IntegrityError:
        raise Problem("conflict", f"there is a tenant {name} already") from None


async def _no_tenant() -> Any:
    raise Problem("not_found", "there is no such tenant")


async def list_tenants(call: Call) -> Any:
    """List tenants."""
    tenants = call.service.keys.tenants.values()
    shown = [
        {**tenant, "quota": {**quota.UNBOUND, **tenant["quota"]}} for tenant in tenants
    ]
    return page(
        sorted(shown, key=lambda tenant: (-tenant["created"], tenant["name"])),
        call.query,
        id="name",
    )


async def end_tenant(call: Call) -> Any:
    """Remove a tenant."""
    name = call.ids["name"]
    if name not in call.service.keys.tenants:
        await _no_tenant()
    if name == "default":
        raise Problem("conflict", "the tenant default cannot be removed")
    await call.service.end_tenant(name)
    await snapshots.forget(call.service, name)
    await call.service.set_aside(name)


async def usage(call: Call) -> Any:
    """What a tenant uses."""
    tenant = call.query.tenant or call.key.tenant
    if tenant != call.key.tenant and not call.key.may("operator"):
        raise Problem(
            "forbidden", "this key sees its own tenant only", scope="operator"
        )
    if tenant not in call.service.keys.tenants:
        await _no_tenant()
    table, commands = storage.sessions, storage.commands
    used = await _used(call, [table.c.tenant == tenant])
    counted = await call.service.store.one(
        sa.select(
            sa.func.count().label("count"),
            sa.func.coalesce(sa.func.sum(commands.c.cpu_time), 0.0).label("cpu"),
        ).where(commands.c.tenant == tenant)
    )
    own = tenant == call.key.tenant
    bounds = (
        call.service.keys.effective(call.key)
        if own
        else {**quota.UNBOUND, **call.service.keys.tenants[tenant]["quota"]}
    )
    assert counted is not None
    return {
        "tenant": tenant,
        "sessions": used["sessions"],
        "memory": used["memory"],
        "cpus": used["cpus"],
        "disk": used["disk"],
        "creates_last_minute": used["creates_per_minute"],
        "commands": int(counted["count"]),
        "cpu_time": float(counted["cpu"]),
        "quota": bounds,
    }


async def _used(call: Call, where: list[sa.ColumnElement[bool]]) -> dict[str, float]:
    table = storage.sessions
    sums = [
        sa.func.coalesce(sa.func.sum(table.c[name]), 0).label(name)
        for name in ("memory", "cpus", "disk")
    ]
    living = await call.service.store.one(
        sa.select(sa.func.count().label("sessions"), *sums).where(
            *where, table.c.state.in_(LIVING)
        )
    )
    recent = await call.service.store.one(
        sa.select(sa.func.count().label("count")).where(
            *where, table.c.created > time.time() - 60
        )
    )
    assert living is not None
    assert recent is not None
    return {
        "sessions": int(living["sessions"]),
        "memory": int(living["memory"]),
        "cpus": float(living["cpus"]),
        "disk": int(living["disk"]),
        "creates_per_minute": int(recent["count"]),
    }


# Sessions.


async def make_session(call: Call) -> Any:
    """Make a session."""
    if call.replayed:
        session = await call.service.live_for(call.key, call.replayed)
    else:
        session = await new_session(call)
    deadline = time.monotonic() + call.wait(0)
    while (
        session.state not in ("ready", "ended")
        and (left := deadline - time.monotonic()) > 0
    ):
        await session.changed.wait(left)
    headers = {"Location": f"/v1/sessions/{session.id}"}
    return JSONResponse(session.as_dict(), 201, headers)


async def new_session(call: Call, account: str = "sandbox") -> LiveSession:
    """Admit and begin a session; `account` is the name of its user."""
    body = await snapshots.completed(call)
    limits = _limits(body)
    policy = body.policy
    if policy not in BUILT_IN:
        raise Problem(
            "policy_invalid",
            f"policy: there is no policy {policy[:64]}",
            field="policy",
        )
    network = (
        body.network if isinstance(body.network, str) else body.network.model_dump()
    )
    if isinstance(network, dict):
        try:
            Allow(*network["allow"], presets=network["presets"])
        except UsageError as error:
            raise Problem("usage", f"network: {error}", field="network") from None
    if body.root and body.debug:
        raise Problem("usage", "root and debug cannot be combined", field="root")
    bounds = call.service.keys.effective(call.key)
    now, lifetime = time.time(), bounds["lifetime"]
    given = body.model_dump(by_alias=True)
    lease = body.lease if lifetime is None else min(body.lease, lifetime)
    data = {
        **given,
        "network": network,
        "limits": limits.as_dict(),
        "lease": lease,
        "id": new_session_id(),
        "tenant": call.key.tenant,
        "key": call.key.id,
        "state": "queued",
        "reason": None,
        "error": None,
        "created": now,
        "started": None,
        "ended": None,
        "expires": now + lease,
        "paused": False,
        "bypass_until": None,
        "listening": [],
        "last": None,
        "denied": None,
        "account": account,
    }
    by = audit.cause()
    row = {
        "session": data,
        "path": call.key.path,
        "ends_at": now + lifetime if lifetime is not None else None,
        "remembered": {},
        "cause": [by.key, by.name, by.request_id],
    }
    session = LiveSession(call.service, row)
    if body.from_ is not None:
        await snapshots.freeze(await call.service.live_for(call.key, body.from_))
    async with call.service.admission(call.key.tenant):
        await _check_quota(call, limits, policy, network)
        call.service.warm.take(session)
        try:
            await session.insert(*call.claims(session.id))
        except BaseException:
            if session.box is not None:
                await session.box.stop()
            raise
    call.service.own(session)
    session.begin()
    call.service.warm.want(session)
    return session


def _limits(body: m.SessionBody) -> Limits:
    try:
        limits = Limits(**body.limits)  # type: ignore[arg-type]
    except UsageError as error:
        raise Problem("limits_invalid", f"limits: {error}", field="limits") from None
    for name, value in limits.as_dict().items():
        most = m.MOST_OUTPUT if name in ("output", "shell_output") else m.MOST
        if (value or 0) > most:
            raise Problem(
                "limits_invalid", f"limits: {name}: at most {most}", field="limits"
            )
    return limits


async def _check_quota(call: Call, limits: Limits, policy: str, network: Any) -> None:
    """403 for what can never fit, 429 for what does not fit now; for the key, all above it, and the tenant."""
    keys, key = call.service.keys, call.key
    bounds = keys.effective(key)
    if bounds["policies"] is not None and policy not in bounds["policies"]:
        raise Problem(
            "forbidden", f"this key may not use the policy {policy}", quota="policies"
        )
    _check_network(network, bounds["network"])
    wanted = {
        "sessions": 1,
        "memory": limits.memory,
        "cpus": limits.cpus,
        "disk": limits.disk or 0,
    }
    for name, amount in wanted.items():
        if bounds[name] is not None and amount > bounds[name]:
            raise Problem(
                "forbidden",
                f"{name}: {amount} is more than {bounds[name]}, which this key may use",
                quota=name,
            )
    table = storage.sessions
    holders: list[tuple[dict[str, Any], list[sa.ColumnElement[bool]]]] = [
        (keys.tenants[key.tenant]["quota"], [table.c.tenant == key.tenant]),
        *(
            (each.own_quota, [table.c.path.startswith(each.path, autoescape=True)])
            for each in keys.chain(key)
        ),
    ]
    for own, where in holders:
        bound = {
            name: own[name]
            for name in quota.COUNTS
            if name != "lifetime" and own.get(name) is not None
        }
        if not bound:
            continue
        used = await _used(call, where)
        for name, most in bound.items():
            if used[name] + wanted.get(name, 1) > most:
                seconds = "10" if name == "creates_per_minute" else "1"
                raise Problem(
                    "quota_exceeded",
                    f"{name}: {most} are in use",
                    quota=name,
                    headers={"Retry-After": seconds},
                )


def _check_network(network: Any, most: str | None) -> None:
    kind = network if isinstance(network, str) else "allow"
    if most is None:
        return
    if quota.NETWORKS.index(kind) > quota.NETWORKS.index(most):
        raise Problem(
            "forbidden", f"this key may not use the network {kind}", quota="network"
        )
    for text in network["allow"] if kind == "allow" else ():
        found = pattern(text)  # a tenant must not reach what only this machine can
        if found.private or (found.network is not None and not found.network.is_global):
            raise Problem(
                "forbidden",
                f"this key may not reach the private address of {text}",
                quota="network",
            )


async def list_sessions(call: Call) -> Any:
    """List sessions."""
    wanted = {
        name.removeprefix("metadata."): value
        for name, value in call.request.query_params.items()
        if name.startswith("metadata.")
    }
    found = [
        session
        for session in await call.service.sessions_for(call.key)
        if call.query.state in (None, session["state"])
        and all(
            session["metadata"].get(name) == value for name, value in wanted.items()
        )
    ]
    return page(found, call.query)


async def get_session(call: Call) -> Any:
    """One session, with what is in force."""
    session = call.session
    facts = {
        "key_name": call.service.keys.name_of(session.data["key"]),
        "engine": session.engine,
    }
    return {**session.as_dict(), **facts, "verified": session.verified()}


async def patch_session(call: Call) -> Any:
    """Change a session."""
    body: m.SessionPatch = call.body
    session, given = call.session, body.model_fields_set
    if given - {"bypass_until"}:
        call.needs("run")
    if session.is_over:
        raise ended_problem()
    for name in given & {"lease", "metadata", "paused"}:
        if getattr(body, name) is None:
            raise Problem("usage", f"{name}: must not be null", field=name)
    changes: dict[str, Any] = {}
    if "bypass_until" in given:
        call.needs("approve")
        if (
            body.bypass_until is not None
            and body.bypass_until > time.time() + LONGEST_BYPASS
        ):
            raise Problem(
                "usage", "bypass_until: at most 8 hours ahead", field="bypass_until"
            )
        changes["bypass_until"] = body.bypass_until
        changes["bypass"] = (
            {"by": call.key.name, "let_through": 0}
            if body.bypass_until is not None
            else None
        )
    if body.metadata is not None:
        changes["metadata"] = body.metadata
    if body.lease is not None:
        changes["lease"] = body.lease
        until = time.time() + body.lease
        changes["expires"] = (
            min(until, session.ends_at) if session.ends_at is not None else until
        )
    if body.paused is not None:
        await session.pause(paused=body.paused)
    if changes:
        await session.save(**changes)
    return session.as_dict()


async def allow_hosts(call: Call) -> Any:
    """Let a session reach more hosts."""
    box, session = await call.session.usable(), call.session
    hosts: list[str] = call.body.hosts
    granted = call.service.keys.effective(call.key)["network"]
    _check_network({"allow": hosts}, granted)
    await box.allow_host(*hosts)
    before = session.data["network"]
    none: dict[str, Any] = {"allow": [], "presets": [], "ask_hosts": False}
    known = before if isinstance(before, dict) else none
    allow = list(dict.fromkeys([*known["allow"], *hosts]))
    await session.save(network={**known, "allow": allow})
    return session.as_dict()


async def delete_session(call: Call) -> Any:
    """End a session."""
    await call.session.end("deleted")
    return call.session.as_dict()


# Commands.


async def make_command(call: Call) -> Any:
    """Run a command."""
    session = call.session
    if call.replayed:
        command = await call.service.command_for(call.key, session, call.replayed)
    else:
        command = Command.new(
            call.service, session, _command_body(call.body), call.key.path
        )
        session.touch()
        await session.submit(command, *call.claims(command.id))
    if call.wants_stream:
        return streams.of_command(call.service, call.key, command, None)
    await command.wait(call.wait(WAIT_FOR_COMMAND))
    return _told(command)


def _command_body(body: m.CommandBody) -> dict[str, Any]:
    if body.shell is not None and not isinstance(body.command, str):
        raise Problem("usage", "command: a shell takes text", field="command")
    return {**body.model_dump(), "closed": False}


def _told(command: Command) -> Response:
    """The answer of a POST: a command that did not run is a problem."""
    error = command.data["error"]
    if command.is_over and error is not None and command.data["result"] is None:
        known = ("type", "title", "status", "detail", "code", "request_id")
        fields = {name: value for name, value in error.items() if name not in known}
        raise Problem(
            error["code"], error["detail"], **{**fields, "command": command.as_dict()}
        )
    return JSONResponse(command.as_dict(), 200 if command.is_over else 202)


async def list_commands(call: Call) -> Any:
    """List commands."""
    found = await call.service.commands_for(call.key, call.session.id)
    return page(
        [each for each in found if call.query.state in (None, each["state"])],
        call.query,
    )


async def get_command(call: Call) -> Any:
    """One command, or its output as it comes."""
    if call.wants_stream:
        last = call.request.headers.get("last-event-id")
        return streams.of_command(call.service, call.key, call.command, last)
    await call.command.wait(call.wait(0))
    return call.command.as_dict()


async def get_output(call: Call) -> Any:
    """Output by position."""
    command, query = call.command, call.query
    if query.offset > command.log.end:
        raise Problem(
            "usage", "offset: beyond what the command has printed", field="offset"
        )
    deadline = time.monotonic() + query.wait
    while (
        query.offset == command.log.end
        and not command.is_over
        and (left := deadline - time.monotonic()) > 0
    ):
        await command.changed.wait(left)
    over, start = command.is_over, max(query.offset, command.log.start)
    pieces = await to_thread.run_sync(command.log.read, start, query.limit)
    end = pieces[-1].end if pieces else start
    command.was_sent(end)
    data = b"".join(
        piece.data for piece in pieces if query.stream in (None, piece.stream)
    )
    state = "ended" if over else "running" if command.is_over else command.state
    return contents(
        data,
        {
            "Belljar-Offset": str(start),
            "Belljar-Next": str(end),
            "Belljar-Dropped": str(start - query.offset),
            "Belljar-State": state,
        },
    )


def contents(
    data: bytes, headers: dict[str, str], media: str = "application/octet-stream"
) -> Response:
    return Response(data, media_type=media, headers={**headers, **CONTENTS_HEADERS})


CONTENTS_HEADERS = {
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Content-Disposition": "attachment",
}
"""What a sandbox wrote is never shown as a page of ours."""


async def write_stdin(call: Call) -> Any:
    """Write to stdin."""
    data = await call.content()
    call.session.touch()
    await call.command.write(data, close=call.query.close)


async def signal_command(call: Call) -> Any:
    """Send a signal."""
    if call.command.is_over:
        raise Problem("conflict", "the command has ended")
    held = await call.command.held()
    held.signal(_signal(call.body.signal))
    call.session.touch()
    return call.command.as_dict()


def _signal(given: int | str) -> int:
    if isinstance(given, int):
        return given
    name = given if given.startswith("SIG") else f"SIG{given}"
    found = getattr(signals, name, None)
    if not isinstance(found, signals.Signals):
        raise Problem("usage", f"signal: there is no signal {given}", field="signal")
    return int(found)


async def kill_command(call: Call) -> Any:
    """Kill a command."""
    await call.command.kill(call.query.grace)
    return call.command.as_dict()


# Approvals.


async def list_approvals(call: Call) -> Any:
    """List approvals."""
    found = await call.service.approvals_for(
        call.key, call.query.state, call.query.session or ""
    )
    return page(found, call.query)


async def _approval(call: Call) -> dict[str, Any]:
    row = await call.service.store.get(storage.approvals, call.ids["aid"])
    if row is None or not call.key.sees(row["tenant"], row["path"]):
        raise Problem("not_found", "there is no such approval")
    return dict(row["data"])


async def get_approval(call: Call) -> Any:
    """One approval."""
    return await _approval(call)


async def decide_approval(call: Call) -> Any:
    """Decide."""
    if call.replayed:
        return await _approval(call)
    return await call.service.approvals.decide(
        await _approval(call), call.body.model_dump(), call.key
    )


# The rest.


async def check(call: Call) -> Any:
    """What a policy says of a command."""
    from belljar.session.judging import judged, load

    body: m.CheckBody = call.body
    if body.policy not in BUILT_IN:
        raise Problem(
            "policy_invalid",
            f"policy: there is no policy {body.policy[:64]}",
            field="policy",
        )
    policy = await to_thread.run_sync(load, body.policy)
    facts = {} if body.cwd is None else {"cwd": body.cwd}
    verdict = await judged(policy, body.command, **facts)
    effects = [effect.line() for effect in verdict.effects]
    return {**verdict.as_dict(), "effects": effects, "words": verdict.commands()}


async def list_policies(call: Call) -> Any:
    """List policies."""
    from belljar.session.judging import load

    granted = call.service.keys.effective(call.key)["policies"]
    names = [name for name in BUILT_IN if granted is None or name in granted]
    loaded = [await to_thread.run_sync(load, name) for name in names]
    items = [{"name": policy.name, "version": policy.version} for policy in loaded]
    return page(items, call.query, id="name")


async def list_images(call: Call) -> Any:
    """List images."""

    def images() -> list[dict[str, Any]]:
        from belljar.images import catalog

        store = call.service.host_of(call.key.tenant).connect().images
        found = catalog.listing(store) if store is not None else ()
        return [
            {
                name: getattr(image, name)
                for name in ("name", "reference", "size", "created")
            }
            for image in found
        ]

    return page(await to_thread.run_sync(images), call.query, id="name")


async def metrics(call: Call) -> Any:
    """Numbers for Prometheus."""
    table = storage.sessions
    rows = await call.service.store.all(
        sa.select(table.c.state, sa.func.count().label("count")).group_by(table.c.state)
    )
    waiting = await call.service.store.one(
        sa.select(sa.func.count().label("count")).where(
            storage.approvals.c.state == "waiting"
        )
    )
    running = sum(
        command.state == "running"
        for session in call.service.living
        for command in session.commands.values()
    )
    text = call.service.metrics.text(
        {row["state"]: row["count"] for row in rows},
        running,
        waiting["count"] if waiting else 0,
    )
    return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")


_COMMANDS = "/v1/sessions/{sid}/commands"
_SESSION, _COMMAND = "/v1/sessions/{sid}", "/v1/sessions/{sid}/commands/{cid}"
ROUTES = [
    Route(
        "POST",
        "/v1/keys",
        make_key,
        None,
        body=m.KeyBody,
        answer=m.NewKeyAnswer,
        status=201,
    ),
    Route("GET", "/v1/keys", list_keys, "read", m.Page, answer=m.Items),
    Route("GET", "/v1/keys/self", own_key, None, answer=m.KeyAnswer),
    Route("DELETE", "/v1/keys/{kid}", revoke_key, None, status=204),
    Route("POST", "/v1/login", login, "", body=m.LoginBody, status=204),
    Route("DELETE", "/v1/login", logout, None, status=204),
    Route(
        "POST",
        "/v1/tenants",
        make_tenant,
        "operator",
        body=m.TenantBody,
        answer=m.TenantAnswer,
        status=201,
    ),
    Route("GET", "/v1/tenants", list_tenants, "operator", m.Page, answer=m.Items),
    Route("DELETE", "/v1/tenants/{name}", end_tenant, "operator", status=204),
    Route("GET", "/v1/usage", usage, "read", m.UsageQuery, answer=m.UsageAnswer),
    Route(
        "POST",
        "/v1/sessions",
        make_session,
        "run",
        body=m.SessionBody,
        answer=m.SessionAnswer,
        status=201,
    ),
    Route(
        "GET", "/v1/sessions", list_sessions, "read", m.SessionsQuery, answer=m.Items
    ),
    Route("GET", _SESSION, get_session, "read", answer=m.SessionAnswer),
    Route(
        "PATCH",
        _SESSION,
        patch_session,
        "read",
        body=m.SessionPatch,
        answer=m.SessionAnswer,
    ),
    Route("DELETE", _SESSION, delete_session, "run", answer=m.SessionAnswer),
    Route(
        "POST",
        f"{_SESSION}/hosts",
        allow_hosts,
        "run",
        body=m.HostsBody,
        answer=m.SessionAnswer,
    ),
    Route(
        "POST",
        _COMMANDS,
        make_command,
        "run",
        body=m.CommandBody,
        answer=m.CommandAnswer,
        streams=True,
    ),
    Route("GET", _COMMANDS, list_commands, "read", m.CommandsQuery, answer=m.Items),
    Route("GET", _COMMAND, get_command, "read", answer=m.CommandAnswer, streams=True),
    Route(
        "GET",
        f"{_COMMAND}/output",
        get_output,
        "read",
        m.OutputQuery,
        media="application/octet-stream",
    ),
    Route(
        "POST",
        f"{_COMMAND}/stdin",
        write_stdin,
        "run",
        m.StdinQuery,
        raw="*/*",
        status=204,
    ),
    Route(
        "POST",
        f"{_COMMAND}/signal",
        signal_command,
        "run",
        body=m.SignalBody,
        answer=m.CommandAnswer,
    ),
    Route(
        "DELETE", _COMMAND, kill_command, "run", m.GraceQuery, answer=m.CommandAnswer
    ),
    Route(
        "GET", "/v1/approvals", list_approvals, "read", m.ApprovalsQuery, answer=m.Items
    ),
    Route("GET", "/v1/approvals/{aid}", get_approval, "read", answer=m.ApprovalAnswer),
    Route(
        "POST",
        "/v1/approvals/{aid}",
        decide_approval,
        "approve",
        body=m.DecisionBody,
        answer=m.ApprovalAnswer,
    ),
    Route("POST", "/v1/check", check, "read", body=m.CheckBody, answer=m.VerdictAnswer),
    Route("GET", "/v1/policies", list_policies, "read", m.Page, answer=m.Items),
    Route("GET", "/v1/images", list_images, "read", m.Page, answer=m.Items),
    Route("GET", "/metrics", metrics, "operator", media="text/plain"),
]


__all__ = ["ROUTES", "Key", "without_paths"]
