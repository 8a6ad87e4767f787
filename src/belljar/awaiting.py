"""A call of the asynchronous API that nobody awaits says so, in its own words, instead of Python's.

    result = box.run("make")        # forgot `await`
    result.stdout                   # NotAwaited: nothing has run yet: write `await box.run(...)`, or use belljar.sync

`Pending` is the coroutine that a public method gives. Awaited, or handed to asyncio or anyio, it is like any other.
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
    """The result of an asynchronous call was used before it was there."""

    code = "not_awaited"


class Pending(Coroutine[Any, Any, Any]):
    __slots__ = ("_coroutine", "_name", "_noticed")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], name: str) -> None:
        self._coroutine, self._name, self._noticed = coroutine, name, False

    def __await__(self) -> Generator[Any, Any, Any]:
        self._noticed = True
        return self._coroutine.__await__()

    def send(self, value: Any) -> Any:
        self._noticed = True
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        self._noticed = True
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._noticed = True
        self._coroutine.close()  # which keeps Python from speaking of it, too

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("cr_", "__")):  # what asyncio asks of a coroutine
            return getattr(self._coroutine, name)
        return self._refuse()

    def _refuse(self, *_: Any) -> Never:
        self.close()
        raise NotAwaited(self._said)

    __bool__ = __iter__ = __len__ = __getitem__ = __enter__ = __exit__ = __aenter__ = __aexit__ = _refuse

    @property
    def _said(self) -> str:
        return f"nothing has run yet: write `await {self._name}(...)`, or use belljar.sync"

    def __repr__(self) -> str:
        return f"<{self._said}>"

    def __del__(self) -> None:
        if not self._noticed:
            self.close()
            warnings.warn(self._said, RuntimeWarning, stacklevel=2)


class Opening(AbstractAsyncContextManager[Any]):
    """What is opened with `async with`; whatever else is tried says so."""

    def __init__(self, manager: AbstractAsyncContextManager[Any], name: str) -> None:
        self._manager, self._name = manager, name

    async def __aenter__(self) -> Any:
        return await self._manager.__aenter__()

    async def __aexit__(self, *error: Any) -> bool | None:
        return await self._manager.__aexit__(*error)

    def _refuse(self, *_: Any) -> Never:
        raise NotAwaited(f"nothing has run yet: write `async with {self._name}(...) as …:`, or use belljar.sync")

    __enter__ = __exit__ = __iter__ = __aiter__ = __await__ = _refuse


def opening(owner: str) -> Callable[[F], F]:
    """A function that gives an asynchronous context manager."""

    def wrap(function: F) -> F:
        @wraps(function)
        def call(*args: Any, **options: Any) -> Opening:
            return Opening(function(*args, **options), f"{owner}.{function.__name__}")

        return call  # type: ignore[return-value]

    return wrap


def pending(owner: str) -> Callable[[F], F]:
    """A coroutine function whose calls say so when they are not awaited; `owner`: what stands before its name."""

    def wrap(function: F) -> F:
        name = f"{owner}.{function.__name__}"

        @wraps(function)
        def call(*args: Any, **options: Any) -> Pending:
            return Pending(function(*args, **options), name)

        return call  # type: ignore[return-value]

    return wrap


def all_pending(owner: str) -> Callable[[C], C]:
    """The same for every public method of a class."""

    def wrap(kind: C) -> C:
        for name, member in [*vars(kind).items()]:
            plain = getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.iscoroutinefunction(plain):
                continue
            if isinstance(member, classmethod | staticmethod):
                setattr(kind, name, type(member)(pending("belljar.Session")(plain)))
            else:
                setattr(kind, name, pending(owner)(plain))
        return kind

    return wrap
