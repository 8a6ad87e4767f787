"""The short names of a session are those of its objects."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from belljar import Session
from belljar.session.door import SessionDoor
from belljar.session.flat import flat
from belljar.session.shells import Shells
from belljar.session.staged import Staged

NAMES = {
    Shells: ("start", "yielding", "refresh", "cleanup"),
    SessionDoor: ("forward", "allow_host", "listening"),
    Staged: (
        "changes",
        "apply",
        "show",
        "apply_shown",
        "undo_apply",
        "discard",
        "checkpoint",
        "checkpoints",
        "rollback",
    ),
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind, names in NAMES.items() for name in names]
)
def test_a_short_name_is_the_same_to_whoever_asks(kind: type, name: str) -> None:
    short, whole = getattr(Session, name), getattr(kind, name)
    assert inspect.signature(short) == inspect.signature(whole)
    assert inspect.getdoc(short) == inspect.getdoc(whole)
    assert inspect.iscoroutinefunction(short) == inspect.iscoroutinefunction(whole)


async def test_a_short_name_calls_the_part_that_the_object_has_now() -> None:
    class Part:
        def __init__(self, value: int) -> None:
            self.value = value

        async def later(self, more: int = 0) -> int:
            return self.value + more

        def now(self) -> int:
            return self.value

    class Whole:
        part = Part(1)
        later = flat("part", Part.later)
        now = flat("part", Part.now)

    whole = Whole()
    whole.part = Part(5)
    assert await whole.later(more=2) == 7
    assert whole.now() == 5


def test_without_a_sandbox_a_short_name_says_so(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not open"):
        Session(tmp_path, changes="staged").checkpoints()
