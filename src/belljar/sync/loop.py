"""Calls from blocking code into a host's event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from belljar.errors import UsageError
from belljar.host import FarHost, Host

T = TypeVar("T")

FROM_WITHIN = "belljar.sync was called from one of its own callbacks (approve, on_output); return from it first"


class Loop:
    def __init__(self, host: Host | FarHost) -> None:
        self._portal = host.portal()

    def call(
        self, function: Callable[..., Awaitable[T]], *args: Any, **options: Any
    ) -> T:
        """Run a function in the event loop and return its result. If the caller is interrupted (Ctrl+C), so is the
        function."""
        try:
            future: Future[T] = self._portal.start_task_soon(
                partial(function, *args, **options)
            )
        except RuntimeError as error:
            raise UsageError(FROM_WITHIN) from error
        try:
            return future.result()
        finally:
            future.cancel()

    def within(
        self, manager: AbstractAsyncContextManager[T]
    ) -> AbstractContextManager[T]:
        """An asynchronous context manager as a blocking one."""
        return self._portal.wrap_async_context_manager(manager)
