"""Lets a session run any command without judging it, for tests of what comes after the policy; answers approvals."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from belljar import Session, Verdict


class Answers:
    """An approver that can be exchanged. Until then it says no."""

    now: Any = None

    async def __call__(self, verdict: Verdict) -> bool:
        return self.now is not None and bool(await self.now(verdict))


@contextmanager
def trusting(box: Session) -> Iterator[None]:
    harmless = box.policy.judge_plain("true")
    assert harmless is not None

    async def admit(command: Any, **_: Any) -> Verdict:
        return replace(
            harmless,
            canonical=command if isinstance(command, str) else " ".join(command),
        )

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(box._judge, "admit", admit)
        yield


@contextmanager
def approving(box: Any, approve: Any) -> Iterator[None]:
    """Within the block `approve` is asked; the approver of a session at a service is an `Answers`."""
    place, name = (
        (box._judge, "approver") if isinstance(box, Session) else (box._approve, "now")
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(place, name, approve)
        yield
