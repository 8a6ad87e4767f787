"""The parameters of tools: checking them, with every problem at once, and their JSON Schema."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic_core import ErrorDetails, PydanticCustomError

from belljar.errors import UsageError


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Config(BaseModel):
    """A tool's configuration, set by the program that runs Belljar. The model never sees it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _to_integer(value: Any) -> Any:
    """JSON has one kind of number, so 5.0 is an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _not_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("missing", "is blank")
    return value


Integer = Annotated[int, BeforeValidator(_to_integer)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_not_blank)]


@dataclass(frozen=True, slots=True)
class Problem:
    """One wrong parameter."""

    parameter: str
    message: str
    code: str

    def as_dict(self) -> dict[str, str]:
        return {"parameter": self.parameter, "message": self.message, "code": self.code}


_CODES = {
    "missing": "REQUIRED",
    "string_too_short": "REQUIRED",
    "extra_forbidden": "UNKNOWN_PARAMETER",
    "greater_than_equal": "INVALID_RANGE",
    "less_than_equal": "INVALID_RANGE",
}


P = TypeVar("P", bound=Params)


def check(model: type[P], given: object) -> P | list[Problem]:
    """The parameters, or a list of all problems. A parameter that is null counts as left out."""
    if not isinstance(given, Mapping):
        return [Problem("", "The parameters must be an object", "INVALID_TYPE")]
    values = {
        name: value
        for name, value in given.items()
        if value is not None or name not in model.model_fields
    }
    try:
        return model.model_validate(values)
    except ValidationError as error:
        return [_problem(model, detail) for detail in error.errors(include_url=False)]


def configured(name: str, model: type[Config], given: Mapping[str, Any]) -> Config:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        details = "; ".join(
            f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}"
            for detail in error.errors()
        )
        raise UsageError(f"the configuration of {name} is wrong: {details}") from error


def _problem(model: type[Params], detail: ErrorDetails) -> Problem:
    name = ".".join(str(part) for part in detail["loc"])
    code = _CODES.get(detail["type"], "INVALID_TYPE")
    message = {
        "REQUIRED": f"Parameter '{name}' is required",
        "UNKNOWN_PARAMETER": f"Unknown parameter '{name}'; known are {', '.join(model.model_fields)}",
    }.get(code, f"Parameter '{name}': {detail['msg'][:1].lower()}{detail['msg'][1:]}")
    return Problem(name, message, code)


def schema(model: type[Params]) -> dict[str, Any]:
    """JSON Schema 2020-12 of the parameters, without the keys that only pydantic uses."""
    generated = model.model_json_schema()
    properties = {
        name: _property(value)
        for name, value in generated.get("properties", {}).items()
    }
    shape = {
        "type": "object",
        "properties": properties,
        "required": generated.get("required", []),
    }
    return {**shape, "additionalProperties": False}


_NAMES = {
    "ge": "minimum",
    "le": "maximum",
}  # pydantic does not translate these for a type with a validator


def _property(generated: dict[str, Any]) -> dict[str, Any]:
    """pydantic writes an optional text as "string or null, default null". Here it is just a string."""
    kinds = [kind for kind in generated.pop("anyOf", []) if kind != {"type": "null"}]
    generated |= kinds[0] if kinds else {}
    named = {_NAMES.get(key, key): value for key, value in generated.items()}
    return {
        key: value
        for key, value in named.items()
        if key != "title" and (key, value) != ("default", None)
    }
