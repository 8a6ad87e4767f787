"""Frozen dataclasses that are cheap to define.

`dataclass(frozen=True)` writes and compiles six methods for every class, which takes half a millisecond, and a command
needs some eighty classes before it can start. A record is the same to whoever uses it (`fields`, `replace`, `asdict`,
`==`, `hash`, `match`), but only its `__init__` is compiled, when a few were made: the other methods are shared.
"""

from __future__ import annotations

from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: type[T]) -> type[T]:
    """What a class defines itself stays as it is."""
    own = vars(cls)
    defined: dict[str, Any] = {name: method for name, method in _SHARED.items() if not own.get(name)}
    cls.__doc__ = cls.__doc__ or cls.__name__  # else `dataclass` works one out
    dataclass(init=False, repr=False, eq=False)(cls)
    every: tuple[Field[Any], ...] = fields(cls)  # type: ignore[arg-type]
    if "__init__" not in own:
        defined["__init__"] = _Init(cls, every)
    compared = [one.name for one in every if one.compare]
    defined["_compared"] = attrgetter(*compared) if compared else _nothing
    for name, value in defined.items():
        setattr(cls, name, value)
    return cls


FEW = 128  # compiling an `__init__` takes longer than so many records take longer without it


class _Init:
    """Makes the first few records itself. Becomes the class's compiled `__init__` when more are made, when it is asked
    for, or to say what is wrong with the arguments."""

    def __init__(self, cls: type, every: tuple[Field[Any], ...]) -> None:
        self._of, self._made = (cls, every), 0

    def __get__(self, one: Any, _: type) -> Any:
        self._made += 1
        return partial(self._fill, one) if one is not None and self._made <= FEW else self._compiled(one)

    def _compiled(self, one: Any) -> Any:
        cls, every = self._of
        cls.__init__ = init = _init(cls, every)  # type: ignore[misc]
        return init if one is None else init.__get__(one)

    def _fill(self, one: Any, /, *given: Any, **named: Any) -> None:
        every, values, taken = self._of[1], one.__dict__, len(given)
        for at, each in enumerate(every):
            if at < len(given):
                values[each.name] = given[at]
            elif each.name in named:
                values[each.name] = named[each.name]
                taken += 1
            elif each.default is not MISSING:
                values[each.name] = each.default
            elif each.default_factory is not MISSING:
                values[each.name] = each.default_factory()
            else:
                self._compiled(one)(*given, **named)
        if len(given) > len(every) or taken < len(given) + len(named):
            self._compiled(one)(*given, **named)


def _init(cls: type, every: tuple[Field[Any], ...]) -> Any:
    names: dict[str, Any] = {"_GIVEN": _GIVEN}
    parameters, body = ["self"], ["values = self.__dict__"]
    for one in every:
        name, value = one.name, one.name
        if one.default_factory is not MISSING:
            names[f"_{name}"] = one.default_factory
            value = f"_{name}() if {name} is _GIVEN else {name}"
            name = f"{name}=_GIVEN"
        elif one.default is not MISSING:
            names[f"_{name}"] = one.default
            name = f"{name}=_{name}"
        parameters.append(name)
        body.append(f"values[{one.name!r}] = {value}")
    exec(f"def __init__({', '.join(parameters)}):\n " + "\n ".join(body), names)
    init = names["__init__"]
    init.__annotations__ = {one.name: one.type for one in every} | {"return": None}
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    return init


class _Given:
    def __repr__(self) -> str:
        return "<factory>"


_GIVEN = _Given()  # stands for "not given" where a default is made anew for each record


def _nothing(self: Any) -> tuple[()]:
    return ()


def _equal(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _key(self) == _key(other)


def _hash(self: Any) -> int:
    return hash(_key(self))


def _key(self: Any) -> Any:
    return type(self)._compared(self)


def _repr(self: Any) -> str:
    shown = ", ".join(f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{type(self).__qualname__}({shown})"


def _set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_SHARED = {"__eq__": _equal, "__hash__": _hash, "__repr__": _repr, "__setattr__": _set, "__delattr__": _delete}
