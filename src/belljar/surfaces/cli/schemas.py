"""`belljar schema NAME`: the JSON Schemas of what `--json` prints, made from the types that print it.

New versions may add fields but never remove one.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal

from belljar.codec import schema as schema_of
from belljar.codec import shape
from belljar.doctor.check import Check
from belljar.errors import UsageError, suggestion
from belljar.policy import Verdict
from belljar.policy.verdict import Finding
from belljar.sandbox.census import Seen
from belljar.session.kept import Kept
from belljar.session.result import SHOWN, Result, Status
from belljar.session.snapshot import Snapshot
from belljar.staged.apply import Applied
from belljar.staged.area import Point
from belljar.staged.change import Change
from belljar.surfaces.cli import console

DIALECT = "https://json-schema.org/draft/2020-12/schema"

Texts = list[str]
Entry = tuple[str, Any]
"""A description, and a type or a schema."""
_LATER = ("hints", "runs_later", "oom_kills", "listening", "network")
_RESULT = tuple(name for name in SHOWN if name not in _LATER)
_VERDICT = ("reason", "canonical")
_SHELL: dict[str, Any] = {
    "id": str,
    "session": str,
    "status": Status,
    "exit_code": int | None,
    "started": float,
    "command": str,
}
_SESSION = ("id", "image", "workspace", "started", "lease", "paused")
_SNAPSHOT_THERE = ("name", "image", "created", "size", "left_out")
_SNAPSHOT = ("name", "image", "engine", "workspace", "created", "size", "left_out")
_APPROVAL: dict[str, Any] = {
    "id": str,
    "session": str,
    "state": Literal["waiting", "allowed", "denied", "expired", "cancelled"],
    "text": str,
    "risk": str,
    "reason": str,
    "effects": Texts,
    "expires": float,
    "token": str,
}
_ANY: dict[str, Any] = {"type": "object"}


@cache
def _entries() -> dict[str, Entry]:
    from pydantic import Field

    base64 = Annotated[str, Field(json_schema_extra={"contentEncoding": "base64"})]
    raw: dict[str, Any] = {"stdout_base64": base64, "stderr_base64": base64}
    judged: dict[str, Any] = {
        "decision": Literal["allow", "ask", "deny"],
        "risk": Literal["low", "medium", "high", "critical", "blocked"],
        "rules": list[Finding],
    }
    verdict = shape("the policy's verdict", (Verdict, _VERDICT), **judged)
    later: dict[str, Any] = {
        "hints": Texts,
        "runs_later": Texts,
        "oom_kills": int,
        "listening": list[int],
    }

    def listed(what: str, of: Any, **more: Any) -> Any:
        fixed, fields = ((of,), {}) if isinstance(of, tuple) else ((), of)
        return list[shape(what, *fixed, **fields, **more)]  # type: ignore[misc]

    hosts: Any = shape("hosts", allow=Texts | None, ceiling=Texts | None)
    setting: Any = shape("a setting", value=str, source=str, enforced=bool, bound=str)
    return {
        "run": (
            "belljar run: how the command ended, and what it printed; as base64 too where that is no UTF-8",
            shape(
                "a result",
                (Result, _RESULT),
                session=str,
                verdict=verdict | None,
                optional={**raw, **later},
            ),
        ),
        "check": (
            "belljar check: a verdict",
            shape(
                "a verdict", (Verdict, _VERDICT), **judged, optional={"effects": Texts}
            ),
        ),
        "error": (
            "any command: why it failed",
            shape(
                "an error",
                error=str,
                message=str,
                optional={
                    "declined": bool,
                    "verdict": verdict,
                    "errno": int,
                    "paths": dict[str, str],
                },
            ),
        ),
        "session-start": (
            "belljar session start",
            shape(
                "a session",
                session=str,
                workspace=str,
                lease=float,
                optional={"name": str | None},
            ),
        ),
        "session-list": (
            "belljar session list, belljar ps",
            listed(
                "a session",
                (Kept, _SESSION),
                optional={
                    "name": str | None,
                    "owner": int | None,
                    "metadata": dict[str, str],
                },
            ),
        ),
        "session-list-all": (
            "belljar ps --all, belljar stats --all: sandboxes of all users",
            listed(
                "a sandbox",
                (
                    Seen,
                    (
                        "id",
                        "user",
                        "uid",
                        "pid",
                        "workspace",
                        "memory",
                        "pids",
                        "memory_limit",
                        "pids_limit",
                        "paused",
                    ),
                ),
                started=float,
            ),
        ),
        "session-stop": ("belljar session stop", shape("ended", stopped=Texts)),
        "snapshot": (
            "belljar snapshots make",
            shape("a snapshot", (Snapshot, _SNAPSHOT)),
        ),
        "snapshots": (
            "belljar snapshots list",
            listed(
                "a snapshot",
                (Snapshot, _SNAPSHOT_THERE),
                optional={"engine": str, "workspace": str},
            ),
        ),
        "snapshots-remove": (
            "belljar snapshots remove",
            shape("removed", removed=Texts),
        ),
        "session-pause": ("belljar session pause", shape("paused", paused=Texts)),
        "session-resume": ("belljar session resume", shape("resumed", resumed=Texts)),
        "stats": (
            "belljar stats",
            listed(
                "a session",
                {"id": str, "memory": int, "pids": int},
                optional={"name": str | None, "memory_limit": int, "pids_limit": int},
            ),
        ),
        "shells": ("belljar shells", listed("a background shell", _SHELL)),
        "shell": (
            "belljar start, belljar wait: a background shell",
            shape("a shell", **_SHELL),
        ),
        "logs": (
            "belljar logs",
            shape(
                "a shell and its output", **_SHELL, stdout=str, stderr=str, optional=raw
            ),
        ),
        "kill": ("belljar kill", shape("ended", killed=Texts)),
        "doctor": ("belljar doctor", list[Check]),
        "kubernetes-manifests": (
            "belljar kubernetes manifests: the objects, as Kubernetes' API takes them",
            list[dict[str, Any]],
        ),
        "kubernetes-image": (
            "belljar kubernetes image",
            shape("an image", image=str, file=str),
        ),
        "setup-user": (
            "belljar setup-user",
            shape("what was done", user=str, done=Texts),
        ),
        "ci": ("belljar ci: a job", shape("a job", system=str, job=str)),
        "conformance": (
            "belljar conformance",
            listed("a check", {"group": str, "check": str, "state": str, "why": str}),
        ),
        "login": (
            "belljar login, belljar logout: where commands run",
            shape(
                "a service",
                url=str | None,
                optional={
                    "name": str,
                    "tenant": str,
                    "scopes": Texts,
                    "expires": float | None,
                },
            ),
        ),
        "approvals": (
            "belljar approvals list, belljar approvals allow, belljar approvals deny",
            listed("an approval", _APPROVAL),
        ),
        "approval": ("belljar approvals show", shape("an approval", **_APPROVAL)),
        "images": (
            "belljar images list",
            listed("an image", {"name": str, "reference": str, "size": int}),
        ),
        "image": ("belljar images build", shape("an image", name=str, reference=str)),
        "images-import": (
            "belljar images import",
            listed("an image", {"id": str, "names": Texts, "size": int}),
        ),
        "images-export": (
            "belljar images export",
            shape("an image", id=str, file=str, size=int),
        ),
        "images-key": ("belljar images key", shape("a key", name=str, key=str)),
        "images-remove": ("belljar images remove", shape("removed", removed=Texts)),
        "images-prune": (
            "belljar images prune",
            shape("removed", images=Texts, layers=int, bytes=int),
        ),
        "cp": ("belljar cp", shape("copied", source=str, target=str)),
        "forward": ("belljar forward", shape("a port", url=str, port=int)),
        "changes": (
            "belljar changes",
            listed("a change", (Change, ("path", "kind", "binary"))),
        ),
        "diff": ("belljar diff", shape("a diff", diff=str)),
        "diff-stat": (
            "belljar diff --stat",
            listed("a change", (Change, ("path", "kind")), added=int, removed=int),
        ),
        "applied": (
            "belljar apply, belljar review, belljar discard",
            shape(
                "what was applied",
                (Applied, ("paths", "held", "refused")),
                merged=Texts,
            ),
        ),
        "checkpoint": (
            "belljar checkpoint, belljar rollback",
            shape("a checkpoint", (Point, ("name", "when"))),
        ),
        "checkpoints": (
            "belljar checkpoint --list",
            listed("a checkpoint", (Point, ("name", "when")), changes=str),
        ),
        "tools": (
            "belljar tools: tools in the form that --format names",
            list[dict[str, Any]],
        ),
        "call": ("belljar call: the tool's own result", _ANY),
        "prune": ("belljar prune", shape("removed", removed=Texts)),
        "audit-show": ("belljar audit show: records", list[dict[str, Any]]),
        "audit-verify": ("belljar audit verify; of --collected: by user", _ANY),
        "network-explain": (
            "belljar network explain: hosts of a preset",
            list[dict[str, Any]],
        ),
        "policy": ("belljar policy explain, test, show", _ANY),
        "policy-list": (
            "belljar policy list",
            listed(
                "a policy",
                {
                    "name": str,
                    "version": str,
                    "description": str,
                    "file": str,
                    "extends": Texts,
                    "ask_at": str,
                    "ask": str,
                    "allow_programs": Texts | None,
                    "knowledge": Texts,
                    "network": hosts,
                },
            ),
        ),
        "schema": (
            "belljar schema: the names; with a name, its schema",
            {"type": ["array", "object"]},
        ),
        "config": (
            "belljar config: each setting and where it comes from",
            dict.__class_getitem__((str, setting)),
        ),
        "text": (
            "belljar help, belljar completion, belljar man, belljar audit collect --print-unit",
            shape("a text", text=str),
        ),
        "version": ("belljar version", shape("a version", version=str)),
    }


class _Schemas(Mapping[str, dict[str, Any]]):
    """Each is made when it is first asked for: that needs pydantic."""

    def __getitem__(self, name: str) -> dict[str, Any]:
        description, kind = _entries()[name]
        return {
            **(kind if isinstance(kind, dict) else schema_of(kind)),
            "description": description,
        }

    def __iter__(self) -> Iterator[str]:
        return iter(_entries())

    def __len__(self) -> int:
        return len(_entries())


SCHEMAS = _Schemas()


def descriptions() -> list[tuple[str, str]]:
    return [(name, description) for name, (description, _) in _entries().items()]


def schema(args: Namespace) -> int:
    name = args.schema
    if name is None:
        return console.answer_table(
            args, sorted(SCHEMAS), descriptions(), "SCHEMA", "OF"
        )
    if name not in SCHEMAS:
        raise UsageError(f"there is no schema {name!r}; {suggestion(name, SCHEMAS)}")
    console.document({"$schema": DIALECT, **SCHEMAS[name], "title": f"belljar {name}"})
    return 0
