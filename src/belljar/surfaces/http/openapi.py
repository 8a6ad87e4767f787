"""`/openapi.json`, made from the table of routes and the types of their bodies and answers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from belljar.surfaces.http.calls import Route
from belljar.surfaces.http.models import Body, ProblemAnswer

_TEMPLATE = "#/components/schemas/{model}"
_PROBLEMS = "4XX", "5XX"


def document(routes: Sequence[Route]) -> dict[str, Any]:
    return _document(tuple(routes))


@cache
def _document(routes: tuple[Route, ...]) -> dict[str, Any]:
    bodies = {route.body for route in routes if route.body is not None}
    answers = {route.answer for route in routes if route.answer is not None} | {
        ProblemAnswer
    }
    wanted = [(model, "validation") for model in bodies] + [
        (model, "serialization") for model in answers
    ]
    ordered = sorted(wanted, key=lambda pair: pair[0].__name__)
    _, schemas = models_json_schema(ordered, ref_template=_TEMPLATE)  # type: ignore[arg-type]
    paths: dict[str, dict[str, Any]] = {}
    for route in routes:
        paths.setdefault(route.path, {})[route.method.lower()] = _operation(route)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Belljar",
            "version": "1",
            "description": "Sandboxes for the commands of agents.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas["$defs"],
            "securitySchemes": {
                "key": {"type": "http", "scheme": "bearer", "description": "bj_…"}
            },
        },
        "security": [{"key": []}],
    }


def _operation(route: Route) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": route.handler.__name__,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route)],
        "responses": {
            str(route.status): _answer(route),
            **_also(route),
            **{each: _problem() for each in _PROBLEMS},
        },
    }
    if route.scope == "":
        operation["security"] = []
    if route.body is not None:
        operation["requestBody"] = {
            "required": _is_required(route.body),
            "content": {"application/json": _schema(route.body)},
        }
    elif route.raw:
        media = "application/octet-stream" if route.raw == "*/*" else route.raw
        operation["requestBody"] = {
            "content": {media: {"schema": {"type": "string", "format": "binary"}}}
        }
    return operation


def _is_required(model: type[Body]) -> bool:
    return any(field.is_required() for field in model.model_fields.values())


def _also(route: Route) -> dict[str, Any]:
    """Other answers that are no errors."""
    if not route.streams:
        return {}
    found: dict[str, Any] = {}
    if route.method == "POST":
        found["202"] = _answer(route)
    return found


def _answer(route: Route) -> dict[str, Any]:
    told = {"description": route.summary or "done"}
    if route.status == 204:
        return told
    content: dict[str, Any] = {
        route.media: _schema(route.answer) if route.answer is not None else {}
    }
    if route.streams:
        content["text/event-stream"] = {}
    if route.path == "/v1/audit":
        content["application/x-ndjson"] = {}
    return {**told, "content": content}


def _problem() -> dict[str, Any]:
    return {
        "description": "a problem",
        "content": {"application/problem+json": _schema(ProblemAnswer)},
    }


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    return {"schema": {"$ref": _TEMPLATE.format(model=model.__name__)}}


def _path_parameters(route: Route) -> list[dict[str, Any]]:
    names = re.findall(r"{(\w+)(?::\w+)?}", route.path)
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]


def _query_parameters(route: Route) -> list[dict[str, Any]]:
    schema = route.query.model_json_schema()
    required = schema.get("required", ())
    return [
        {
            "name": name,
            "in": "query",
            "required": name in required,
            "schema": _without_null(field),
        }
        for name, field in schema.get("properties", {}).items()
    ]


def _without_null(field: dict[str, Any]) -> dict[str, Any]:
    """A query has no null: what may be left out is left out."""
    choices = [
        choice for choice in field.get("anyOf", ()) if choice != {"type": "null"}
    ]
    return choices[0] if len(choices) == 1 else field
