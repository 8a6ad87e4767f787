"""Short names: `box.apply()` is `box.staged.apply()`, with the same signature, types and documentation."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")


def flat(
    part: str, method: Callable[Concatenate[Any, P], R]
) -> Callable[Concatenate[Any, P], R]:
    """A method of one of an object's parts, as a method of the object itself."""
    name = method.__name__

    def call(self: Any, /, *args: Any, **options: Any) -> Any:
        return getattr(getattr(self, part), name)(*args, **options)

    async def awaited(self: Any, /, *args: Any, **options: Any) -> Any:
        return await call(self, *args, **options)

    return wraps(method)(awaited if inspect.iscoroutinefunction(method) else call)
