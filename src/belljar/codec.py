"""One codec between plain data (records such as `Result`, `Verdict`, `Change`, and errors) and JSON.

    encode(result)             what json.dumps takes: bytes are kept, as base64
    decode(Result, data)       the same record again; UsageError names what is wrong with hostile input
    schema(Result)             the JSON Schema of a type, made by pydantic

A record is its compared fields; other fields are live, or can be had from these. Unknown fields of a newer version are
ignored, missing ones have their defaults. A class whose JSON is not simply its fields has `to_json` and `from_json`.
"""

from __future__ import annotations

import sys
import types
from base64 import b64decode, b64encode
from binascii import Error as NotBase64
from collections.abc import Collection, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from belljar import errors
from belljar.errors import BelljarError, UsageError

T = TypeVar("T")
MOST_ITEMS = 100_000
LONGEST_TEXT = 64 << 20
BASE64 = "base64"


def encode(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return {BASE64: b64encode(value).decode()}
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, BelljarError):
        return {
            name: encode(part)
            for name, part in {**value.as_dict(), **vars(value)}.items()
        }
    if is_dataclass(value):
        return {
            one.name: encode(getattr(value, one.name))
            for one in data_fields(type(value))
        }
    if isinstance(value, Mapping):
        return {str(name): encode(part) for name, part in value.items()}
    if isinstance(value, frozenset | set):
        return sorted(encode(part) for part in value)
    if isinstance(value, list | tuple):
        return [encode(part) for part in value]
    return value


def data_fields(kind: Any) -> list[Field[Any]]:
    return [one for one in fields(kind) if one.compare]


def raw_streams(**streams: bytes) -> dict[str, str]:
    """`NAME_base64` for each stream that is not UTF-8, since bytes are lost in its text."""
    return base64_of(
        **{name: data for name, data in streams.items() if not _is_text(data)}
    )


def base64_of(**streams: bytes) -> dict[str, str]:
    return {
        f"{name}_{BASE64}": b64encode(data).decode() for name, data in streams.items()
    }


def stream(told: Mapping[str, Any], name: str) -> bytes:
    """The bytes of a stream: of its base64 if there is one, or else of its text."""
    raw = told.get(f"{name}_{BASE64}")
    return (
        _bytes(raw, name)
        if raw is not None
        else decode(str, told.get(name, "")).encode("utf-8", "replace")
    )


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode(kind: type[T], data: Any) -> T:
    """UsageError if `data` is not what `encode` makes of such a value."""
    return _read(kind, data, getattr(kind, "__name__", "value"))  # type: ignore[no-any-return]


def given(kind: Any, data: Any, where: str = "") -> dict[str, Any]:
    """The fields of a record that `data` has, decoded."""
    where = where or kind.__name__
    read = _a(dict, data, where)
    found = {
        name: _read(hint, read[name], f"{where}.{name}")
        for name, hint in _hints(kind).items()
        if name in read
    }
    for one in data_fields(kind):
        if (
            one.name not in found
            and one.default is MISSING
            and one.default_factory is MISSING
        ):
            raise UsageError(f"{where}: {one.name} is missing")
    return found


@cache
def _hints(kind: type) -> dict[str, Any]:
    """The type of each field. Read here, since some types of other fields are known to type checkers only."""
    module = vars(sys.modules[kind.__module__])
    return {
        one.name: eval(one.type, module) if isinstance(one.type, str) else one.type
        for one in data_fields(kind)
    }


def _read(hint: Any, data: Any, where: str) -> Any:
    origin, parts = get_origin(hint), get_args(hint)
    if hint is Any or hint is object:
        return data
    if origin is Literal:
        if data not in parts:
            raise _wrong(data, where, " or ".join(map(repr, parts)))
        return data
    if origin in (Union, types.UnionType):
        return _read_one_of(parts, data, where)
    if origin is tuple and parts[-1] is not Ellipsis:
        items = _sized(_a(list, data, where), where)
        if len(items) != len(parts):
            raise _wrong(data, where, f"{len(parts)} values")
        return tuple(
            _read(part, item, where) for part, item in zip(parts, items, strict=True)
        )
    if origin in (tuple, list, frozenset):
        return origin(
            _read(parts[0], item, where)
            for item in _sized(_a(list, data, where), where)
        )
    if origin in (dict, Mapping):
        pairs = _sized(_a(dict, data, where), where)
        return {
            _a(str, name, where): _read(parts[1], item, where) for name, item in pairs
        }
    return _read_value(hint, data, where)


