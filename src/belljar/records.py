"""Frozen dataclasses that are cheap to define.

`dataclass(frozen=True)` writes and compiles six methods for every class. That takes two milliseconds per class, and a
command imports about fifty of them. A record behaves the same (`fields`, `replace`, `asdict`, `==`, `hash`, `match`),
but the methods are shared by all records. Only `__init__` is compiled, when the class is first used.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")
_lazy: list[_LazyInit] = []


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """Turn a class into a record. Methods that the class defines itself are kept."""
    own = vars(cls)
    methods: dict[str, Any] = {
        name: method for name, method in _SHARED.items() if not own.get(name)
    }
    cls.__doc__ = (
        cls.__doc__ or cls.__name__
    )  # otherwise `dataclass` builds one from the signature
    dataclass(init=False, repr=False, eq=False)(cls)
    all_fields: tuple[Field[Any], ...] = fields(cls)  # type: ignore[arg-type]
    if "__init__" not in own:
        methods["__init__"] = _LazyInit(cls, all_fields)
    compared = [one.name for one in all_fields if one.compare]
    methods["_compared"] = attrgetter(*compared) if compared else lambda self: ()
    for name, method in methods.items():
        setattr(cls, name, method)
    return cls


def compile_all() -> None:
    """Those defined up to now: for processes that are forked from this one."""
    while _lazy:
        _lazy.pop().__get__(None, None)


class _LazyInit:
    """Replaces itself by the compiled `__init__` when the class is first used."""

    def __init__(self, cls: type, all_fields: tuple[Field[Any], ...]) -> None:
        self._cls, self._fields = cls, all_fields
        _lazy.append(self)

    def __get__(self, instance: Any, _: type | None) -> Any:
        init = _compile_init(self._cls, self._fields)
        self._cls.__init__ = init  # type: ignore[misc]
        return init if instance is None else init.__get__(instance)


def _compile_init(cls: type, all_fields: tuple[Field[Any], ...]) -> Any:
    names: dict[str, Any] = {"_FACTORY": _FACTORY}
    parameters, body = ["self"], ["values = self.__dict__"]
    for one in all_fields:
        name, value = one.name, one.name
        if one.default_factory is not MISSING:
            names[f"_{name}"] = one.default_factory
            value = f"_{name}() if {name} is _FACTORY else {name}"
            name = f"{name}=_FACTORY"
        elif one.default is not MISSING:
            names[f"_{name}"] = one.default
            name = f"{name}=_{name}"
        parameters.append(name)
        body.append(f"values[{one.name!r}] = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), names)
    init = names["__init__"]
    init.__annotations__ = {one.name: one.type for one in all_fields} | {"return": None}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


class _Factory:
    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = (
    _Factory()
)  # the default of a field with a `default_factory`: each record gets a new value


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _key(self) == _key(other)


def _hash(self: Any) -> int:
    return hash(_key(self))


def _key(self: Any) -> Any:
    return type(self)._compared(self)


def _repr(self: Any) -> str:
    shown = ", ".join(
        f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr
    )
    return f"{type(self).__qualname__}({shown})"


def _set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {
    "__eq__": _equal,
    "__hash__": _hash,
    "__repr__": _repr,
    "__setattr__": _set,
    "__delattr__": _delete,
}
