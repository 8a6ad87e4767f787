"""What clients send and get, as types. Requests are checked against them, and `/openapi.json` is made from them.

Types are strict: `"5"` is no number. An unknown field is an error that names it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from belljar.network.presets import PRESETS
from belljar.policy import BUILT_IN
from belljar.surfaces.http.pages import CURSOR
from belljar.surfaces.http.quota import NETWORKS

Seconds = Annotated[float, Field(ge=0, le=4_000_000, allow_inf_nan=False)]
Name = Annotated[
    str, StringConstraints(min_length=1, max_length=64, pattern=r"^[^\x00-\x1f\x7f]*$")
]
Slug = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,62}$")]
Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$")]
Variables = dict[
    Annotated[str, StringConstraints(min_length=1, pattern=r"^[^=\x00]+$")], Text
]
Scope = Literal["read", "run", "approve", "admin", "operator"]
Network = Literal["none", "full"]
Mode = Annotated[str, StringConstraints(pattern=r"^0?[0-7]{3}$")]
SignalName = Annotated[str, StringConstraints(pattern=r"^(SIG)?[A-Z0-9+-]{1,10}$")]


def _whole(value: Any) -> Any:
    return int(value) if type(value) is float and value % 1 == 0 else value


Whole: TypeAlias = Annotated[int, BeforeValidator(_whole)]
"""Also as JSON writes it elsewhere: 5.0."""
Time = Annotated[float, Field(allow_inf_nan=False)]
Size = Annotated[
    str,
    StringConstraints(pattern=r"^[0-9]{1,6}(\.[0-9]{1,3})? ?([kmgtKMGT](i?[bB])?)?$"),
]

# What types cannot say, for who reads the schema.
POLICIES = [*BUILT_IN, "none"]
MOST = 1 << 50
"""Bytes of any limit."""
MOST_OUTPUT = 64 << 20
"""Of a result, which the service holds in memory."""


def _limit(least: float, most: float, kind: str = "integer") -> dict[str, Any]:
    return {
        "anyOf": [{"type": kind, "minimum": least, "maximum": most}, {"type": "null"}]
    }


_LIMITS = {
    "memory": _limit(16 << 20, MOST),
    "cpus": _limit(0.01, 1024, "number"),
    "pids": _limit(16, 4_194_304),
    "disk": _limit(0, MOST),
    "nofile": _limit(64, 1_048_576),
    "fsize": _limit(1 << 20, MOST),
    "output": _limit(4096, MOST_OUTPUT),
}
_ABOUT_LIMITS = 'Sizes are bytes, or text: "512m". Also tmp, home, shm and inodes, which must fit into memory.'
_HOST = r"^(\*\.)?([a-z][a-z0-9]{0,20}\.){1,4}[a-z]{2,10}(:[1-9][0-9]{0,3})?$"
_TOPICS = (
    r"^(sessions|commands|approvals|audit)(,(sessions|commands|approvals|audit)){0,3}$"
)


def hint(**schema: Any) -> Any:
    return WithJsonSchema(schema)


def never_together(**wrong: Any) -> dict[str, Any]:
    return {"not": {"properties": wrong, "required": [*wrong]}}


_PRESETS: Any = Literal[tuple(PRESETS)]
_NETWORKS = Literal[NETWORKS]  # type: ignore[valid-type]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class Query(BaseModel):
    model_config = ConfigDict(extra="forbid")


# Sessions.


def _small(value: dict[str, str]) -> dict[str, str]:
    size = sum(len(name.encode()) + len(text.encode()) for name, text in value.items())
    if size > 4096:
        raise ValueError("at most 4096 bytes")
    return value


Metadata = Annotated[dict[str, Text], AfterValidator(_small)]


class Allow(Body):
    allow: Annotated[
        list[Text], hint(type="array", items={"type": "string", "pattern": _HOST})
    ] = []
    presets: list[_PRESETS] = []
    ask_hosts: bool = False


class SessionBody(Body):
    model_config = ConfigDict(
        json_schema_extra={
            "allOf": [
                never_together(root={"const": True}, debug={"const": True}),
                never_together(
                    **{"from": {"type": "string"}, "snapshot": {"type": "string"}}
                ),
            ]
        }
    )
    image: Annotated[
        str,
        StringConstraints(
            min_length=1, max_length=255, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@-]*$"
        ),
    ] = "base"
    limits: Annotated[
        dict[str, int | float | str | None],
        hint(
            type="object",
            properties=_LIMITS,
            additionalProperties=False,
            description=_ABOUT_LIMITS,
        ),
    ] = {}
    policy: Annotated[str, StringConstraints(max_length=64), hint(enum=POLICIES)] = (
        "default"
    )
    name: Name | None = None
    network: Network | Allow = "none"
    changes: Literal["direct", "staged"] = "direct"
    checkpoints: Literal["off", "auto"] = "off"
    env: Variables = {}
    metadata: Metadata = {}
    lease: Annotated[float, Field(gt=0, le=4_000_000, allow_inf_nan=False)] = 600.0
    approval_seconds: Annotated[float, Field(ge=0, le=86400, allow_inf_nan=False)] = (
        300.0
    )
    root: bool = False
    debug: bool = False
    workspace: Slug | None = None
    from_: Annotated[str | None, Field(alias="from")] = None
    snapshot: str | None = None


class SessionPatch(Body):
    lease: Annotated[float, Field(gt=0, le=4_000_000, allow_inf_nan=False)] | None = (
        None
    )
    metadata: Metadata | None = None
    paused: bool | None = None
    bypass_until: Annotated[float, Field(allow_inf_nan=False)] | None = None


class HostsBody(Body):
    hosts: Annotated[
        list[Annotated[Text, hint(type="string", pattern=_HOST)]], Field(min_length=1)
    ]


class Page(Query):
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, StringConstraints(pattern=CURSOR)] | None = None


class SessionsQuery(Page):
    state: (
        Literal[
            "queued", "pulling", "starting", "verifying", "ready", "paused", "ended"
        ]
        | None
    ) = None


# Commands.


class CommandBody(Body):
    command: Text | Annotated[list[Text], Field(min_length=1)]
    timeout: Annotated[float, Field(gt=0, le=4_000_000, allow_inf_nan=False)] | None = (
        None
    )
    grace: Seconds = 2.0
    cwd: Text | None = None
    env: Variables = {}
    stdin: str | None = None
    stdin_open: bool = False
    shell: (
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]{1,64}$")] | None
    ) = None
    combined: bool = False
    pty: bool = False
    size: (
        Annotated[
            list[Annotated[Whole, Field(ge=1, le=65535)]],
            Field(min_length=2, max_length=2),
        ]
        | None
    ) = None
    clean_env: bool = False
    output_limit: Annotated[Whole, Field(ge=1)] | None = None
    on_full: Literal["drop", "wait"] = "drop"
    user: Text | None = None


class CommandsQuery(Page):
    state: Literal["queued", "waiting", "running", "ended"] | None = None


class OutputQuery(Query):
    offset: Annotated[int, Field(ge=0, lt=1 << 62)] = 0
    limit: Annotated[int, Field(ge=1, le=16 << 20)] = 1 << 20
    wait: Annotated[float, Field(ge=0, le=300, allow_inf_nan=False)] = 0.0
    stream: Literal["stdout", "stderr"] | None = None


class StdinQuery(Query):
    close: bool = False


class SignalBody(Body):
    signal: (
        Annotated[Whole, Field(ge=1, le=64)]
        | Annotated[str, StringConstraints(pattern=r"^(SIG)?[A-Z0-9+-]{1,10}$")]
    )


class GraceQuery(Query):
    grace: Seconds = 2.0


# Files.


class PathQuery(Query):
    path: Annotated[Text, Field(min_length=1, max_length=4096)]


class ReadQuery(PathQuery):
    offset: Annotated[int, Field(ge=0, lt=1 << 62)] = 0
    length: Annotated[int, Field(ge=0, lt=1 << 62)] | None = None


class WriteQuery(PathQuery):
    mode: Mode = "0644"


class SearchQuery(Query):
    path: Annotated[Text, Field(min_length=1, max_length=4096)] = "."
    expression: Annotated[Text, Field(min_length=1, max_length=4096)]
    limit: Annotated[int, Field(ge=1, le=10_000)] = 1000


class DirectoryQuery(Query):
    path: Annotated[Text, Field(min_length=1, max_length=4096)] = "."


class EntriesQuery(DirectoryQuery):
    depth: Annotated[int, Field(ge=0, le=100)] = 1


# Review.


class DiffQuery(Query):
    path: list[Text] = []
    against: str | None = None


class ApplyBody(Body):
    paths: list[Text] | None = None
    force: bool = False
    merge: bool = False
    runs_later: bool = False
    contents: dict[str, str] | None = None
    hunks: dict[str, list[Annotated[Whole, Field(ge=0)]]] | None = None


class SidesQuery(Query):
    path: Text


class PathsBody(Body):
    paths: list[Text] | None = None


class NameBody(Body):
    name: Name


class RollbackBody(Body):
    name: Name | None = None


class SnapshotBody(Body):
    session: str
    name: Slug


class NoBody(Body):
    pass


class NoQuery(Query):
    pass


# Approvals, keys and the rest.


class ApprovalsQuery(Page):
    state: Literal["waiting", "allowed", "denied", "expired", "cancelled", ""] = (
        "waiting"
    )
    """Empty: all."""
    session: str | None = None


class DecisionBody(Body):
    decision: Literal["allow", "deny"]
    token: str
    scope: Literal["once", "session"] = "once"
    reason: Annotated[str, StringConstraints(max_length=500)] = ""


class QuotaBody(Body):
    sessions: Annotated[Whole, Field(ge=0)] | None = None
    memory: Annotated[Whole, Field(ge=0)] | Size | None = None
    cpus: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    disk: Annotated[Whole, Field(ge=0)] | Size | None = None
    creates_per_minute: Annotated[Whole, Field(ge=0)] | None = None
    lifetime: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    policies: list[Text] | None = None
    network: _NETWORKS | None = None


class KeyBody(Body):
    name: Name
    scopes: Annotated[list[Scope], Field(min_length=1)]
    tenant: Slug | None = None
    reach: Literal["tenant", "own"] | None = None
    quota: QuotaBody = QuotaBody()
    expires: Annotated[
        Time | None, hint(anyOf=[{"type": "number", "minimum": 4e9}, {"type": "null"}])
    ] = None
    """A time to come."""


class TenantBody(Body):
    name: Slug
    quota: QuotaBody = QuotaBody()


class LoginBody(Body):
    key: str


class UsageQuery(Query):
    tenant: str | None = None


class CheckBody(Body):
    command: Text | Annotated[list[Text], Field(min_length=1)]
    policy: Annotated[str, StringConstraints(max_length=64), hint(enum=[*BUILT_IN])] = (
        "default"
    )
    cwd: Text | None = None


class AuditQuery(Query):
    kind: str | None = None
    session: str | None = None
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, StringConstraints(pattern=r"^[0-9]{1,18}$")] | None = None
    after: Annotated[int, Field(ge=0)] | None = None
    order: Literal["oldest", "newest"] = "oldest"


class EventsQuery(Query):
    topics: Annotated[Text, hint(type="string", pattern=_TOPICS)] = (
        "sessions,commands,approvals"
    )


class LinkBody(Body):
    port: Annotated[Whole, Field(ge=1, le=65535)]
    seconds: Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)] = 3600.0


# Answers.


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow")


class Current(Answer):
    id: str
    command: str | list[str]
    started: float | None


class ProblemAnswer(Answer):
    type: str
    title: str
    status: int
    detail: str
    code: str
    request_id: str


class SessionAnswer(Answer):
    id: str
    tenant: str
    key: str
    state: Literal[
        "queued", "pulling", "starting", "verifying", "ready", "paused", "ended"
    ]
    reason: Literal["deleted", "expired", "lost", "failed"] | None
    error: ProblemAnswer | None
    created: float
    started: float | None
    ended: float | None
    expires: float | None
    paused: bool
    bypass_until: float | None
    current: Current | None
    running: int
    waiting: int
    listening: list[int]
    image: str
    limits: dict[str, Any]
    policy: str
    name: str | None
    network: Network | Allow
    changes: Literal["direct", "staged"]
    checkpoints: Literal["off", "auto"]
    env: dict[str, str]
    metadata: dict[str, str]
    lease: float
    approval_seconds: float
    root: bool
    debug: bool
    workspace: str | None
    from_: Annotated[str | None, Field(alias="from")]
    snapshot: str | None


class CommandAnswer(Answer):
    id: str
    session: str
    command: str | list[str]
    state: Literal["queued", "waiting", "running", "ended"]
    shell: str | None
    pty: bool
    created: float
    started: float | None
    ended: float | None
    bytes_produced: int
    bytes_dropped: int
    exit_code: int | None
    approval: str | None
    verdict: dict[str, Any] | None
    result: dict[str, Any] | None
    error: ProblemAnswer | None


class Decided(Answer):
    by: str
    name: str
    at: float
    decision: Literal["allow", "deny"]
    scope: Literal["once", "session"]
    reason: str


class ApprovalAnswer(Answer):
    id: str
    session: str
    tenant: str
    key: str
    name: str
    command: str | None
    about: str
    state: Literal["waiting", "allowed", "denied", "expired", "cancelled"]
    text: str
    risk: str
    reason: str
    rules: list[dict[str, Any]]
    effects: list[str]
    cwd: str
    policy: str
    created: float
    expires: float
    token: str
    decided: Decided | None


class KeyAnswer(Answer):
    id: str
    name: str
    tenant: str
    scopes: list[Scope]
    reach: Literal["tenant", "own"]
    parent: str | None
    quota: dict[str, Any]
    created: float
    expires: float | None
    last_used: float | None


class NewKeyAnswer(KeyAnswer):
    key: str


class TenantAnswer(Answer):
    name: str
    quota: dict[str, Any]
    created: float


class UsageAnswer(Answer):
    tenant: str
    sessions: int
    memory: int
    cpus: float
    disk: int
    creates_last_minute: int
    commands: int
    cpu_time: float
    quota: dict[str, Any]


class FileAnswer(Answer):
    path: str
    kind: str
    mode: int
    size: int
    mtime_ns: int
    target: str | None


class AppliedAnswer(Answer):
    paths: list[str]
    held: list[str]
    refused: list[Any]
    merged: list[str]


class PathsAnswer(Answer):
    paths: list[str]


class PointAnswer(Answer):
    name: str
    when: float


class SnapshotAnswer(Answer):
    name: str
    image: str
    size: int
    created: float
    left_out: list[str]


class LinkAnswer(Answer):
    url: str
    expires: float


class VerdictAnswer(Answer):
    decision: Literal["allow", "ask", "deny"]
    risk: str
    reason: str
    canonical: str
    rules: list[dict[str, Any]]
    effects: list[str]


class Items(Answer):
    items: list[Any]
    next: str | None