def _read_one_of(parts: tuple[Any, ...], data: Any, where: str) -> Any:
    if data is None and types.NoneType in parts:
        return None
    problem = _wrong(data, where, "known")
    for part in parts:
        if part is not types.NoneType:
            try:
                return _read(part, data, where)
            except UsageError as error:
                problem = error
    raise problem


def _read_value(hint: Any, data: Any, where: str) -> Any:
    if hint is bytes:
        return _bytes(_a(dict, data, where).get(BASE64), where)
    if hint is float:
        if (
            isinstance(data, bool)
            or not isinstance(data, int | float)
            or not isfinite(data)
        ):
            raise _wrong(data, where, "a number")
        return float(data)
    if hasattr(hint, "from_json"):
        return hint.from_json(data)
    if is_dataclass(hint):
        return hint(**given(hint, data, where))  # type: ignore[operator]
    return _a(hint, data, where)


def _bytes(text: Any, where: str) -> bytes:
    try:
        return b64decode(_a(str, text, where), validate=True)
    except NotBase64 as error:
        raise UsageError(f"{where}: {error}") from None


def _a(kind: Any, data: Any, where: str) -> Any:
    if not isinstance(data, kind) or (isinstance(data, bool) and kind is not bool):
        raise _wrong(data, where, kind.__name__)
    if isinstance(data, str) and len(data) > LONGEST_TEXT:
        raise UsageError(f"{where}: the text is too long")
    return data


def _sized(items: Any, where: str) -> Collection[Any]:
    if len(items) > MOST_ITEMS:
        raise UsageError(f"{where}: over {MOST_ITEMS} items")
    return items.items() if isinstance(items, dict) else items


def _wrong(data: Any, where: str, right: str) -> UsageError:
    return UsageError(f"{where}: {repr(data)[:100]} is not {right}")


# Errors.


def error_from(data: Any) -> BelljarError:
    """The error that `encode` wrote. Of an unknown code it is a plain BelljarError."""
    told = _a(dict, data, "error")
    kind = _error_kinds().get(_read(str, told.get("error"), "error"), BelljarError)
    message = _read(str, told.get("message", ""), "error.message")
    if kind is errors.PolicyDenied:
        from belljar.policy import Verdict

        return errors.PolicyDenied(
            decode(Verdict, told.get("verdict")), declined=bool(told.get("declined"))
        )
    if kind is errors.FileFailed:
        return errors.FileFailed(
            message, errno=_read(int, told.get("errno", 0), "error.errno")
        )
    error = kind.__new__(kind)
    Exception.__init__(error, message)
    if kind is errors.Conflict:
        vars(error)["paths"] = _read(
            dict[str, str], told.get("paths", {}), "error.paths"
        )
    return error


@cache
def _error_kinds() -> dict[str, type[BelljarError]]:
    kinds = [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, BelljarError)
    ]
    return {
        kind.code: kind for kind in reversed(kinds)
    }  # the first of a code is the general one


# Schemas.


def schema(hint: Any) -> dict[str, Any]:
    """The JSON Schema of a type. Imports pydantic."""
    from pydantic import TypeAdapter

    return TypeAdapter(hint).json_schema(mode="serialization")


def shape(
    description: str,
    /,
    *of: tuple[type, Collection[str]],
    optional: Mapping[str, Any] = types.MappingProxyType({}),
    **required: Any,
) -> Any:
    """A type for objects: with these attributes of other types, and with these fields."""
    from pydantic import create_model

    taken = {name: _attribute(kind, name) for kind, names in of for name in names}
    parts: Any = {name: (hint, ...) for name, hint in (taken | required).items()}
    parts |= {name: (hint, None) for name, hint in optional.items()}
    return create_model("Answer", __doc__=description, **parts)


def _attribute(kind: type, name: str) -> Any:
    """The type of a field, or of what a property returns."""
    if name in (hints := _hints(kind)):
        return hints[name]
    found = getattr(kind, name)
    told = getattr(found, "fget", None) or found.func
    return eval(told.__annotations__["return"], vars(sys.modules[kind.__module__]))
