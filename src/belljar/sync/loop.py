"""The way from a blocking caller into a host's event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import Any, TypeVar

from belljar.errors import UsageError
from belljar.host import Host

T = TypeVar("T")

FROM_WITHIN = "belljar.sync was called from one of its own callbacks (approve, on_output); return from it first"


class Loop:
    def __init__(self, host: Host) -> None:
        self._portal = host.portal()

    def call(self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> T:
        """What the coroutine function gives there. A caller that is interrupted (Ctrl+C) takes its call with it."""

        async def there() -> T:
            return await function(*args, **options)

        return self._wait_for(there)

    def do(self, function: Callable[..., T], *args: Any, **options: Any) -> T:
        """The same for a plain function that must run in the loop's thread."""

        async def there() -> T:
            return function(*args, **options)

        return self._wait_for(there)

    def _wait_for(self, there: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            future: Future[T] = self._portal.start_task_soon(there)
        except RuntimeError as error:
            raise UsageError(FROM_WITHIN) from error
        try:
            return future.result()
        finally:
            future.cancel()

    def within(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """An asynchronous context manager as a blocking one."""
        return self._portal.wrap_async_context_manager(manager)
