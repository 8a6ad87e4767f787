"""What the parts of a session share: each has some of its verbs, and works with the whole."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from belljar.session.session import Session


class Verbs:
    @property
    def _box(self) -> Session:
        return self  # type: ignore[return-value]
