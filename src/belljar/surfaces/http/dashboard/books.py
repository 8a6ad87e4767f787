"""The pages that are about no single session: audit, policy, usage, keys."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from fastapi.responses import Response

from . import charts, present
from .overview import all_sessions
from .pages import show
from .session import AUDIT_HEADS, audit_row
from .visit import Refused, Visit

Facts = dict[str, Any]
MOST_RECORDS = 200
MOST_PAGES = 10
BUCKETS = 30
RANGES = {
    "hour": ("Last hour", 3600.0),
    "day": ("Last day", 86_400.0),
    "week": ("Last week", 604_800.0),
}
SHIPPED = ("default", "strict", "ci", "permissive", "literal")


async def _newest(visit: Visit, pages: int, **query: Any) -> list[Facts]:
    """Records of the trail, newest first, at most so many pages of 200."""
    found: list[Facts] = []
    cursor = None
    for _ in range(pages):
        answer = await visit.get(
            "/audit", limit=MOST_RECORDS, order="newest", cursor=cursor, **query
        )
        found += answer["items"]
        cursor = answer.get("next")
        if not cursor:
            break
    return sorted(found, key=lambda record: -record["seq"])


async def audit_page(visit: Visit) -> Response:
    query = visit.request.query_params
    words, session = query.get("q", "").strip(), query.get("session") or None
    note = ""
    try:
        records = await _newest(visit, MOST_PAGES if words else 1, session=session)
    except Refused as refused:
        records, note = [], present.one_line(refused)
    found = [record for record in records if _holds(record, words)]
    names = {each["id"]: present.name_of(each) for each in await all_sessions(visit)}
    if not note and len(records) >= MOST_RECORDS:
        note = (
            f"The newest {present.number(len(records))} records are searched."
            if words
            else f"The newest {len(found)} are shown."
        )
    table = {
        "heads": AUDIT_HEADS,
        "rows": [audit_row(record, names) for record in found[:MOST_RECORDS]],
        "numbers": (),
        "empty": "No record matches." if words else "Nothing is recorded yet.",
    }
    return await show(
        visit,
        "audit.html",
        "Audit · Belljar",
        q=words,
        session=session,
        table=table,
        note=note,
    )


def _holds(record: Facts, words: str) -> bool:
    return not words or words.lower() in " ".join(map(str, record.values())).lower()


async def policy_page(visit: Visit) -> Response:
    """A command against a policy: what it would be told, without running anything."""
    query = visit.request.query_params
    command, policy, verdict, problem = (
        query.get("command", ""),
        query.get("policy", "default"),
        None,
        "",
    )
    if query.get("audit", "").isdigit():
        command, policy = await _asked(visit, int(query["audit"]))
    if command.strip():
        try:
            verdict = await visit.post(
                "/check", {"command": command.replace("\r\n", "\n"), "policy": policy}
            )
        except Refused as refused:
            problem = present.one_line(refused)
    policies = await _policies(visit)
    return await show(
        visit,
        "policy.html",
        "Policy · Belljar",
        command=command,
        policy=policy,
        policies=sorted({*policies, policy}),
        verdict=verdict,
        problem=problem,
        told=_told(verdict) if verdict else "",
        rows=min(12, max(2, command.count("\n") + 1)),
    )


async def _asked(visit: Visit, seq: int) -> tuple[str, str]:
    """The command and policy of one record of the trail."""
    found = await visit.items("/audit", limit=1, cursor=str(max(0, seq - 1)))
    record = next((record for record in found if record["seq"] == seq), {})
    verdict = present.judged(record)
    return str(verdict.get("canonical") or record.get("command") or ""), str(
        verdict.get("policy") or "default"
    ).partition("@")[0]


async def _policies(visit: Visit) -> list[str]:
    try:
        found = (await visit.get("/policies"))["items"]
    except Refused:
        return list(SHIPPED)
    return [each if isinstance(each, str) else each["name"] for each in found]


def _told(verdict: Facts) -> str:
    reason = present.one_line(verdict.get("reason"))
    if verdict["decision"] == "allow":
        return "Only its output."
    if verdict["decision"] == "ask":
        return f"Nothing, while a person is asked; if they say no: “{reason}” and their words."
    return f"“{reason}”"


async def keys_page(visit: Visit) -> Response:
    return await show(
        visit,
        "keys.html",
        "Keys · Belljar",
        script="apikeys.js",
        keys=await visit.items("/keys"),
    )


# Usage.


async def usage_page(visit: Visit) -> Response:
    name = visit.request.query_params.get("range", "hour")
    name = name if name in RANGES else "hour"
    seconds = RANGES[name][1]
    try:
        records = await _newest(visit, MOST_PAGES)
    except Refused:
        records = []
    since = visit.now - seconds
    found = [record for record in records if (present.when(record) or 0) >= since]
    return await show(
        visit,
        "usage.html",
        "Usage · Belljar",
        table=await _tenants(visit),
        range=name,
        ranges=[(word, title) for word, (title, _) in RANGES.items()],
        charts=drawn(found, since, seconds),
    )


async def _tenants(visit: Visit) -> Facts:
    heads = (
        "Tenant",
        "Sessions",
        "CPUs",
        "Memory",
        "Disk",
        "Commands",
        "CPU time",
        "Creates a minute",
    )
    usages = [await visit.get("/usage")]
    if "operator" in (await visit.me())["scopes"]:
        others = [
            each["name"]
            for each in await visit.items("/tenants")
            if each["name"] != usages[0]["tenant"]
        ]
        usages += [await visit.get("/usage", tenant=other) for other in others]
    rows = [{"cells": _usage(each)} for each in usages]
    return {"heads": heads, "rows": rows, "numbers": heads[1:], "empty": "No tenant."}


def _usage(each: Facts) -> list[str]:
    quota = each.get("quota") or {}

    def of(value: str, most: Any, unit: Any = present.number) -> str:
        return f"{value} of {unit(most)}" if most is not None else value

    return [
        present.one_line(each["tenant"]),
        of(present.number(each["sessions"]), quota.get("sessions")),
        of(f"{each['cpus'] or 0:g}", quota.get("cpus"), lambda most: f"{most:g}"),
        of(
            present.in_bytes(each["memory"] or 0), quota.get("memory"), present.in_bytes
        ),
        of(present.in_bytes(each["disk"] or 0), quota.get("disk"), present.in_bytes),
        present.number(each["commands"]),
        present.duration(each["cpu_time"] or 0.0),
        of(str(each["creates_last_minute"]), quota.get("creates_per_minute")),
    ]


def drawn(records: list[Facts], since: float, seconds: float) -> list[Facts]:
    """Load, latency and denials of the time, each as a chart and as the numbers it is made of."""
    buckets: list[list[Facts]] = [[] for _ in range(BUCKETS)]
    for record in records:
        buckets[
            min(
                BUCKETS - 1,
                int(((present.when(record) or since) - since) / seconds * BUCKETS),
            )
        ].append(record)
    starts = [since + seconds * index / BUCKETS for index in range(BUCKETS)]
    labels = [
        present.time_of_day(start)[:5]
        if seconds <= 86_400
        else present.moment(start)[5:10]
        for start in starts
    ]
    counts = {
        kind: [
            float(sum(record.get("kind") == kind for record in bucket))
            for bucket in buckets
        ]
        for kind in ("start", "verdict")
    }
    took = [
        sorted(
            record["duration"]
            for record in bucket
            if record.get("kind") == "end" and record.get("duration") is not None
        )
        for bucket in buckets
    ]
    denied = [
        float(
            sum(present.judged(record).get("decision") == "deny" for record in bucket)
        )
        for bucket in buckets
    ]
    return [
        _chart("Load", labels, [charts.Series("commands started", counts["start"])]),
        _chart(
            "Duration of commands",
            labels,
            [
                charts.Series("p50", [_share(each, 0.5) for each in took]),
                charts.Series("p95", [_share(each, 0.95) for each in took]),
            ],
            " s",
        ),
        _chart(
            "Denials",
            labels,
            [
                charts.Series("denied", denied),
                charts.Series("judged", counts["verdict"]),
            ],
        ),
    ]


def _share(values: Sequence[float], share: float) -> float | None:
    return (
        round(values[min(len(values) - 1, math.ceil(share * len(values)) - 1)], 3)
        if values
        else None
    )


def _chart(
    title: str, labels: list[str], series: list[charts.Series], unit: str = ""
) -> Facts:
    rows = [
        {
            "cells": [
                label,
                *(
                    ""
                    if each.points[index] is None
                    else f"{each.points[index]:g}{unit}"
                    for each in series
                ),
            ]
        }
        for index, label in enumerate(labels)
        if any(each.points[index] for each in series)
    ]
    return {
        "title": title,
        "svg": charts.lines(title, labels, series, unit),
        "table": {"heads": ["From", *(each.name for each in series)], "rows": rows},
    }
