"""`belljar schema NAME`: the JSON Schemas of what `--json` prints. New versions may add fields but never remove one."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, get_args

from belljar.errors import UsageError, suggestion
from belljar.session.result import Cause
from belljar.surfaces.cli import console

DIALECT = "https://json-schema.org/draft/2020-12/schema"
TEXT, NUMBER, WHOLE, YES = {"type": "string"}, {"type": "number"}, {"type": "integer"}, {"type": "boolean"}
TEXTS = {"type": "array", "items": TEXT}


def _or_none(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def _object(description: str, fields: dict[str, Any], optional: dict[str, Any] | None = None) -> dict[str, Any]:
    properties = fields | (optional or {})
    return {"description": description, "type": "object", "properties": properties, "required": list(fields)}


def _list(description: str, items: dict[str, Any]) -> dict[str, Any]:
    return {"description": description, "type": "array", "items": items}


_FINDING = _object("a rule that fired", {"id": TEXT, "decision": TEXT, "risk": TEXT, "reason": TEXT})
_VERDICT = {
    "decision": {"enum": ["allow", "ask", "deny"]},
    "risk": {"enum": ["low", "medium", "high", "critical", "blocked"]},
    "reason": TEXT,
    "rules": {"type": "array", "items": _FINDING},
    "canonical": TEXT,
}
_BASE64 = {"type": "string", "contentEncoding": "base64"}
_RESULT = {
    "cause": {"enum": list(get_args(Cause))}, "exit_code": WHOLE, "signal": _or_none(WHOLE), "stdout": TEXT,
    "stderr": TEXT, "output": TEXT, "truncated": YES, "bytes_produced": WHOLE, "bytes_kept": WHOLE, "duration": NUMBER,
    "cpu_time": NUMBER, "peak_memory": WHOLE, "survivors_killed": WHOLE, "started": NUMBER, "ended": NUMBER,
    "verdict": _or_none(_object("the policy's verdict", _VERDICT)),
}  # fmt: skip
_SHELL = {
    "id": TEXT, "session": TEXT, "status": {"enum": ["running", "completed", "failed", "killed"]},
    "exit_code": _or_none(WHOLE), "started": NUMBER, "command": TEXT,
}  # fmt: skip
_KIND = {"enum": ["added", "modified", "deleted", "mode", "type"]}
_SESSION = {"id": TEXT, "image": TEXT, "workspace": TEXT, "started": NUMBER, "lease": NUMBER}

SCHEMAS: dict[str, dict[str, Any]] = {
    "run": _object(
        "belljar run: how the command ended, and what it printed; as base64 too where that is no UTF-8",
        {**_RESULT, "session": TEXT},
        {"stdout_base64": _BASE64, "stderr_base64": _BASE64, "hints": TEXTS, "runs_later": TEXTS, "oom_kills": WHOLE,
         "listening": {"type": "array", "items": WHOLE}},
    ),
    "check": _object("belljar check: a verdict", _VERDICT, {"effects": TEXTS}),
    "error": _object(
        "any command: why it failed", {"error": TEXT, "message": TEXT},
        {"declined": YES, "verdict": _object("the policy's verdict", _VERDICT)},
    ),
    "session-start": _object("belljar session start", {"session": TEXT, "workspace": TEXT, "lease": NUMBER},
                             {"name": _or_none(TEXT)}),
    "session-list": _list("belljar session list, belljar ps",
                          _object("a session", _SESSION, {
                              "name": _or_none(TEXT), "owner": _or_none(WHOLE),
                              "metadata": {"type": "object", "additionalProperties": TEXT}})),
    "session-stop": _object("belljar session stop", {"stopped": TEXTS}),
    "stats": _list("belljar stats", _object("a session", {"id": TEXT, "memory": WHOLE, "pids": WHOLE},
                                            {"name": _or_none(TEXT), "memory_limit": WHOLE, "pids_limit": WHOLE})),
    "shells": _list("belljar shells", _object("a background shell", _SHELL)),
    "shell": _object("belljar start, belljar wait: a background shell", _SHELL),
    "logs": _object("belljar logs", {**_SHELL, "stdout": TEXT, "stderr": TEXT},
                    {"stdout_base64": _BASE64, "stderr_base64": _BASE64}),
    "kill": _object("belljar kill", {"killed": TEXTS}),
    "doctor": _list("belljar doctor", _object("an item", {"name": TEXT, "ok": YES, "detail": TEXT, "fix": TEXT})),
    "images": _list("belljar images", _object("an image", {"name": TEXT, "reference": TEXT, "size": WHOLE})),
    "image": _object("belljar images build", {"name": TEXT, "reference": TEXT}),
    "images-import": _list("belljar images import", _object("an image", {"id": TEXT, "names": TEXTS, "size": WHOLE})),
    "images-remove": _object("belljar images remove", {"removed": TEXTS}),
    "images-prune": _object("belljar images prune", {"images": TEXTS, "layers": WHOLE, "bytes": WHOLE}),
    "cp": _object("belljar cp", {"source": TEXT, "target": TEXT}),
    "forward": _object("belljar forward", {"url": TEXT, "port": WHOLE}),
    "changes": _list("belljar changes", _object("a change", {"path": TEXT, "kind": _KIND, "binary": YES})),
    "diff": _object("belljar diff", {"diff": TEXT}),
    "diff-stat": _list("belljar diff --stat", _object("a change", {
        "path": TEXT, "kind": _KIND, "added": WHOLE, "removed": WHOLE})),
    "applied": _object("belljar apply, belljar discard", {
        "paths": TEXTS, "held": TEXTS, "refused": TEXTS, "merged": TEXTS}),
    "checkpoint": _object("belljar checkpoint, belljar rollback", {"name": TEXT, "when": NUMBER}),
    "tools": _list("belljar tools", {"type": "object", "description": "a tool in the form that --format names"}),
    "call": {"description": "belljar call: the tool's own result", "type": "object"},
    "prune": _object("belljar prune", {"removed": TEXTS}),
    "audit-show": _list("belljar audit show", {"type": "object", "description": "a record"}),
    "audit-verify": {"description": "belljar audit verify", "type": "object"},
    "network-explain": _list("belljar network explain", {"type": "object", "description": "a host of a preset"}),
    "policy": {"description": "belljar policy explain, test, show", "type": "object"},
    "policy-list": _list("belljar policy list", _object("a policy", {
        "name": TEXT, "version": TEXT, "description": TEXT, "file": TEXT, "extends": TEXTS, "ask_at": TEXT, "ask": TEXT,
        "allow_programs": _or_none(TEXTS), "knowledge": TEXTS,
        "network": _object("hosts", {"allow": _or_none(TEXTS), "ceiling": _or_none(TEXTS)})})),
    "schema": {"description": "belljar schema: the names; with a name, its schema", "type": ["array", "object"]},
    "config": {
        "description": "belljar config: each setting and where it comes from", "type": "object",
        "additionalProperties": _object("a setting", {"value": TEXT, "source": TEXT, "enforced": YES, "bound": TEXT}),
    },
    "text": _object("belljar help, belljar completion, belljar man", {"text": TEXT}),
    "version": _object("belljar version", {"version": TEXT}),
}  # fmt: skip


def schema(args: Namespace) -> int:
    name = args.schema
    if name is None:
        rows = ((name, entry["description"]) for name, entry in SCHEMAS.items())
        return console.answer_table(args, sorted(SCHEMAS), rows, "SCHEMA", "OF")
    if name not in SCHEMAS:
        raise UsageError(f"there is no schema {name!r}; {suggestion(name, SCHEMAS)}")
    console.document({"$schema": DIALECT, "title": f"belljar {name}", **SCHEMAS[name]})
    return 0
