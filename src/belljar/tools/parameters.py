"""Parameters as data: all that is wrong with a call at once, and the JSON Schema that says what would be right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from belljar.errors import UsageError


class Params(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Config(BaseModel):
    """What the host decides about a tool; the model never sees it."""

    model_config = ConfigDict(extra="forbid", frozen=True)


def _whole(value: Any) -> Any:
    """JSON has one kind of number: 5.0 is an integer there."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _spoken(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("missing", "is blank")
    return value


Integer = Annotated[int, BeforeValidator(_whole)]
Text = Annotated[str, Field(min_length=1), AfterValidator(_spoken)]


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
    """The parameters, or everything that is wrong with them. A null counts as not given."""
    if not isinstance(given, Mapping):
        return [Problem("", "The parameters must be an object", "INVALID_TYPE")]
    said = {name: value for name, value in given.items() if value is not None or name not in model.model_fields}
    try:
        return model.model_validate(said)
    except ValidationError as error:
        return [_problem(model, detail) for detail in error.errors(include_url=False)]


def configured(name: str, model: type[Config], given: Mapping[str, Any]) -> Config:
    try:
        return model.model_validate(given)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise UsageError(f"the configuration of {name} is wrong: {wrong}") from error


def _problem(model: type[Params], detail: ErrorDetails) -> Problem:
    name = ".".join(str(part) for part in detail["loc"])
    code = _CODES.get(detail["type"], "INVALID_TYPE")
    message = {
        "REQUIRED": f"Parameter '{name}' is required",
        "UNKNOWN_PARAMETER": f"Unknown parameter '{name}'; known are {', '.join(model.model_fields)}",
    }.get(code, f"Parameter '{name}': {detail['msg'][:1].lower()}{detail['msg'][1:]}")
    return Problem(name, message, code)


def schema(model: type[Params]) -> dict[str, Any]:
    """JSON Schema 2020-12 of the parameters, without what only pydantic wants to know."""
    made = model.model_json_schema()
    properties = {name: _property(value) for name, value in made.get("properties", {}).items()}
    shape = {"type": "object", "properties": properties, "required": made.get("required", [])}
    return {**shape, "additionalProperties": False}


_NAMES = {"ge": "minimum", "le": "maximum"}  # as pydantic leaves them behind a validator of ours


def _property(made: dict[str, Any]) -> dict[str, Any]:
    """`string or null, default null` is pydantic's way to say optional; the schema's way is `string`."""
    kinds = [kind for kind in made.pop("anyOf", []) if kind != {"type": "null"}]
    made |= kinds[0] if kinds else {}
    named = {_NAMES.get(key, key): value for key, value in made.items()}
    return {key: value for key, value in named.items() if key != "title" and (key, value) != ("default", None)}
