"""Turns names of the asynchronous API into blocking ones: same name, same signature, same types."""

from __future__ import annotations

import operator
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from belljar.sync.loop import Loop

A = TypeVar("A")
P = ParamSpec("P")
R = TypeVar("R")


class Facade(Generic[A]):
    """A blocking object: wraps one of the asynchronous API and the event loop that it lives in."""

    def __init__(self, loop: Loop, of: A) -> None:
        self._loop = loop
        self._of = of


class Same(Generic[R]):
    """An attribute, read from the wrapped object."""

    def __init__(self, doc: str = "") -> None:
        self.__doc__ = doc

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, facade: Any, owner: type) -> R:
        return self if facade is None else getattr(facade._of, self._name)  # type: ignore[return-value]


def blocking(
    method: Callable[Concatenate[Any, P], Awaitable[R]],
) -> Callable[Concatenate[Any, P], R]:
    """A coroutine method that the caller waits for."""
    return _wrapped(method, lambda facade: facade._loop.call)


def in_loop(
    method: Callable[Concatenate[Any, P], R],
) -> Callable[Concatenate[Any, P], R]:
    """A plain method that must run in the loop's thread."""
    return _wrapped(method, lambda facade: facade._loop.call)


def same(method: Callable[Concatenate[Any, P], R]) -> Callable[Concatenate[Any, P], R]:
    """A plain method that may run in any thread."""
    return _wrapped(method, lambda _: operator.call)


def _wrapped(
    method: Callable[..., Any], caller_of: Callable[[Any], Callable[..., Any]]
) -> Callable[..., Any]:
    @wraps(method)
    def call(self: Any, /, *args: Any, **options: Any) -> Any:
        return caller_of(self)(getattr(self._of, method.__name__), *args, **options)

    # The example in the docstring, as a blocking caller writes it.
    call.__doc__ = (
        (call.__doc__ or "").replace("await ", "").replace("async with", "with")
    )
    return call
