"""The base of the classes that `Session` is composed of: each has some of its methods, and uses the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belljar.session.session import Session


class Verbs:
    @property
    def _box(self) -> Session:
        return self  # type: ignore[return-value]
