"""Clear errors for a forgotten `await`.

    result = box.run("make")        # forgot `await`
    result.stdout                   # NotAwaited: nothing has run yet: write `await box.run(...)`, or use belljar.sync

Public methods return a `Pending`. It can be awaited, or given to asyncio or anyio, like any coroutine.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Coroutine, Generator
from contextlib import AbstractAsyncContextManager
from functools import wraps
from typing import Any, Never, TypeVar

from belljar.errors import UsageError

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])


class NotAwaited(UsageError, AttributeError):
    """The result of an asynchronous call was used without `await`."""

    code = "not_awaited"


class Pending(Coroutine[Any, Any, Any]):
    """The coroutine of a public method."""

    __slots__ = ("_coroutine", "_name", "_used")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._coroutine, self._name, self._used = coroutine, name, False

    def __await__(self) -> Generator[Any, Any, Any]:
        self._used = True
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._used = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._used = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._used = True
        self._coroutine.close()  # also prevents Python's own "was never awaited" warning

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("cr_", "__")):  # asyncio reads these from a coroutine
            return getattr(self._coroutine, name)
        return self._refuse()

    def _refuse(self, *_: Any) -> Never:
        self.close()
        raise NotAwaited(self._message)

    __bool__ = __iter__ = __len__ = __getitem__ = __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse

    @property
    def _message(self) -> str:
        return f"nothing has run yet: write `await {self._name}(...)`, or use belljar.sync"

    def __repr__(self) -> str:
        return f"<{self._message}>"

    def __del__(self) -> None:
        if not self._used:
            self.close()
            warnings.warn(self._message, RuntimeWarning, stacklevel=2)


class Opening(AbstractAsyncContextManager[Any]):
    """The asynchronous context manager of a public method. Any use but `async with` is an error."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], name: str) -> None:
        self._manager, self._name = manager, name

    async def __aenter__(self) -> Any:
        return await self._manager.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._manager.__aexit__(*error)

    def _refuse(self, *_: Any) -> Never:
        raise NotAwaited(f"nothing has run yet: write `async with {self._name}(...) as …:`, or use belljar.sync")

    __enter__ = __exit__ = __iter__ = __aiter__ = __await__ = _refuse


def pending(owner: str) -> Callable[[F], F]:
    """Make a coroutine function return a `Pending`. `owner` is what examples write before the function's name."""
    return _returning(Pending, owner)


def opening(owner: str) -> Callable[[F], F]:
    """Make a function that returns an asynchronous context manager return an `Opening`."""
    return _returning(Opening, owner)


def _returning(kind: Callable[[Any, str], Any], owner: str) -> Callable[[F], F]:
    def wrap(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            return kind(function(*args, **options), f"{owner}.{function.__name__}")

        return call  # type: ignore[return-value]

    return wrap


def all_pending(owner: str) -> Callable[[C], C]:
    """Apply `pending` to every public coroutine method of a class."""

    def wrap(cls: C) -> C:
        for name, member in [*vars(cls).items()]:
            function = getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.iscoroutinefunction(function):
                continue
            if isinstance(member, classmethod | staticmethod):
                setattr(cls, name, type(member)(pending("belljar.Session")(function)))
            else:
                setattr(cls, name, pending(owner)(function))
        return cls

    return wrap
