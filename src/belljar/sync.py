"""The same names, blocking. One event loop in a thread of its own serves all of a process's sync sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

from anyio.from_thread import BlockingPortal

from belljar import host
from belljar.session import session as _session
from belljar.session import throwaway as _throwaway
from belljar.session.background_shell import Shell as _Shell
from belljar.session.options import Command
from belljar.session.result import Event, Result


def portal() -> BlockingPortal:
    return host.default().portal()


def run(command: Command, workspace: str = ".", **options: Any) -> Result:
    return portal().call(lambda: _throwaway.run(command, workspace, **options))


class _Blocking:
    """Calls the coroutine functions of what it wraps through the portal."""

    def __init__(self, wrapped: Any) -> None:
        self._wrapped = wrapped

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._wrapped, name)
        return _blocking(value) if callable(value) else value


def _blocking(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        async def there() -> Any:
            found = function(*args, **options)
            return await found if iscoroutinefunction(function) else found

        found = portal().call(there)
        if isinstance(found, _Shell):
            return Shell(found)
        if isinstance(found, list) and found and isinstance(found[0], _Shell):
            return [Shell(each) for each in found]
        return found

    return call


class Shell(_Blocking):
    pass


class Session(_Blocking):
    def __init__(self, workspace: str = ".", **options: Any) -> None:
        super().__init__(_session.Session(workspace, **options))

    def __enter__(self) -> Session:
        portal().call(self._wrapped.open)
        return self

    def __exit__(self, *exc: object) -> None:
        portal().call(self._wrapped.close)

    @contextmanager
    def stream(self, command: Command, **options: Any) -> Iterator[Iterator[Event]]:
        with portal().wrap_async_context_manager(self._wrapped.stream(command, **options)) as run:
            yield _events(run)


def _events(run: Any) -> Iterator[Event]:
    async def step() -> Event | None:
        return await anext(run, None)

    while (event := portal().call(step)) is not None:
        yield event
